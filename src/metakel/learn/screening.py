r"""Tests for base kernels, and how large a kernel can be without being found (around Theorem 4.3).

Theorem 4.3 guarantees that no kernel is missed when :math:`\epsilon \le c_1`. Its constants are
unknown in practice, and useless on real designs. Two statements that can be computed replace it: a
chi-square test (Gaussian noise, points fixed in advance) and a pooled confidence set (sub-Gaussian
noise, any adaptive policy). Both need tasks with n_s >= d; without, there is only
`metakel.theory.screening_energy`.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.grouplasso import Problem, path
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn.problem import OutOfCoreProblem
from metakel.learn.rules import spectrum_of
from metakel.theory import detectable_noncentrality, kappa_from_coherence, screening_threshold


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
        shown = ", ".join(map(str, self.kept[:20])) + (", ..." if len(self.kept) > 20 else "")
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

    _check_levels(noise_std, delta=delta, beta=beta)
    fits = _least_squares(Phi, y, groups)
    m, p = len(Phi), len(groups)
    statistic = np.sum([fit.increase.sum(axis=0) for fit in fits], axis=0) / noise_std**2
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


def adaptive_screening(
    Phi: Sequence[ArrayLike],
    y: Sequence[ArrayLike],
    groups: Sequence[slice],
    *,
    noise_std: float,
    delta: float,
    scale: float,
) -> NDArray[np.intp]:
    r"""Kernels that belong to the true one with high probability, whatever policy chose the points.

    With probability 1 - delta the true coefficients satisfy, at all times together,

    .. math:: \sum_s \|y_s - \Phi_s b_s\|^2 \le R^2 = \sum_s \big[ y_s^T M_s^{-1} y_s
              + \sigma^2 \log\det M_s \big] + 2\sigma^2 \log(1/\delta),
              \qquad M_s = I + \tfrac{c}{\sigma^2} \Phi_s \Phi_s^T

    (mixture of likelihood ratios, Ville's inequality). A kernel without which the residuals
    exceed :math:`R^2` cannot be absent from the true one.

    Parameters
    ----------
    scale : float
        c, the variance that coefficients are expected to have; any number fixed in advance.
    """
    _check_levels(noise_std, delta=delta)
    noise_var = noise_std**2
    fits = _least_squares(Phi, y, groups)
    radius = 2 * noise_var * np.log(1 / delta)
    without = np.zeros(len(groups))
    for fit in fits:
        M = np.eye(fit.R.shape[1]) + scale / noise_var * fit.R @ fit.R.transpose(0, 2, 1)
        explained = np.linalg.solve(M, fit.rotated[:, :, None])[:, :, 0]
        radius += fit.rss.sum() + (fit.rotated * explained).sum()
        radius += noise_var * np.linalg.slogdet(M)[1].sum()
        without += fit.rss.sum() + fit.increase.sum(axis=0)
    return np.flatnonzero(without > radius)


def kappa_from_eigenvalue(Phi: Sequence[ArrayLike]) -> float:
    r"""A kappa that satisfies Assumption 4.2 for every sparsity.

    :math:`\kappa^2 = \lambda_{\min}(\Psi) = \min_s \lambda_{\min}(\Phi_s^T\Phi_s)/N`; 0 as soon
    as one task has fewer points than features. The largest of the three bounds when it is not 0.
    """
    arrays = [np.asarray(F, np.float64) for F in Phi]
    total = sum(len(F) for F in arrays)
    if any(len(F) < F.shape[1] for F in arrays):
        return 0.0
    return float(min(np.linalg.svd(F, compute_uv=False)[-1] for F in arrays) / np.sqrt(total))


def kappa_from_comparison(Phi: Sequence[ArrayLike], groups: Sequence[slice]) -> float:
    r"""A kappa for Assumption 4.2 from the p x p comparison matrix M of `comparison_matrix`.

    :math:`b^T \Psi b \ge v^T M v` with :math:`v_j = \|b^{(j)}\|`, so
    :math:`\kappa^2 = \lambda_{\min}(M)`; 0 when that is negative.
    """
    smallest = np.linalg.eigvalsh(comparison_matrix(Phi, groups))[0]
    return float(np.sqrt(max(0.0, smallest)))


def kappa_from_group_coherence(
    Phi: Sequence[ArrayLike], groups: Sequence[slice], *, sparsity: int
) -> float:
    """A kappa for Assumption 4.2 from coherence: weaker than the others, but it uses sparsity."""
    M = comparison_matrix(Phi, groups)
    off_diagonal = -(M - np.diag(np.diag(M)))
    return kappa_from_coherence(
        smallest=float(np.diag(M).min()), coherence=float(off_diagonal.max()), sparsity=sparsity
    )


def comparison_matrix(Phi: Sequence[ArrayLike], groups: Sequence[slice]) -> Array:
    r"""(p, p) matrix that bounds :math:`\Psi` of Appendix B from below, group by group.

    :math:`M_{jj} = \min_s \lambda_{\min}(\Phi_s^{(j)T}\Phi_s^{(j)})/N` and
    :math:`M_{jk} = -\max_s \|\Phi_s^{(j)T}\Phi_s^{(k)}\|_2/N`.
    """
    arrays = [np.asarray(F, np.float64) for F in Phi]
    gram = np.stack([F.T @ F for F in arrays])  # (m, d, d)
    M = np.empty((len(groups), len(groups)))
    for j, rows in enumerate(groups):
        M[j, j] = max(0.0, np.linalg.eigvalsh(gram[:, rows, rows])[:, 0].min())
        for k in range(j):
            block = np.linalg.norm(gram[:, rows, groups[k]], ord=2, axis=(1, 2))
            M[j, k] = M[k, j] = -block.max()
    return M / sum(len(F) for F in arrays)


@dataclass(frozen=True, eq=False)
class _Fits:
    """Least-squares fits of k tasks of one size, with Phi = Q R."""

    R: Array  # (k, d, d)
    rotated: Array  # (k, d): Q'y
    rss: Array  # (k,)
    increase: Array  # (k, p): RSS without group j, minus RSS


def _least_squares(
    Phi: Sequence[ArrayLike], y: Sequence[ArrayLike], groups: Sequence[slice]
) -> list[_Fits]:
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
    return [
        _fit(np.stack([F for F, _ in tasks]), np.stack([v for _, v in tasks]), groups)
        for tasks in by_size.values()
    ]


def _fit(features: Array, target: Array, groups: Sequence[slice]) -> _Fits:
    Q, R = np.linalg.qr(features)
    size = np.abs(np.diagonal(R, axis1=1, axis2=2))
    if (size.min(axis=1) <= 1e-12 * size.max(axis=1)).any():
        raise InputError(
            "the features of some task are linearly dependent on its points; "
            "the test needs full column rank in every task"
        )
    rotated = (Q.transpose(0, 2, 1) @ target[:, :, None])[:, :, 0]
    residual = target - (Q @ rotated[:, :, None])[:, :, 0]
    return _Fits(R, rotated, (residual**2).sum(axis=1), _increases(R, rotated, groups))


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


def _check_levels(noise_std: float, **levels: float) -> None:
    if not noise_std > 0:
        raise InputError(f"noise_std is {noise_std}; expected a number > 0")
    for name, level in levels.items():
        if not 0 < level < 1:
            raise InputError(f"{name} is {level}; expected a probability between 0 and 1")


def mean_eigenvalues(problem: Problem | OutOfCoreProblem) -> Array:
    """(p,) V_j: mean eigenvalues of the Gram matrices of a task, with its weight in the loss."""
    if isinstance(problem, Problem):
        # The rules for lambda need the weight twice, a score needs it once.
        weights = problem.task_weights[:, None]
        return np.array([(v / weights).mean() for v in problem.spectra()])
    spectrum = spectrum_of(problem)
    return np.asarray(spectrum.trace / spectrum.counts / problem.task_weights.max())


def hidden_sizes(
    problem: Problem | OutOfCoreProblem, lam: Array, active: NDArray[np.intp]
) -> tuple[Array, Array]:
    """How large each base kernel can be without having been selected; 0 for selected kernels.

    Returns
    -------
    coefficients : (p,) array
        epsilon_j, root mean square over tasks of the norm of its part of a function; inf for a
        kernel that is 0 at all points.
    values : (p,) array
        Root mean square of that part's values over all points.
    """
    V = mean_eigenvalues(problem)
    seen = np.where(V > 0, V, 1.0)
    coefficients = np.asarray(lam) * problem.total / (2 * seen * sqrt(problem.m))
    coefficients[active] = 0.0
    values = np.where(V > 0, coefficients * np.sqrt(seen * problem.m / problem.total), 0.0)
    coefficients[V == 0] = np.inf
    return coefficients, values


def soft_weights(
    coefficients: Array, active: NDArray[np.intp], *, norm_bound: float, c: float
) -> Array:
    r"""(p,) weights of a kernel in whose norm f is at most B, if hidden parts are small.

    Selected kernels have weight 1, the others :math:`w_j = \min(1, (c \epsilon_j / B)^2)`. If
    :math:`\|f\| \le B` with weights of 1, and the hidden parts :math:`b_j` of f satisfy
    :math:`\sum_j \|b_j\|^2 / w_j \le B^2`, sum over the kernels with :math:`w_j < 1`, then the norm
    with weights w is at most :math:`\sqrt 2 B`, and with weights 2w at most B.
    """
    with np.errstate(invalid="ignore"):  # 0 times inf, at selected kernels
        weights = np.minimum(1.0, (c * coefficients / norm_bound) ** 2)
    weights[active] = 1.0
    return weights if (weights == 1).all() or not weights[weights < 1].any() else 2 * weights


STEPS = 16  # lambdas along the path
SMALLEST = 1e-3  # of the lambda that was used
TOLERANCE = 1e-5  # of the duality gap; which groups enter needs no more


def ladder_of(
    problem: Problem,
    base: KernelDictionary,
    lam: Array,
    selected: NDArray[np.intp],
    rungs: int,
) -> tuple[KernelSum, ...]:
    """Kernels of weight 1 that contain each other, the last with all base kernels.

    A rung holds all groups that are active at some lambda up to its own, between ``lam`` (p,) and
    a thousandth of it. Where there are more different sets than rungs, those are taken that grow
    by about the same factor.
    """
    scales = np.geomspace(1.0, SMALLEST, STEPS)
    found = path(problem, scales, weights=np.where(lam > 0, lam, lam.max()), tol=TOLERANCE)
    entered = np.maximum.accumulate(found.eta > 0, axis=0) | np.isin(np.arange(base.p), selected)
    sizes = entered.sum(axis=1)
    first = max(len(selected), 1)
    wanted = first * (base.p / first) ** (np.arange(1, rungs + 1) / rungs)
    chosen = [np.flatnonzero(sizes <= size)[-1] for size in wanted if (sizes <= size).any()]
    between = {int(sizes[i]): entered[i] for i in chosen if len(selected) < sizes[i] < base.p}
    active = [np.flatnonzero(row) for _, row in sorted(between.items())][: rungs - 1]
    return tuple(KernelSum.uniform(base, active=rung) for rung in [*active, np.arange(base.p)])
