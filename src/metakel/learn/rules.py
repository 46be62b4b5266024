r"""Rules for lambda (Lemma B.1 and Theorem 4.3), one value per group.

All guarantees rest on one event: for every group, the correlation of its features with the noise is
at most a quarter of its lambda,

.. math:: A = \Big\{ \tfrac{1}{N} \| (\Phi^T \varepsilon)^{(j)} \|_2 \le \lambda_j / 4
          \ \text{ for all } j \Big\},

and a rule is a choice of lambda with :math:`P(A) \ge 1 - \delta`. The paper prints one number for
all groups. Its proof holds unchanged for one lambda per group, so that a group of large features
does not determine the lambda of the others.

==================  ==========================================  ===============================
rule                valid for                                   needs
==================  ==========================================  ===============================
"self-normalized"   sub-Gaussian noise, any adaptive policy     eigenvalues of the kernels
"lifelong"          the same, at all relearnings together       eigenvalues of the kernels
"hkz"               sub-Gaussian noise, points fixed in advance eigenvalues
"chernoff"          the same; never above "hkz"                 eigenvalues
"dimension-free"    the same; never below "hkz"                 sup of the kernels
"monte-carlo"       Gaussian noise, points fixed in advance     a Generator
"paper"             sub-Gaussian noise, fixed points, k_j <= 1  m, n, p, d_max
==================  ==========================================  ===============================

"self-normalized" assumes that the sizes of the tasks were fixed in advance. If the policy chose
them as well, call `self_normalized` with ``planned_sizes``, or use "lifelong".

Notation: v are the eigenvalues of a group in each task, :math:`\Psi_j` (Appendix B) has the
eigenvalues v / N, and sup is the largest value of :math:`k_j(x, x)` over the domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil, inf, log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, check_generator, probability
from metakel.errors import InputError, ShapeError
from metakel.grouplasso import Problem
from metakel.grouplasso.solve import as_strengths


class Eigenvalues:
    """Eigenvalues of all Gram matrices by group, in one vector, and sums over them.

    ``top``, ``trace`` and ``frobenius`` (p,) are those of each group.
    """

    def __init__(self, problem: Problem) -> None:
        spectra = problem.spectra()
        self.counts = np.array([v.size for v in spectra])
        self.flat = np.maximum(np.concatenate([v.ravel() for v in spectra]), 0.0)
        self._starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self.top = np.maximum.reduceat(self.flat, self._starts)
        self.trace = self.sums(self.flat)
        self.frobenius = np.sqrt(self.sums(self.flat**2))

    def sums(self, values: Array) -> Array:
        """(p,) sums over each group of one value per eigenvalue."""
        return np.add.reduceat(values, self._starts)

    def log_det(self, rho: Array) -> Array:
        """(p,) sums of log(1 + v / rho_j)."""
        return self.sums(np.log1p(self.flat / np.repeat(rho, self.counts)))

    def tilted(self, top: Array, z: Array) -> tuple[Array, Array]:
        """Sums (p,) of psi(t) and of t psi'(t) in `chernoff_energy`, for v = share top_j at z_j."""
        share, z = self.flat / np.repeat(top, self.counts), np.repeat(z, self.counts)
        remaining = (1 + z * (1 - share)) / (1 + z)  # 1 - tau share
        return self.sums(-np.log(remaining) / 2), self.sums((1 - remaining) / remaining / 2)


def chernoff_energy(v: Eigenvalues, x: float) -> Array:
    """(p,) values q with P(energy of unit noise in the group > q) <= exp(-x).

    The best t solves t psi'(t) - psi(t) = x. The left-hand side increases in z = tau / (1 - tau),
    tau = 2 t max(v), so z is found by bisection. Every z gives a valid q, and q depends little on
    z near the optimum, so an approximate root is enough.
    """
    top = np.where(v.top > 0, v.top, 1.0)
    low = np.log(np.minimum(sqrt(4 * x) / np.sqrt(v.counts), 1.0) / 2)
    high = np.full(len(top), log(4 * x + 4))
    for _ in range(28):
        middle = (low + high) / 2
        value, slope = v.tilted(top, np.exp(middle))
        above = slope - value > x
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    z = np.exp((low + high) / 2)
    energy: Array = v.top * 2 * (1 + z) / z * (v.tilted(top, z)[0] + x)
    return energy


RULES = ("self-normalized", "hkz", "dimension-free", "chernoff", "monte-carlo", "paper", "lifelong")
RHO_GRID = 8  # regularisers of "self-normalized", each half of the one before
LIFELONG_GRID = 12  # those of "lifelong", for numbers and sizes known up to a factor of 16


def choose_lambda(
    rule: str | ArrayLike,
    problem: Problem,
    *,
    noise_std: float | None,
    delta: float,
    sup: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
    draws: int = 999,
) -> Array:
    """One lambda per group (Theorem 4.3), by the name of a rule or as given.

    Parameters
    ----------
    rule : str, number or (p,) array
        A rule of the table above, one lambda for all groups, or one for each.
    problem : Problem
    noise_std : float or None
        Standard deviation (or sub-Gaussian proxy) of the noise; named rules need it.
    delta : float
        Probability with which the event A may fail.
    sup : (p,) array, optional
        Largest ``k_j(x, x)`` over the domain; 1 where unknown (None or NaN), as in Section 3.
    rng : Generator, optional
        Only for "monte-carlo".
    draws : int
        Only for "monte-carlo".

    Returns
    -------
    (p,) array, positive
        A group whose kernel matrices are all zero can never be selected. Where a rule gives 0 for
        it, it gets the largest lambda of the other groups.
    """
    if not isinstance(rule, str):
        return as_strengths(rule, problem.p)
    if rule not in RULES:
        raise InputError(
            f"unknown lambda rule {rule!r}; known rules: {', '.join(RULES)} ('square-root' is an "
            "option of learn_kernel; pivotal_lambda computes its lambda)"
        )
    if noise_std is None or not (np.isfinite(noise_std) and noise_std > 0):
        raise InputError(f"lambda rule {rule!r}: noise_std is {noise_std}; expected a number > 0")
    probability("delta", delta)
    level = {"noise_std": noise_std, "delta": delta}
    if rule == "monte-carlo":
        if rng is None:
            raise InputError("lambda rule 'monte-carlo' needs a Generator: pass rng=")
        return monte_carlo(problem, **level, rng=rng, draws=draws)
    if rule in ("hkz", "chernoff", "paper"):
        return {"hkz": hkz, "chernoff": chernoff, "paper": paper}[rule](problem, **level)
    by_sup = {"self-normalized": self_normalized, "lifelong": lifelong}
    return by_sup.get(rule, dimension_free)(problem, **level, sup=sup)


def self_normalized(
    problem: Problem,
    *,
    noise_std: float,
    delta: float,
    sup: ArrayLike | None = None,
    planned_sizes: ArrayLike | None = None,
) -> Array:
    r"""Valid under any adaptive policy: points may depend on everything seen before (Lemma B.1).

    .. math:: \lambda_j = \frac{4\sigma}{N} \min_{i < 8} \sqrt{ (\max v + \rho_{ij})
              \Big( \sum \log(1 + v / \rho_{ij}) + 2 \log \tfrac{8p}{\delta} \Big) },
              \qquad \rho_{ij} = 2^{-i} \rho_j

    The bound of Abbasi-Yadkori et al. (2011) on the self-normalized noise of group j, for a grid of
    8 regularisers at once. The grid depends on task sizes, dimensions and sup only: the bound would
    not hold for a regulariser that depends on the points, but by a union bound it holds for all
    of a grid fixed in advance, and so for the best of them. :math:`\rho_j` is best for the largest
    eigenvalues that the sizes and sup allow; smaller ones are better for features that are small
    against their sup at most points.

    Parameters
    ----------
    planned_sizes : number or (m,) array, optional
        Largest number of points that each task could have had. Only needed if the policy also
        decided when to stop, because then the sizes depend on the data.
    """
    v = Eigenvalues(problem)
    log_term = 2 * log(RHO_GRID * problem.p / delta)
    planned = problem.sizes if planned_sizes is None else planned_sizes
    sizes = np.broadcast_to(np.asarray(planned, float), (problem.m,))
    planned_energy = problem.task_weights**2 * sizes
    largest = _planned_rho(planned_energy, sizes, problem.dims, log_term) * _as_sup(sup, problem.p)
    return _self_normalized(v, largest, RHO_GRID, log_term, noise_std, problem.total)


def _self_normalized(
    v: Eigenvalues, largest: Array, count: int, log_term: float, noise_std: float, total: int
) -> Array:
    """The bound for the best of a grid of regularisers, which was fixed in advance."""
    energies = [
        (v.top + rho) * (v.log_det(rho) + log_term)
        for rho in (largest * 2.0**-i for i in range(count))
    ]
    lam: Array = 4 * noise_std / total * np.sqrt(np.min(energies, axis=0))
    return lam


def lifelong(
    problem: Problem, *, noise_std: float, delta: float, sup: ArrayLike | None = None
) -> Array:
    r"""`self_normalized` for kernels that are learned again after every task (Theorem 30).

    With probability 1 - delta the event A holds at all relearnings together: however the points
    were chosen, whenever a task was stopped, and whatever made somebody stop adding tasks. Stacked
    over tasks, noise and features are one process, to which the self-normalized bound applies at
    all times at once for every regulariser fixed in advance. There is a grid of them for every
    pair of powers of 16 that bound the number of tasks and the size of the largest,

    .. math:: 16^i \le m < 16^{i+1}, \quad 16^k \le \max_s n_s < 16^{k+1}, \qquad
              \delta_{ik} = \frac{\delta}{(i + 1)(i + 2)(k + 1)(k + 2)},

    and these add up to at most delta. Compared with `self_normalized` the logarithmic term grows by
    twice the logarithm of the denominator, beside a sum over tasks.

    At half of this lambda pure noise still selects nothing. It needs the same weight
    for every observation, ``loss="points"``: other weights change with every new task.
    """
    if np.ptp(problem.task_weights) > 1e-12:
        raise InputError(
            "lambda rule 'lifelong': tasks have different weights, which change with every new "
            "task; expected loss='points'"
        )
    v = Eigenvalues(problem)
    i, k = ((count.bit_length() - 1) // 4 for count in (problem.m, int(problem.sizes.max())))
    share = delta / ((i + 1) * (i + 2) * (k + 1) * (k + 2))
    log_term = 2 * log(LIFELONG_GRID * problem.p / share)
    size, tasks = 16.0 ** (k + 1), np.array([16 ** (i + 1)])
    ranks = [min(d or inf, size) for d in problem.dims]
    best = {r: _best_u(np.ones(1), np.array([r]), tasks, log_term) for r in set(ranks)}
    largest = size * np.array([best[r] for r in ranks]) * _as_sup(sup, problem.p)
    return _self_normalized(v, largest, LIFELONG_GRID, log_term, noise_std, problem.total)


def hkz(problem: Problem, *, noise_std: float, delta: float) -> Array:
    r"""For points fixed in advance, by Hsu, Kakade and Zhang (2012); corrects Lemma B.1.

    .. math:: \lambda_j = \frac{4\sigma}{\sqrt N} \sqrt{ \operatorname{tr} \Psi_j
              + 2 \|\Psi_j\|_F \sqrt x + 2 \|\Psi_j\|_2 x }, \qquad x = \log(p/\delta)
    """
    v = Eigenvalues(problem)
    x = log(problem.p / delta)
    energy = v.trace + 2 * v.frobenius * sqrt(x) + 2 * v.top * x
    return _nonzero(4 * noise_std / problem.total * np.sqrt(energy))


def chernoff(problem: Problem, *, noise_std: float, delta: float) -> Array:
    r"""For points fixed in advance: the sharpest of the bounds for sub-Gaussian noise.

    .. math:: \lambda_j = \frac{4\sigma}{N} \sqrt{q_j}, \qquad
              q_j = \min_t \tfrac1t \Big( \log\tfrac p\delta - \tfrac12 \sum \log(1 - 2tv) \Big)

    "hkz" follows from this inequality by bounding the logarithm, so it is never smaller (Lemma
    B.1).
    """
    energy = chernoff_energy(Eigenvalues(problem), log(problem.p / delta))
    return _nonzero(4 * noise_std / problem.total * np.sqrt(energy))


def dimension_free(
    problem: Problem, *, noise_std: float, delta: float, sup: ArrayLike | None = None
) -> Array:
    r"""Lemma B.1 without d_max: "hkz" from the sup of each kernel instead of its eigenvalues.

    For tasks of one size and :math:`k_j \le 1` it reads

    .. math:: \lambda = \frac{4\sigma}{\sqrt{mn}} \sqrt{1 + 2\sqrt{x/m} + 2x/m},
              \qquad x = \log(p/\delta),

    and scales with the square root of sup. Raises if the data contradict sup.
    """
    top = _as_sup(sup, problem.p)
    energy = problem.task_weights**2 * problem.sizes  # (m,) trace of each task when k_j = 1
    trace = Eigenvalues(problem).trace
    for j in np.flatnonzero(trace > top * energy.sum() * (1 + 1e-9)):
        raise InputError(
            f"lambda rule 'dimension-free': kernel {j} has mean k(x, x) = "
            f"{trace[j] / energy.sum():.4g} on the data but sup = {top[j]:.4g}; "
            "pass the sup of each kernel, or use 'hkz', which computes it from the data"
        )
    x = log(problem.p / delta)
    noise = energy.sum() + 2 * sqrt(energy.sum() * energy.max() * x) + 2 * energy.max() * x
    lam: Array = 4 * noise_std / problem.total * np.sqrt(top * noise)
    return lam


def paper(problem: Problem, *, noise_std: float, delta: float) -> Array:
    r"""Theorem 4.3 as printed (k_j <= 1): the same number for all groups.

    For tasks of one size it is `metakel.theory.lambda_min_paper`. With the energies
    :math:`e_s = w_s^2 n_s` of tasks of other sizes and weights in the loss, its proof gives

    .. math:: \lambda = \frac{4\sigma}{N} \sqrt{ \sum_s e_s + 2 \max_s e_s
              \left( x + \sqrt{m d_{\max} x} \right) }, \qquad x = \log\tfrac{2p}{\delta} .

    For kernels without a finite feature map, d_max is the largest rank possible on the data.
    """
    largest = int(problem.sizes.max())
    d_max = max(largest if d is None else d for d in problem.dims)
    energy = problem.task_weights**2 * problem.sizes
    x = log(2 * problem.p / delta)
    noise = energy.sum() + 2 * energy.max() * (x + sqrt(problem.m * d_max * x))
    return np.full(problem.p, 4 * noise_std / problem.total * sqrt(noise))


def monte_carlo(
    problem: Problem, *, noise_std: float, delta: float, rng: np.random.Generator, draws: int = 999
) -> Array:
    r"""For Gaussian noise and points fixed in advance: simulates the event A (Lemma B.1).

    :math:`\lambda_j = 4 \sigma w_j q / N` where :math:`w_j^2` is the trace of the group and q the
    order statistic number ceil((1 - delta)(draws + 1)) of
    :math:`\max_j \|(\Phi^T g)^{(j)}\| / w_j`. The noise in the data and the draws g are
    exchangeable, so A has probability at least 1 - delta for any number of draws. Not valid if
    the points were chosen depending on observed values.
    """
    probability("delta", delta)
    scale = np.sqrt(Eigenvalues(problem).trace)
    quantile = _simulated_quantile(problem, scale, delta, rng, draws, lambda g: 1.0)
    return _nonzero(4 * noise_std / problem.total * quantile * scale)


def pivotal_lambda(
    problem: Problem, *, delta: float, rng: np.random.Generator | None = None, draws: int = 999
) -> Array:
    r"""Lambda of the group square-root lasso, for Gaussian noise of unknown size.

    The objective is :math:`\|y - \Phi b\| / \sqrt N + \sum_j \lambda'_j \|b^{(j)}\|`, and the event
    is :math:`\|(\Phi^T \varepsilon)^{(j)}\| / (\sqrt N \|\varepsilon\|) \le \lambda'_j / 2`, where
    the noise level cancels (Bunea, Lederer and She, 2013).

    With a Generator, :math:`\lambda'_j = 2 w_j q` with the simulated quantile q of `monte_carlo`.
    Without one, it combines the bound of `chernoff` on the numerator of each group and the lower
    tail bound of Laurent and Massart (2000) on :math:`\|\varepsilon\|`, at delta / (p + 1) each.
    """
    probability("delta", delta)
    v = Eigenvalues(problem)
    weights = problem.task_weights
    if rng is not None:

        def root_total(g: list[Array]) -> float:
            return sqrt(
                problem.total * sum(w * float(r @ r) for w, r in zip(weights, g, strict=True))
            )

        scale = np.sqrt(v.trace)
        quantile = _simulated_quantile(problem, scale, delta, rng, draws, root_total)
        return _nonzero(2 * quantile * scale)
    x = log((problem.p + 1) / delta)
    floor = problem.total - 2 * sqrt(float(weights**2 @ problem.sizes) * x)
    if floor <= 0:
        raise InputError(
            f"{problem.total} observations are too few to bound unknown noise at delta = {delta} "
            f"for {problem.p} kernels; pass rng= for the simulated rule, or noise_std"
        )
    return _nonzero(2 * np.sqrt(chernoff_energy(v, x) / (problem.total * floor)))


def _planned_rho(energy: Array, sizes: Array, dims: Sequence[int | None], log_term: float) -> Array:
    """(p,) minimisers over rho of the worst case of `self_normalized` at sup = 1.

    In u = rho / max(energy) the worst case (1 + u)(sum_s r log(1 + a / (r u)) + log_term) is
    convex, a <= 1 being the energy of a task relative to the largest and r its largest rank.
    """
    top = float(energy.max())
    kinds_of_task = Counter(zip((energy / top).tolist(), sizes.tolist(), strict=True))
    a, size = np.array(list(kinds_of_task)).T
    counts = np.array(list(kinds_of_task.values()))
    best = {d: _best_u(a, np.minimum(d or np.inf, size), counts, log_term) for d in set(dims)}
    return top * np.array([best[d] for d in dims])


def _best_u(a: Array, rank: Array, counts: NDArray[np.intp], log_term: float) -> float:
    low, high = -14.0, 14.0  # of log u; every round keeps a sixteenth of the interval
    unit = np.linspace(0, 1, 33)
    for _ in range(4):
        grid = low + (high - low) * unit
        u = np.exp(grid)
        log_det = (counts * rank) @ np.log1p((a / rank)[:, None] / u)
        best = int(((1 + u) * (log_det + log_term)).argmin())
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    return float(np.exp((low + high) / 2))


def _as_sup(sup: ArrayLike | None, p: int) -> Array:
    values = np.ones(p) if sup is None else np.array(sup, dtype=float)
    if values.shape not in ((), (p,)):
        raise ShapeError(f"sup has shape {values.shape}; expected one value per kernel, ({p},)")
    return np.broadcast_to(np.where(np.isfinite(values) & (values > 0), values, 1.0), (p,))


def _simulated_quantile(
    problem: Problem,
    scale: Array,
    delta: float,
    rng: np.random.Generator,
    draws: int,
    denominator: Callable[[list[Array]], float],
) -> float:
    """Order statistic of max_j ||(Phi' g)^(j)|| / (scale_j denominator(g)), g standard normal."""
    check_generator(rng)
    rank = ceil((1 - delta) * (draws + 1) - 1e-12)
    if rank > draws:
        raise InputError(
            f"{draws} draws are too few for delta = {delta}; "
            f"expected at least {ceil(1 / delta - 1)}"
        )
    used = scale > 0
    if not used.any():
        return 1.0
    splits = np.cumsum(problem.sizes)[:-1]
    maxima = np.empty(draws)
    for i in range(draws):
        g = np.split(rng.standard_normal(problem.total), splits)
        energies = problem.energies(g)[used]
        maxima[i] = np.sqrt((energies / scale[used] ** 2).max()) / denominator(g)
    return float(np.partition(maxima, rank - 1)[rank - 1])


def _nonzero(lam: Array) -> Array:
    """Replace zeros, of groups without features, by the largest lambda (or by 1)."""
    top = lam.max()
    return np.where(lam > 0, lam, top if top > 0 else 1.0)
