"""Lambda rules in closed form (Lemma B.1, Theorem 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.learn.rules.spectrum import NoiseProblem, chernoff_energy, nonzero, spectrum_of
from metakel.theory import lambda_min_paper

_UNIT_GRID = np.linspace(0, 1, 33)


def self_normalised(
    problem: NoiseProblem,
    *,
    noise_std: float,
    delta: float,
    sup: ArrayLike | None = None,
    planned_sizes: ArrayLike | None = None,
) -> Array:
    r"""Valid under any adaptive policy: points may depend on everything seen before (Lemma B.1).

    .. math:: \lambda_j = \frac{4\sigma}{N} \sqrt{ (\max v + \rho_j)
              \Big( \sum \log(1 + v / \rho_j) + 2 \log \tfrac{p}{\delta} \Big) }

    The bound of Abbasi-Yadkori et al. (2011) on the self-normalised noise of group j, with
    :math:`\rho_j` fixed by task sizes, dimensions and sup alone: the one thing that would break
    it is a :math:`\rho_j` that looks at the points.

    Parameters
    ----------
    planned_sizes : number or (m,) array, optional
        How many points each task may reach at most. Only needed when the policy also decided
        when to stop, because then the sizes themselves were chosen by the data.
    """
    v = spectrum_of(problem)
    log_term = 2 * log(problem.p / delta)
    planned = problem.sizes if planned_sizes is None else planned_sizes
    sizes = np.broadcast_to(np.asarray(planned, float), (problem.m,))
    planned_energy = problem.task_weights**2 * sizes
    rho = _planned_rho(planned_energy, sizes, problem.dims, log_term) * _as_sup(sup, problem.p)
    energy = (v.top + rho) * (v.log_det(rho) + log_term)
    return 4 * noise_std / problem.total * np.sqrt(energy)


def hkz(problem: NoiseProblem, *, noise_std: float, delta: float) -> Array:
    r"""For points fixed in advance, by Hsu, Kakade and Zhang (2012); repairs Lemma B.1.

    .. math:: \lambda_j = \frac{4\sigma}{\sqrt N} \sqrt{ \operatorname{tr} \Psi_j
              + 2 \|\Psi_j\|_F \sqrt x + 2 \|\Psi_j\|_2 x }, \qquad x = \log(p/\delta)
    """
    v = spectrum_of(problem)
    x = log(problem.p / delta)
    energy = v.trace + 2 * v.frobenius * sqrt(x) + 2 * v.top * x
    return nonzero(4 * noise_std / problem.total * np.sqrt(energy))


def chernoff(problem: NoiseProblem, *, noise_std: float, delta: float) -> Array:
    r"""For points fixed in advance: the sharpest bound that sub-Gaussian noise allows here.

    .. math:: \lambda_j = \frac{4\sigma}{N} \sqrt{q_j}, \qquad
              q_j = \min_t \tfrac1t \Big( \log\tfrac p\delta - \tfrac12 \sum \log(1 - 2tv) \Big)

    It is the inequality from which "hkz" follows by bounding the logarithm, hence never larger
    (Lemma B.1).
    """
    energy = chernoff_energy(spectrum_of(problem), log(problem.p / delta))
    return nonzero(4 * noise_std / problem.total * np.sqrt(energy))


def dimension_free(
    problem: NoiseProblem, *, noise_std: float, delta: float, sup: ArrayLike | None = None
) -> Array:
    r"""Lemma B.1 without d_max: "hkz" where only the sup of each kernel is known.

    For tasks of one size and :math:`k_j \le 1` it reads

    .. math:: \lambda = \frac{4\sigma}{\sqrt{mn}} \sqrt{1 + 2\sqrt{x/m} + 2x/m},
              \qquad x = \log(p/\delta),

    and scales with the square root of sup. Data that contradict sup are refused.
    """
    top = _as_sup(sup, problem.p)
    energy = problem.task_weights**2 * problem.sizes  # (m,) trace of each task when k_j = 1
    trace = spectrum_of(problem).trace
    for j in np.flatnonzero(trace > top * energy.sum() * (1 + 1e-9)):
        raise InputError(
            f"lambda rule 'dimension-free': kernel {j} has mean k(x, x) = "
            f"{trace[j] / energy.sum():.4g} on the data but sup = {top[j]:.4g}; "
            "pass the sup of each kernel, or use 'hkz', which reads it off the data"
        )
    x = log(problem.p / delta)
    noise = energy.sum() + 2 * sqrt(energy.sum() * energy.max() * x) + 2 * energy.max() * x
    lam: Array = 4 * noise_std / problem.total * np.sqrt(top * noise)
    return lam


def paper(problem: NoiseProblem, *, noise_std: float, delta: float) -> Array:
    """Theorem 4.3 as printed (k_j <= 1): the same number for all groups.

    Kernels without a finite feature map count with the rank they can have on the data.
    """
    largest = int(problem.sizes.max())
    d_max = max(largest if d is None else d for d in problem.dims)
    n = problem.total / problem.m
    lam = lambda_min_paper(
        noise_std=noise_std, m=problem.m, n=n, p=problem.p, d_max=d_max, delta=delta
    )
    return np.full(problem.p, lam)


def _planned_rho(energy: Array, sizes: Array, dims: Sequence[int | None], log_term: float) -> Array:
    """(p,) minimisers over rho of the worst case of `self_normalised` at sup = 1.

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
    low, high = -14.0, 14.0  # log u; each round keeps a sixteenth of it
    for _ in range(4):
        grid = low + (high - low) * _UNIT_GRID
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
