"""What was observed, whitened, compressed, and in the eigenbasis of its kernel matrix.

Rows are divided by their noise standard deviation, so that the noise is 1-sub-Gaussian:
``F`` (t, d) features, ``y`` (t,) values, ``K = F F' = U diag(values) U'`` of rank r.
Everything the confidence sets need, for all regularisers alpha at once, are the r eigenvalues, the
targets U'y, the squared norm of what is left of y, and the r directions of the features.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import EXTREME, Array, as_values, one_each, positive
from metakel.errors import InputError, ShapeError
from metakel.kernels.sum import KernelSum

# Directions with a singular value below this share of the largest count as never observed.
NEGLIGIBLE = 1e-8
EPS = float(np.finfo(np.float64).eps)
Eigen = tuple[Array, Array, float]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The kernel matrix and the values in its eigenbasis.

    In feature form ``basis`` (d, r) holds the orthonormal directions V of F = U diag(sqrt(values))
    V'; in kernel form (t, r) U / sqrt(values), so that phi(z) has the coordinates basis'k(X, z).
    """

    kernel: KernelSum
    values: Array  # (r,) eigenvalues of K
    targets: Array  # (r,) U'y
    rest: float  # ||y - U U'y||^2
    basis: Array = field(repr=False)
    # Of the kernel form: (t, d0) where the function was observed, and (t,) 1 / noise_std.
    X: Array | None = field(default=None, repr=False)
    scale: Array | None = field(default=None, repr=False)

    @property
    def eigen(self) -> Eigen:
        """Eigenvalues, squared targets and rest: the part that the evidence needs."""
        return self.values, self.targets**2, self.rest

    def project(self, Z: ArrayLike, Phi: Array | None = None) -> tuple[Array, Array]:
        """Coordinates (r, n) of phi(z) in V, and the squared norm (n,) of the part outside of V.

        ``Phi``, the (n, d) features of ``Z``, may be given where they are known (feature form).
        """
        if self.X is not None and self.scale is not None:
            diag = self.kernel.diag(Z)
            if not len(self.X):
                return np.zeros((0, len(diag))), diag
            coordinates = self.basis.T @ (self.scale[:, None] * self.kernel(self.X, Z))
            inside = np.einsum("rn,rn->n", coordinates, coordinates)
            # Rounded outwards: a confidence set may be too large by an error, never too small.
            return coordinates, np.maximum(diag - inside, 4 * EPS * len(self.basis) * diag)
        rows = (self.kernel.features(Z) if Phi is None else Phi).T  # (d, n)
        coordinates = self.basis.T @ rows
        if self.basis.shape[1] == self.basis.shape[0]:
            return coordinates, np.zeros(rows.shape[1])
        # The norm of the difference, not the difference of the norms: nothing cancels.
        left = rows - self.basis @ coordinates
        return coordinates, np.asarray(np.einsum("dn,dn->n", left, left))

    def mean_coefficients(self, alphas: Array) -> Array:
        """(A, r) ridge solutions in V: the posterior means are coefficients @ coordinates."""
        return np.asarray(np.sqrt(self.values) * self.targets / (self.values + alphas[:, None]))

    def inverse(self, alphas: Array) -> Array:
        """(A, r) eigenvalues of (F'F + alpha)^{-1} in V."""
        return np.asarray(1 / (self.values + alphas[:, None]))

    def misfit(self, alphas: Array) -> Array:
        """(A,) minimum over theta of ||y - F theta||^2 + alpha ||theta||^2."""
        share = alphas[:, None] / (self.values + alphas[:, None])
        return np.asarray(self.rest + share @ self.targets**2)

    def squared_norms(self, alphas: Array) -> Array:
        """(A,) squared norms of the ridge solutions."""
        return np.asarray((self.mean_coefficients(alphas) ** 2).sum(axis=1))

    def log_det(self, alpha: float) -> float:
        """log det(I + K / alpha), the realised information gain (twice the paper's gamma)."""
        return float(np.log1p(self.values / alpha).sum())


# Up to this size the singular values cost less than a millisecond.
FEW = 48


@dataclass(frozen=True, eq=False)
class Batch:
    """Observations of one call."""

    X: Array  # (n, d0)
    y: Array  # (n,)
    noise_std: Array  # (n,)


@dataclass(frozen=True, eq=False)
class ObservationLog:
    """All batches, in the order of the calls."""

    batches: tuple[Batch, ...] = ()
    t: int = 0  # how many observations they hold
    precision: float = 0.0  # sum of 1 / noise_std^2 over the observations

    def with_batch(self, batch: Batch) -> ObservationLog:
        """The log after one more call."""
        precision = self.precision + float((batch.noise_std**-2.0).sum())
        return ObservationLog((*self.batches, batch), self.t + len(batch.y), precision)

    def checked(
        self, kernel: KernelSum, X: ArrayLike, y: ArrayLike, noise_std: float | ArrayLike
    ) -> Batch:
        """The batch, if it fits the kernel and the earlier observations.

        One point may be a number or a vector of d0 numbers, and its value a number.
        """
        with suppress(ValueError):  # ragged rows: the checks that follow have the better message
            if np.ndim(X) == 0 or (np.ndim(X) == 1 and kernel.d0 not in (None, 1)):
                X = np.reshape(X, (1, -1))
            y = np.atleast_1d(y)
        points = kernel.base.points(X)
        if self.batches and points.shape[1] != self.batches[0].X.shape[1]:
            raise ShapeError(
                f"tell: X has {points.shape[1]} inputs per point but earlier points have "
                f"{self.batches[0].X.shape[1]}"
            )
        values = as_values(y, len(points), "tell")
        noise = one_each("tell: noise_std", noise_std, len(points))
        bad = noise[~((noise >= 1 / EXTREME) & (noise <= EXTREME))]
        if len(bad):
            positive("tell: noise_std", float(bad[0]))
        extreme = np.abs(values) > EXTREME * noise
        if extreme.any():
            raise InputError(
                f"tell: y holds {values[extreme][0]:g} where noise_std is {noise[extreme][0]:g}; "
                f"expected values up to {EXTREME:g} times the noise, whose squares a float can "
                "hold (leave a failed run out instead of giving it an extreme value)"
            )
        return Batch(points, values, noise)


def _split(y: Array, vectors: Array) -> tuple[Array, float]:
    """Coordinates of y in orthonormal vectors, and the squared norm of what is left of it."""
    targets = vectors.T @ y
    leftover = y - vectors @ targets
    return targets, float(leftover @ leftover)


@dataclass(frozen=True, eq=False)
class FeatureObservations:
    """Rows [F y] of a feature kernel, folded into at most 2(d + 1) of them.

    The sets depend on the data through ||y - F theta||^2 as a function of theta only, which an
    orthogonal reduction of [F y] to d + 1 rows leaves as it is. So time and memory stop growing
    with t.
    """

    kernel: KernelSum
    rows: Array  # (at most 2(d + 1), d + 1)

    def append(self, batch: Batch) -> FeatureObservations:
        """With the observations of one more batch."""
        new = np.column_stack([self.kernel.features(batch.X), batch.y])
        new /= batch.noise_std[:, None]
        rows, width = self.rows, self.rows.shape[1]
        # Always folded at the same fill, so that how the data was cut into calls does not matter.
        while len(new):
            room = 2 * width - len(rows)
            rows, new = np.concatenate([rows, new[:room]]), new[room:]
            if len(rows) == 2 * width:
                rows = np.asarray(np.linalg.qr(rows, mode="r"))
        return FeatureObservations(self.kernel, rows)

    def spectrum(self) -> Spectrum:
        """From singular values, so that F is not squared."""
        left, singular, right = np.linalg.svd(self.rows[:, :-1], full_matrices=False)
        targets, rest = _split(self.rows[:, -1], left)
        return Spectrum(self.kernel, singular**2, targets, rest, right.T)

    def eigen(self, largest_scale: float) -> Eigen:
        """Eigenvalues, squared targets and rest: the part of `spectrum` the evidence needs.

        Squaring F is several times faster, and is done where rounding cannot reach eigenvalues that
        matter next to 1 / largest_scale^2.
        """
        F, y = self.rows[:, :-1], self.rows[:, -1]
        largest = float(np.einsum("td,td->", F, F))
        if min(F.shape) <= FEW or EPS * largest * largest_scale**2 > 1e-3:
            return self.spectrum().eigen
        if F.shape[0] <= F.shape[1]:
            values, vectors = np.linalg.eigh(F @ F.T)
            return np.maximum(values, 0), (vectors.T @ y) ** 2, 0.0
        values, vectors = np.linalg.eigh(F.T @ F)
        # Smaller eigenvalues than this do not count, and their targets stay in the rest.
        kept = values > 1e-6 / largest_scale**2
        targets, rest = _split(y, F @ (vectors[:, kept] / np.sqrt(values[kept])))
        return values[kept], targets**2, rest


@dataclass(frozen=True, eq=False)
class GramObservations:
    """Points and the whitened kernel matrix of a kernel without features."""

    kernel: KernelSum
    X: Array  # (t, d0)
    y: Array  # (t,)
    scale: Array  # (t,)
    K: Array  # (t, t)

    def append(self, batch: Batch) -> GramObservations:
        X, scale = batch.X, 1 / batch.noise_std
        K = self.kernel(X) * scale[:, None] * scale
        if len(self.X):
            cross = self.kernel(self.X, X) * self.scale[:, None] * scale
            K = np.block([[self.K, cross], [cross.T, K]])
            X = np.concatenate([self.X, X])
        y = np.concatenate([self.y, batch.y * scale])
        return GramObservations(self.kernel, X, y, np.concatenate([self.scale, scale]), K)

    def spectrum(self) -> Spectrum:
        values, vectors = np.linalg.eigh(self.K)
        kept = values > 10 * EPS * len(self.K) * values.max(initial=0)
        values, vectors = values[kept], vectors[:, kept]
        targets, rest = _split(self.y, vectors)
        basis = vectors / np.sqrt(values)
        return Spectrum(self.kernel, values, targets, rest, basis, self.X, self.scale)

    def eigen(self, largest_scale: float) -> Eigen:
        values, vectors = np.linalg.eigh(self.K)
        return np.maximum(values, 0), (vectors.T @ self.y) ** 2, 0.0


Observations = FeatureObservations | GramObservations


def no_observations(kernel: KernelSum) -> Observations:
    """The state before the first observation."""
    if kernel.finite:
        return FeatureObservations(kernel, np.zeros((0, kernel.dim + 1)))
    none, no_points = np.zeros(0), np.zeros((0, kernel.d0 or 1))
    return GramObservations(kernel, no_points, none, none, np.zeros((0, 0)))
