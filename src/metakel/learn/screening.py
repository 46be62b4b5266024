r"""Tests for base kernels, and how large a kernel can be without being found (around Theorem 4.3).

Theorem 4.3 guarantees that no kernel is missed when :math:`\epsilon \le c_1`. Its constants are
unknown in practice, and useless on real designs. A statement that can be computed replaces it: a
chi-square test (Gaussian noise, points fixed in advance). It needs tasks with n_s >= d; without,
there is only `metakel.theory.screening_energy`.

Notation: ``Phi`` is one (n_s, d) array per task, ``y`` one (n_s,) vector, ``groups`` the p slices
of the d columns; :math:`D_j^2 = \sum_s \|P_{-j,s}^\perp \Phi_s^{(j)} b_s^{(j)}\|^2` is the energy
of kernel j that no combination of the others explains.

A kernel that was not selected is not absent, it is small. By the optimality condition of Eq. 8
(Eq. B.7) its correlation with the residuals is at most :math:`\lambda_j`,

.. math:: \tfrac2N \| \Phi_j^T (y - \Phi \hat\beta) \| \le \lambda_j .

If the other kernels do not imitate it on the points, the left-hand side is
:math:`\tfrac2N V_j \sqrt m` times the root mean square of its fitted coefficient norms over the m
tasks, where :math:`V_j` is the mean eigenvalue of :math:`\Phi_{sj}^T \Phi_{sj}` (one feature: its
mean energy over the points of a task). So these norms are at most
:math:`\epsilon_j = \lambda_j N / (2 V_j \sqrt m)` in root mean square. ``docs/promises.md`` says
what is proved about a new task, and what is measured.

`report` says all of that as text for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import TINY, Array, as_number, probability
from metakel.errors import InputError, ShapeError, first_of
from metakel.grouplasso import Problem
from metakel.grouplasso.problem import columns_of
from metakel.learn.problem import PIVOTAL, root_mean_square
from metakel.theory import detectable_noncentrality, screening_threshold

if TYPE_CHECKING:
    from metakel.learn.kernel import LearnedKernel


@dataclass(frozen=True, eq=False)
class Screening:
    """Result of the chi-square test.

    Parameters
    ----------
    statistic : (p,) array
        T_j, the increase of the residual sum of squares without kernel j, over the noise variance.
    threshold : (p,) array
        Kernel j is kept when ``statistic[j] > threshold[j]``.
    p_values : (p,) array
        For the hypothesis that no task uses kernel j, without correction for multiple tests.
    kept : array of int
    detectable : (p,) array
        Energies D_j^2; a kernel with at least this energy is kept with probability 1 - beta.
    """

    statistic: Array
    threshold: Array
    p_values: Array
    kept: NDArray[np.intp]
    detectable: Array

    def __repr__(self) -> str:
        shown = first_of(self.kept, 20)
        return f"Screening(kept {len(self.kept)} of {len(self.statistic)} kernels: {shown or '-'})"


def chi_square_screening(
    Phi: Sequence[ArrayLike],
    y: Sequence[ArrayLike],
    groups: Sequence[slice],
    *,
    noise_std: float,
    delta: float,
    beta: float = 0.1,
) -> Screening:
    r"""Test every kernel, given all others; replaces Assumption 3.1.

    For Gaussian noise and points fixed in advance,
    :math:`T_j = (RSS_{-j} - RSS)/\sigma^2 \sim \chi^2(m d_j, D_j^2/\sigma^2)`. With probability
    1 - delta no kernel outside the true one is kept, and each kernel with energy above
    ``detectable`` is kept with probability 1 - beta.
    """
    from scipy.special import chdtrc

    as_number("noise_std", noise_std, TINY)
    probability("delta", delta)
    probability("beta", beta)
    statistic = _increase_of_all(Phi, y, groups) / noise_std**2
    m, p = len(Phi), len(groups)
    dims = [group.stop - group.start for group in groups]
    of_dim = {
        d: (
            screening_threshold(m=m, d=d, p=p, delta=delta),
            detectable_noncentrality(m=m, d=d, p=p, delta=delta, beta=beta),
        )
        for d in set(dims)
    }
    threshold = np.array([of_dim[d][0] for d in dims])
    return Screening(
        statistic=statistic,
        threshold=threshold,
        p_values=np.asarray(chdtrc(m * np.array(dims), statistic), np.float64),
        kept=np.flatnonzero(statistic > threshold),
        detectable=noise_std**2 * np.array([of_dim[d][1] for d in dims]),
    )


def _increase_of_all(
    Phi: Sequence[ArrayLike], y: Sequence[ArrayLike], groups: Sequence[slice]
) -> Array:
    """(p,) residual sums of squares without group j, minus those with all, over all tasks."""
    if len(Phi) != len(y):
        raise ShapeError(f"Phi has {len(Phi)} tasks but y has {len(y)}; expected one y per Phi")
    by_size: dict[int, list[tuple[Array, Array]]] = {}
    for s, (F, values) in enumerate(zip(Phi, y, strict=True)):
        features, target = np.asarray(F, np.float64), np.asarray(values, np.float64)
        if features.ndim != 2 or target.shape != features.shape[:1]:
            raise ShapeError(
                f"task {s}: Phi has shape {features.shape} and y {target.shape}; "
                "expected (n_s, d) and (n_s,)"
            )
        n, d = features.shape
        if n < d:
            raise InputError(
                f"task {s}: {n} points do not determine {d} coefficients; "
                "the test needs n_s >= d in every task"
            )
        by_size.setdefault(n, []).append((features, target))
    total = np.zeros(len(groups))
    for tasks in by_size.values():
        Q, R = np.linalg.qr(np.stack([F for F, _ in tasks]))
        size = np.abs(np.diagonal(R, axis1=1, axis2=2))
        if (size.min(axis=1) <= 1e-12 * size.max(axis=1)).any():
            raise InputError(
                "the features of some task are linearly dependent on its points; "
                "the test needs full column rank in every task"
            )
        rotated = np.einsum("knd,kn->kd", Q, np.stack([v for _, v in tasks]))
        total += _increases(R, rotated, groups).sum(axis=0)
    return total


def _increases(R: Array, rotated: Array, groups: Sequence[slice]) -> Array:
    """(k, p) RSS without group j, minus RSS.

    Let A be the rows of R^-1 that belong to group j. Since b_j = A Q'y, RSS_{-j} - RSS =
    b_j' (A A')^-1 b_j is the squared norm of a projection of Q'y to the span of these rows, which
    avoids the difference of two nearly equal sums.
    """
    inverse = np.linalg.solve(R, np.broadcast_to(np.eye(R.shape[1]), R.shape))  # (k, d, d)
    if R.shape[1] == len(groups):  # one column each
        coefficients = (inverse @ rotated[:, :, None])[:, :, 0]
        return np.asarray(coefficients**2 / (inverse**2).sum(axis=2))
    increase = np.empty((len(R), len(groups)))
    for j, group in enumerate(groups):
        basis = np.linalg.qr(inverse[:, group].transpose(0, 2, 1))[0]  # (k, d, d_j)
        increase[:, j] = ((rotated[:, None] @ basis) ** 2).sum(axis=(1, 2))
    return increase


def hidden_sizes(problem: Problem, lam: Array, active: NDArray[np.intp]) -> tuple[Array, Array]:
    """How large each base kernel can be without having been selected; 0 for selected kernels.

    Returns
    -------
    coefficients : (p,) array
        epsilon_j, root mean square of the norm of its part of a function, over tasks with weights
        V_sj^2; inf for a kernel that is 0 at all points.
    values : (p,) array
        Root mean square of that part's values over all points, if tasks of all sizes use it alike.
    """
    # The rules for lambda need the weight of a task twice, a score needs it once.
    weights = problem.task_weights[:, None]
    spectra = [v / weights for v in problem.spectra()]  # (m, r_j) each
    squares = np.array([(v**2).sum() / v.shape[1] for v in spectra])
    energy = np.array([v.sum() / v.shape[1] for v in spectra])
    seen = np.where(squares > 0, squares, 1.0)
    coefficients = np.asarray(lam) * problem.total / (2 * np.sqrt(seen))
    coefficients[active] = 0.0
    values = np.where(squares > 0, coefficients * np.sqrt(energy / problem.total), 0.0)
    coefficients[squares == 0] = np.inf
    return coefficients, values


@dataclass(frozen=True, eq=False)
class Remains:
    """What the residuals of the selection hold of each base kernel; see `remains`."""

    excess: Array  # (p,) sum over tasks of |A'r|^2 minus what noise alone gives on average
    trace: Array  # (p,) sum over tasks of the trace of A'A
    # (p,) sum over tasks of the squared entries of A'A; 0 where the selection imitates the kernel
    squares: Array
    dims: Array  # (p,) numbers of features
    rss: float  # residual sum of squares of the selection
    free: int  # its degrees of freedom
    noise_std: float

    def sizes(self) -> Array:
        """(p,) tau_j: root mean square norms that the residuals allow each kernel to have.

        The estimate by moments, plus the upper quartile of what it is under noise alone.
        """
        seen = np.where(self.squares > 0, self.squares, 1.0)
        mean = np.maximum(self.excess, 0) / seen
        deviation = self.noise_std**2 * np.sqrt(2 / seen)
        return np.where(self.squares > 0, np.sqrt(self.dims * (mean + QUARTILE * deviation)), inf)

    def p_value(self) -> float:
        """How often noise alone leaves so much: of all residuals together, or of one kernel.

        Exact for all residuals, Gaussian noise and points fixed in advance; a weighted sum of
        squares is taken as a multiple of a chi-square variable. Small where something was missed.
        """
        from scipy.special import chdtrc

        noise = self.noise_std**2
        found = [2 * float(chdtrc(self.free, self.rss / noise))] if self.free else []
        seen = self.squares > 0
        trace, squares = self.trace[seen], self.squares[seen]
        energy = self.excess[seen] / noise + trace
        each = chdtrc(trace**2 / squares, energy * trace / squares)
        found += (2 * seen.sum() * each).tolist()
        return min([1.0, *found])


QUARTILE = 0.67
# P(the next task uses a kernel more than each of m tasks did) can be 1 / (m + 1).
FEWEST_TASKS = 9
CHUNK = 256  # tasks at a time
IMITATED = 1e-10  # of a kernel's energy: less is rounding


def remains(problem: Problem, active: NDArray[np.intp], noise_std: float) -> Remains:
    r"""What least squares on the selected kernels leaves of the others, in moments.

    With r and A the values and the features of kernel j without their projection on the selected
    features of a task, :math:`E |A^T r|^2 = \sigma^2 \mathrm{tr} A^T A + \tau^2 |A^T A|_F^2 / d_j`
    for coefficients of mean square norm :math:`\tau^2` in no preferred direction, whatever the
    sizes of the tasks. Tasks that the selection fits exactly say nothing.
    """
    picked = columns_of(active, problem.starts)
    excess, trace, squares, whole = np.zeros((4, problem.p))
    rss, free = 0.0, 0
    for batch in problem.batches:
        assert batch.Phi is not None
        for start in range(0, len(batch.tasks), CHUNK):
            part = slice(start, start + CHUNK)
            root = np.sqrt(problem.task_weights[batch.tasks[part]])
            Phi = batch.Phi[part] / root[:, None, None]  # (k, d, n)
            y = batch.y[part] / root[:, None]
            before = np.einsum("kdn,kdn->d", Phi, Phi)
            rank = np.zeros(len(y), dtype=int)
            if picked.size:
                chosen = Phi[:, picked]
                left, singular, _ = np.linalg.svd(chosen.transpose(0, 2, 1), full_matrices=False)
                kept = singular > 1e-10 * singular.max(axis=1, initial=0, keepdims=True)
                left = left * kept[:, None, :]
                rank = kept.sum(axis=1)
                Phi = Phi - (Phi @ left) @ left.transpose(0, 2, 1)
                y = y - (left @ (left.transpose(0, 2, 1) @ y[:, :, None]))[..., 0]
            spare = problem.sizes[batch.tasks[part]] - rank
            rss += float((y[spare > 0] ** 2).sum())
            free += int(spare[spare > 0].sum())
            score = (Phi @ y[:, :, None])[..., 0]  # (k, d)
            for j in range(problem.p):
                own = problem.columns(j)
                gram = Phi[:, own] @ Phi[:, own].transpose(0, 2, 1)  # (k, d_j, d_j)
                energy = float(np.einsum("kii->", gram))
                excess[j] += float((score[:, own] ** 2).sum()) - noise_std**2 * energy
                trace[j] += energy
                squares[j] += float((gram**2).sum())
                whole[j] += float(before[own].sum()) ** 2
    squares[squares <= IMITATED * whole] = 0.0
    dims = np.array([problem.columns(j).stop - problem.columns(j).start for j in range(problem.p)])
    return Remains(excess, trace, squares, dims, rss, free, noise_std)


def soft_weights(
    coefficients: Array, active: NDArray[np.intp], *, norm_bound: float, c: float
) -> Array:
    r"""(p,) weights of a kernel in whose norm f is at most B, if hidden parts are small.

    Selected kernels have weight 1, the others :math:`w_j = \min(1, (c \tau_j / B)^2)`. If
    :math:`\|f\| \le B` with weights of 1, and the hidden parts :math:`b_j` of f satisfy
    :math:`\sum_j \|b_j\|^2 / w_j \le B^2`, sum over the kernels with :math:`w_j < 1`, then the norm
    with weights w is at most :math:`\sqrt 2 B`, and with weights 2w at most B.
    """
    with np.errstate(invalid="ignore"):  # 0 times inf, at selected kernels
        weights = np.minimum(1.0, (c * coefficients / norm_bound) ** 2)
    weights[active] = 1.0
    return weights if (weights == 1).all() or not weights[weights < 1].any() else 2 * weights


LISTED = 30  # unselected kernels in a report


def report(learned: LearnedKernel) -> str:
    """See `LearnedKernel.report`."""
    eta, names = learned.solution.eta, learned.kernel.base.names
    lines = [str(learned)]
    if learned.active.size:
        share = eta / eta.sum()
        width = max(len("kernel"), *(len(names[j]) for j in learned.active))
        lines.append(f"  {'kernel':{width}}  strength  share")
        lines += [
            f"  {names[j]:{width}}  {eta[j]:8.4g}  {share[j]:5.1%}"
            for j in sorted(learned.active, key=lambda j: -eta[j])
        ]
    if learned.exact_fit:
        lines.append(
            "  they fit the observations to 1e-6 of their root mean square, which is used as "
            "noise_std: less cannot be distinguished from rounding; pass noise_std= if you "
            "know it"
        )
    if learned.rule == PIVOTAL and not (learned.active.size or learned.noise_known):
        lines.append(f"  {learned.nothing_found()}")
    lines += _hidden_lines(learned)
    try:
        test = learned.screening()
    except InputError as error:
        return "\n".join([*lines, f"  missing kernels were not tested for: {error}"])
    missed = [names[j] for j in np.setdiff1d(test.kept, learned.active)]
    lines.append(
        f"  a base kernel that contributes a sum of squares above {test.detectable.max():.3g} "
        f"over all {learned.history.total} observations is detected with probability 0.9 "
        "(chi-square test for Gaussian noise and points fixed in advance)"
    )
    if missed:
        lines.append(f"  the same test also finds: {', '.join(missed)}")
        if learned.noise_source == "residuals":
            lines.append(
                "  what these explain counts as noise now; pass noise_std= to separate the two"
            )
    return "\n".join(lines)


def _hidden_lines(learned: LearnedKernel) -> list[str]:
    """How large the unselected kernels could be, and a warning where that is not small."""
    values, names = learned.hidden_values, learned.kernel.base.names
    out = np.flatnonzero(learned.hidden())
    if not out.size:
        return []
    size, sigma = root_mean_square(learned.problem), learned.noise_std
    width = max(len("kernel"), *(len(names[j]) for j in out))
    lines = [
        "  values that a kernel can have without being selected (root mean square; tasks count",
        "  by the square of their points):",
        f"  {'kernel':{width}}  at most  over noise  over y",
    ]
    lines += [
        f"  {names[j]:{width}}  {values[j]:7.3g}  {values[j] / sigma:10.2f}  "
        f"{values[j] / (size or 1.0):6.1%}"
        for j in sorted(out, key=lambda j: -values[j])[:LISTED]
    ]
    if out.size > LISTED:
        lines.append(f"  {out.size - LISTED} more, none larger than these")
    if learned.missed:
        lines.append(
            "  warning: past tasks hold more than the selected kernels and noise (p-value "
            f"{learned.missed_p_value:.2g}). Confidence with learned.kernel, the selection alone, "
            "would be too narrow; ConfidenceSequence(learned) allows for the rest"
        )
    if learned.history.m < FEWEST_TASKS:
        lines.append(
            f"  {learned.history.m} tasks are too few to say which kernels the next one does "
            f"without ({FEWEST_TASKS} could): ConfidenceSequence(learned) keeps all"
        )
    return lines
