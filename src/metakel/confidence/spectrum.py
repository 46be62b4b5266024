"""Whitened observations in the eigenbasis of their kernel matrix.

Rows are divided by their noise standard deviation, so that the noise is 1-sub-Gaussian:
``F`` (t, d) features, ``y`` (t,) values, ``K = F F' = U diag(values) U'`` of rank r.
Everything the confidence sets need, for all regularisers alpha at once, are the r eigenvalues, the
targets U'y, the squared norm of what is left of y, and the r directions of the features.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel.kernels.sum import KernelSum

# Directions with a singular value below this share of the largest count as never observed.
NEGLIGIBLE = 1e-8
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Parameters
    ----------
    kernel : KernelSum
    values : (r,) array
        Eigenvalues of K.
    targets : (r,) array
        U'y.
    rest : float
        ||y - U U'y||^2.
    basis : array
        Feature form: (d, r), the orthonormal directions V of F = U diag(sqrt(values)) V'.
        Kernel form: (t, r), U / sqrt(values); the coordinates of phi(z) in V are basis'k(X, z).
    X : (t, d0) array or None
        Kernel form: where the function was observed. None in feature form.
    scale : (t,) array or None
        Kernel form: 1 / noise_std of every observation.
    """

    kernel: KernelSum
    values: Array
    targets: Array
    rest: float
    basis: Array = field(repr=False)
    X: Array | None = field(default=None, repr=False)
    scale: Array | None = field(default=None, repr=False)

    def project(self, Z: ArrayLike, Phi: Array | None = None) -> tuple[Array, Array]:
        """Coordinates (r, n) of phi(z) in V, and the squared norm (n,) of the part outside of V.

        ``Phi``, the (n, d) features of ``Z``, may be given where they are known (feature form).
        """
        if self.X is not None and self.scale is not None:
            diag = self.kernel.diag(Z)
            if not len(self.X):
                return np.zeros((0, len(diag))), diag
            coordinates = self.basis.T @ (self.scale[:, None] * self.kernel(self.X, Z))
            return coordinates, self._outside(diag, coordinates)
        rows = (self.kernel.features(Z) if Phi is None else Phi).T  # (d, n)
        coordinates = self.basis.T @ rows
        if self.basis.shape[1] == self.basis.shape[0]:
            return coordinates, np.zeros(rows.shape[1])
        _, left = self.split(rows, coordinates)
        return coordinates, np.asarray(np.einsum("dn,dn->n", left, left))

    def split(self, rows: Array, coordinates: Array | None = None) -> tuple[Array, Array]:
        """Coordinates (r, n) of features (d, n) in V, and what is left of them outside of V (d, n).

        Its norm is that of the difference, not the difference of the norms: nothing cancels.
        """
        if coordinates is None:
            coordinates = self.basis.T @ rows
        return coordinates, rows - self.basis @ coordinates

    def _outside(self, diag: Array, coordinates: Array) -> Array:
        inside = np.einsum("rn,rn->n", coordinates, coordinates)
        # Rounded outwards: a confidence set may be too large by an error, never too small.
        return np.asarray(np.maximum(diag - inside, 4 * EPS * len(self.basis) * diag))

    def mean_coefficients(self, alphas: Array) -> Array:
        """(A, r) ridge solutions in V: the posterior means are coefficients @ coordinates."""
        return np.asarray(np.sqrt(self.values) * self.targets / self._shifted(alphas))

    def inverse(self, alphas: Array) -> Array:
        """(A, r) eigenvalues of (F'F + alpha)^{-1} in V."""
        return np.asarray(1 / self._shifted(alphas))

    def misfit(self, alphas: Array) -> Array:
        """(A,) minimum over theta of ||y - F theta||^2 + alpha ||theta||^2."""
        share = alphas[:, None] / self._shifted(alphas)
        return np.asarray(self.rest + share @ self.targets**2)

    def squared_norms(self, alphas: Array) -> Array:
        """(A,) squared norms of the ridge solutions."""
        return np.asarray((self.mean_coefficients(alphas) ** 2).sum(axis=1))

    def log_det(self, alpha: float) -> float:
        """log det(I + K / alpha), the realised information gain (twice the paper's gamma)."""
        return float(np.log1p(self.values / alpha).sum())

    def _shifted(self, alphas: Array) -> Array:
        return np.asarray(self.values + alphas[:, None])


def feature_spectrum(kernel: KernelSum, F: Array, y: Array) -> Spectrum:
    """Spectrum of whitened features (t, d) and values (t,); F is not squared."""
    left, singular, right = np.linalg.svd(F, full_matrices=False)
    targets = left.T @ y
    leftover = y - left @ targets
    return Spectrum(kernel, singular**2, targets, float(leftover @ leftover), right.T)


def gram_spectrum(kernel: KernelSum, X: Array, scale: Array, K: Array, y: Array) -> Spectrum:
    """Spectrum of a whitened kernel matrix (t, t) and values (t,)."""
    values, vectors = np.linalg.eigh(K)
    kept = values > 10 * EPS * len(K) * values.max(initial=0)
    values, vectors = values[kept], vectors[:, kept]
    targets = vectors.T @ y
    leftover = y - vectors @ targets
    rest = float(leftover @ leftover)
    return Spectrum(kernel, values, targets, rest, vectors / np.sqrt(values), X, scale)
