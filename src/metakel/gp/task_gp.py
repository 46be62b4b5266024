r"""Mean and kernel of the standardised function of a task (Eqs. 5, 6).

    k(x, z) = sum_j eta_j phi_j(x) phi_j(z) + residual_weight k0(x, z)

phi_j = psi'u_j are eigenfunctions of past tasks, each a base kernel of its own. k0 is the
Matern-5/2 kernel that the tasks share; it keeps every continuous function possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from metakel._arrays import Array
from metakel.kernels.matern52 import Matern52ARD
from metakel.kernels.nystrom import NystromFeatures


@dataclass(frozen=True, eq=False)
class PointCache:
    """Points with everything that is needed of them more than once.

    ``scaled`` (n, d0) in units of the lengthscales, their squared ``norms`` (n,), eigenfunctions
    ``phi`` (n, J) times root eta, ``mean`` (n,) and ``diag`` (n,).
    """

    scaled: Array
    norms: Array
    phi: Array
    mean: Array
    diag: Array

    def __getitem__(self, i: int) -> PointCache:
        one = slice(i, i + 1)
        return PointCache(
            self.scaled[one], self.norms[one], self.phi[one], self.mean[one], self.diag[one]
        )

    @staticmethod
    def joined(*caches: PointCache) -> PointCache:
        """All points of several."""
        parts = ("scaled", "norms", "phi", "mean", "diag")
        return PointCache(*(np.concatenate([getattr(c, n) for c in caches]) for n in parts))


@dataclass(frozen=True, eq=False)
class PointDerivatives:
    """Derivatives at n points: ``phi`` (n, J, d0), ``mean`` (n, d0) and ``diag`` (n, d0)."""

    phi: Array
    mean: Array
    diag: Array


class TaskProcess(Protocol):
    """Mean and kernel of the standardised function of a task."""

    @property
    def noise(self) -> float:
        """Variance of what no function explains, in units of the squared scale."""
        ...

    def prepare(self, Z: Array) -> PointCache:
        """Everything about points (n, d0) that is needed more than once."""
        ...

    def gram(self, left: PointCache, right: PointCache) -> Array:
        """(n, k) values k(x, z)."""
        ...

    def derivatives(self, points: PointCache, Z: Array) -> PointDerivatives:
        """Of mean, eigenfunctions and k(z, z) at points (n, d0) and their cache."""
        ...

    def gram_derivative(
        self, left: PointCache, right: PointCache, slopes: PointDerivatives
    ) -> Array:
        """(n, k, d0) derivatives of k(x, z) in z."""
        ...


@dataclass(frozen=True, eq=False)
class TaskGP:
    """Mean and kernel learned from past tasks.

    Parameters
    ----------
    basis : NystromFeatures
    mu : (r,) array
        Coefficients of the mean m(x) = psi(x)'mu.
    directions : (r, J) array
        Orthonormal coefficients u_j of the eigenfunctions.
    eta : (J,) array
        Their weights.
    residual_weight : float
        Weight of the shared kernel.
    noise_ratio : float
        The noise of this task over the noise that tasks usually have.
    """

    basis: NystromFeatures
    mu: Array
    directions: Array
    eta: Array
    residual_weight: float
    noise_ratio: float = 1.0

    def __post_init__(self) -> None:
        # Sums are rounded by the order in memory; one that was stored and read has this order.
        object.__setattr__(self, "directions", np.ascontiguousarray(self.directions))

    @property
    def noise(self) -> float:
        """Variance of what no function explains, in units of the squared scale."""
        return self.noise_ratio * self.basis.shared.noise

    def mean(self, X: Array) -> Array:
        """(n,) values m(x)."""
        return np.asarray(self.basis.features(X) @ self.mu)

    def prepare(self, Z: Array) -> PointCache:
        """Everything about points (n, d0) that is needed more than once."""
        psi = self.basis.features(Z)
        phi = (psi @ self.directions) * np.sqrt(self.eta)
        diag = np.einsum("nj,nj->n", phi, phi) + self.residual_weight * self.basis.shared.signal
        return PointCache(*self.basis.shared.scale(Z), phi, psi @ self.mu, diag)

    def gram(self, left: PointCache, right: PointCache) -> Array:
        """(n, k) values k(x, z)."""
        shared = self.basis.shared
        K = shared.of_scaled(left.scaled, left.norms, right.scaled, right.norms)
        K *= self.residual_weight
        K += left.phi @ right.phi.T
        return K

    def derivatives(self, points: PointCache, Z: Array) -> PointDerivatives:
        """Of mean, eigenfunctions and k(z, z) at points (n, d0) and their cache."""
        pull = self.basis.inverse.T @ np.column_stack(
            [self.mu, self.directions * np.sqrt(self.eta)]
        )
        landmarks = self.basis.landmarks / self.basis.shared.lengthscales
        slopes = self.basis.shared.slopes_of_scaled(landmarks, points.scaled)  # (r, n, d0)
        both = np.tensordot(pull.T, slopes, axes=1)  # (1 + J, n, d0)
        phi = both[1:].transpose(1, 0, 2)
        return PointDerivatives(phi, both[0], 2 * np.einsum("nj,njd->nd", points.phi, phi))

    def gram_derivative(
        self, left: PointCache, right: PointCache, slopes: PointDerivatives
    ) -> Array:
        """(n, k, d0) derivatives of k(x, z) in z."""
        dK = self.basis.shared.slopes_of_scaled(left.scaled, right.scaled)
        dK *= self.residual_weight
        if left.phi.shape[1]:
            dK += np.einsum("nj,kjd->nkd", left.phi, slopes.phi, optimize=True)
        return dK

    def with_noise_ratio(self, noise_ratio: float) -> TaskGP:
        """The same mean and kernel for a task with this share of the usual noise."""
        return replace(self, noise_ratio=noise_ratio)


@dataclass(frozen=True, eq=False)
class DefaultGP:
    """Zero mean and a Matern kernel set by hand: what there is without a history."""

    shared: Matern52ARD

    @classmethod
    def typical(cls, d0: int) -> DefaultGP:
        """Lengthscale half of sqrt(d0), variance 1."""
        return cls(Matern52ARD.typical(d0))

    @property
    def noise(self) -> float:
        """Variance of the noise, in units of the squared scale."""
        return self.shared.noise

    def prepare(self, Z: Array) -> PointCache:
        """Only the points: the mean is 0."""
        n = len(Z)
        signal = np.full(n, self.shared.signal)
        return PointCache(*self.shared.scale(Z), np.empty((n, 0)), np.zeros(n), signal)

    def gram(self, left: PointCache, right: PointCache) -> Array:
        """(n, k) values k(x, z)."""
        return self.shared.of_scaled(left.scaled, left.norms, right.scaled, right.norms)

    def derivatives(self, points: PointCache, Z: Array) -> PointDerivatives:
        """All 0: mean and k(z, z) are constant."""
        return PointDerivatives(
            np.empty((len(Z), 0, Z.shape[1])), np.zeros(Z.shape), np.zeros(Z.shape)
        )

    def gram_derivative(
        self, left: PointCache, right: PointCache, slopes: PointDerivatives
    ) -> Array:
        """(n, k, d0) derivatives of k(x, z) in z."""
        return self.shared.slopes_of_scaled(left.scaled, right.scaled)
