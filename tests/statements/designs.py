"""What Assumption 4.2 and an adaptive policy need: certified kappas, and a test by Ville.

The library asks for none of it, see docs/reading-the-paper.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np


def adaptive_screening(
    Phi: Sequence[np.ndarray],
    y: Sequence[np.ndarray],
    groups: Sequence[slice],
    *,
    noise_std: float,
    delta: float,
    scale: float,
) -> np.ndarray:
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
    noise_var, total = noise_std**2, np.zeros(len(groups))
    radius = 2 * noise_var * np.log(1 / delta)
    for features, values in zip(Phi, y, strict=True):
        M = np.eye(len(values)) + scale / noise_var * features @ features.T
        radius += values @ np.linalg.solve(M, values) + noise_var * np.linalg.slogdet(M)[1]
        total += [rss(np.delete(features, np.r_[group], axis=1), values) for group in groups]
    return np.flatnonzero(total > radius)


def rss(F: np.ndarray, y: np.ndarray) -> float:
    """Residual sum of squares of a least-squares fit."""
    residual = y - F @ np.linalg.lstsq(F, y, rcond=None)[0]
    return float(residual @ residual)


def kappa_from_eigenvalue(Phi: Sequence[np.ndarray]) -> float:
    r"""A kappa that satisfies Assumption 4.2 for every sparsity.

    :math:`\kappa^2 = \lambda_{\min}(\Psi) = \min_s \lambda_{\min}(\Phi_s^T\Phi_s)/N`; 0 as soon
    as one task has fewer points than features. The largest of the three bounds when it is not 0.
    """
    arrays = list(Phi)
    total = sum(len(F) for F in arrays)
    if any(len(F) < F.shape[1] for F in arrays):
        return 0.0
    return float(min(np.linalg.svd(F, compute_uv=False)[-1] for F in arrays) / np.sqrt(total))


def kappa_from_comparison(Phi: Sequence[np.ndarray], groups: Sequence[slice]) -> float:
    r"""A kappa for Assumption 4.2 from the p x p comparison matrix M of `comparison_matrix`.

    :math:`b^T \Psi b \ge v^T M v` with :math:`v_j = \|b^{(j)}\|`, so
    :math:`\kappa^2 = \lambda_{\min}(M)`; 0 when that is negative.
    """
    smallest = np.linalg.eigvalsh(comparison_matrix(Phi, groups))[0]
    return float(np.sqrt(max(0.0, smallest)))


def kappa_from_group_coherence(
    Phi: Sequence[np.ndarray], groups: Sequence[slice], *, sparsity: int
) -> float:
    """A kappa for Assumption 4.2 from coherence: weaker than the others, but it uses sparsity."""
    M = comparison_matrix(Phi, groups)
    off_diagonal = -(M - np.diag(np.diag(M)))
    return kappa_from_coherence(
        smallest=float(np.diag(M).min()), coherence=float(off_diagonal.max()), sparsity=sparsity
    )


def comparison_matrix(Phi: Sequence[np.ndarray], groups: Sequence[slice]) -> np.ndarray:
    r"""(p, p) matrix that bounds :math:`\Psi` of Appendix B from below, group by group.

    :math:`M_{jj} = \min_s \lambda_{\min}(\Phi_s^{(j)T}\Phi_s^{(j)})/N` and
    :math:`M_{jk} = -\max_s \|\Phi_s^{(j)T}\Phi_s^{(k)}\|_2/N`.
    """
    arrays = list(Phi)
    gram = np.stack([F.T @ F for F in arrays])  # (m, d, d)
    M = np.empty((len(groups), len(groups)))
    for j, rows in enumerate(groups):
        M[j, j] = max(0.0, np.linalg.eigvalsh(gram[:, rows, rows])[:, 0].min())
        for k in range(j):
            block = np.linalg.norm(gram[:, rows, groups[k]], ord=2, axis=(1, 2))
            M[j, k] = M[k, j] = -block.max()
    return M / sum(len(F) for F in arrays)


def kappa_from_coherence(
    *, smallest: float, coherence: float, sparsity: int, lam_ratio: float = 1.0
) -> float:
    r"""A kappa that satisfies Assumption 4.2: :math:`\kappa^2 \ge a + \mu - (1 + 3r)^2 s \mu`.

    ``smallest`` (a) is the least eigenvalue of any group block of :math:`\Psi`, ``coherence``
    (mu) the largest spectral norm of any block off the diagonal. With one lambda per group,
    ``lam_ratio`` (r) is the largest over the smallest of them: the weighted cone
    :math:`\sum_{j \notin J} \lambda_j \|\Delta_j\| \le 3 \sum_J \lambda_j \|\Delta_j\|` lies in
    :math:`\sum_{j \notin J} \|\Delta_j\| \le 3r \sum_J \|\Delta_j\|`. 0 if this bound is negative.
    """
    spread = (1 + 3 * lam_ratio) ** 2 * sparsity * coherence
    return sqrt(max(0.0, smallest + coherence - spread))
