r"""Mean and second moments of past tasks in the features of the shared kernel.

Task s has standardised values z_s = F_s w_s + noise with F_s = psi(X_s) (n_s, r), and
coefficients w_s = mu + d_s with mu and all d_s a priori N(0, I). The posterior mean of mu given
all tasks together is the common shape; one step of expectation-maximisation for the second moment
of d_s says where tasks differ. More steps overfit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array


@dataclass(frozen=True, eq=False)
class Coefficients:
    """What each task says about its coefficients: ridge estimate and what it leaves open.

    Parameters
    ----------
    w : (m, r) array
    resolved : sequence of (rank, r) arrays
        A_s with A_s'A_s = I - C_s, C_s the posterior covariance.
    """

    w: Array
    resolved: Sequence[Array]


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean ``mu`` (r,) and second moment ``S`` (r, r) about it."""

    mu: Array
    S: Array


def coefficients(F: Sequence[Array], z: Sequence[Array], noise: float) -> Coefficients:
    """Ridge estimates w_s = F_s'(F_s F_s' + noise I)^{-1} z_s and the directions they resolve."""
    w = np.empty((len(F), F[0].shape[1]))
    resolved = []
    for s, (F_s, z_s) in enumerate(zip(F, z, strict=True)):
        n, r = F_s.shape
        if n <= r:
            G = F_s @ F_s.T
            G.flat[:: n + 1] += noise
            half = np.linalg.solve(np.linalg.cholesky(G), np.column_stack([F_s, z_s]))
            A = half[:, :-1]
            w[s] = A.T @ half[:, -1]
        else:  # I - C = I - noise (F'F + noise I)^{-1}, through the eigenvectors of F'F
            values, U = np.linalg.eigh(F_s.T @ F_s)
            values = np.maximum(values, 0)
            A = np.sqrt(values / (values + noise))[:, None] * U.T
            w[s] = U @ ((U.T @ (F_s.T @ z_s)) / (values + noise))
        resolved.append(A)
    return Coefficients(w, resolved)


def moments(found: Coefficients, tasks: Sequence[int], *, mean: bool = True) -> Moments:
    """Common shape of these tasks, and the mean over them of E[d_s d_s']; mu is 0 without mean.

    The average of the w_s would draw mu to 0 wherever single tasks have few points, however many
    tasks there are; solving for it pools what they resolve, A_s'A_s each.
    """
    w = found.w[list(tasks)]
    A = np.concatenate([found.resolved[s] for s in tasks])
    resolved = A.T @ A
    mu, off = np.zeros(w.shape[1]), w
    if mean:
        precision = resolved.copy()
        precision.flat[:: len(mu) + 1] += 1.0
        mu = np.linalg.solve(precision, w.sum(axis=0))
        off = w - np.array([found.resolved[s].T @ (found.resolved[s] @ mu) for s in tasks])
    S = (off.T @ off - resolved) / len(w)
    S.flat[:: len(S) + 1] += 1.0
    return Moments(mu, S)
