r"""What the prior knows of the shape of a task: its mean m and its kernel (Eqs. 5, 6).

    k(x, z) = sum_j eta_j phi_j(x) phi_j(z) + residual_weight k0(x, z)

phi_j = psi'u_j are principal functions of past tasks, each a base kernel of its own; k0 is the
Matern kernel that they share, which keeps every continuous function possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from metakel._arrays import Array
from metakel.kernels.matern52 import Matern52ARD
from metakel.kernels.nystrom import NystromFeatures


class Shape(Protocol):
    """Mean and kernel of the standardised function of a task."""

    @property
    def noise(self) -> float:
        """Variance of what no function explains, in units of the squared scale."""
        ...

    def prepare(self, Z: Array) -> PointCache:
        """Everything about points that is needed more than once."""
        ...

    def gram(self, left: PointCache, right: PointCache) -> Array:
        """(n, k) values k(x, z)."""
        ...


@dataclass(frozen=True, eq=False)
class PointCache:
    """Points with all that is needed of them more than once.

    ``scaled`` (n, d0) in units of the lengthscales, their squared ``norms`` (n,), principal
    functions ``phi`` (n, J) times root eta, ``mean`` (n,) and ``diag`` (n,).
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


@dataclass(frozen=True, eq=False)
class TaskGP:
    """Mean and kernel learned from past tasks.

    Parameters
    ----------
    basis : NystromFeatures
    mu : (r,) array
        Coefficients of the mean m(x) = psi(x)'mu.
    directions : (r, J) array
        Orthonormal coefficients u_j of the principal functions.
    eta : (J,) array
        Their weights.
    residual_weight : float
        Weight of the shared kernel k0.
    noise_ratio : float
        Noise of this task over the usual noise.
    """

    basis: NystromFeatures
    mu: Array
    directions: Array
    eta: Array
    residual_weight: float
    noise_ratio: float = 1.0

    @property
    def noise(self) -> float:
        """Variance of what no function explains, in units of the squared scale."""
        return self.noise_ratio * self.basis.shared.noise

    def mean(self, X: Array) -> Array:
        """(n,) values m(x)."""
        return np.asarray(self.basis.features(X) @ self.mu)

    def prepare(self, Z: Array) -> PointCache:
        """Everything about points that is needed more than once."""
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

    def with_noise_ratio(self, noise_ratio: float) -> TaskGP:
        """The same mean and kernel for a task with this ratio of the usual noise."""
        return replace(self, noise_ratio=noise_ratio)


@dataclass(frozen=True, eq=False)
class DefaultGP:
    """Zero mean and a hand-set Matern kernel: what there is without a history."""

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
        """Nothing but the points: the mean is 0."""
        n = len(Z)
        signal = np.full(n, self.shared.signal)
        return PointCache(*self.shared.scale(Z), np.empty((n, 0)), np.zeros(n), signal)

    def gram(self, left: PointCache, right: PointCache) -> Array:
        """(n, k) values k(x, z)."""
        return self.shared.of_scaled(left.scaled, left.norms, right.scaled, right.norms)
