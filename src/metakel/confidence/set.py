r"""What was observed, and confidence sets that follow: bounds of f(x) at any points.

Rows are divided by their noise standard deviation, so that the noise is 1-sub-Gaussian:
``F`` (t, d) features, ``y`` (t,) values, ``K = F F' = U diag(values) U'`` of rank r.
Everything the sets need, for all regularisers alpha at once, are the r eigenvalues, the targets
U'y, the squared norm of what is left of y, and the r directions of the features.

The set of "dmm" (the replacement of Theorem 5.1) holds the functions that fit the data and have a
small norm:

.. math:: \{\theta : \|y - F\theta\|^2 \le R^2,\ \|\theta\|^2 \le B^2\}

Adding alpha times the second constraint to the first gives, for every alpha > 0, an ellipsoid
around the ridge solution that contains the set:

.. math:: |f(x) - \mu_\alpha(x)|^2 \le \phi(x)'(F'F + \alpha)^{-1}\phi(x)\, \tilde R_\alpha^2,
          \quad \tilde R_\alpha^2 = R^2 + \alpha B^2 - \min_\theta(\|y - F\theta\|^2 +
          \alpha\|\theta\|^2).

The best upper bound over alpha is the maximum of f(x) over the set (strong duality).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import EXTREME, Array, as_values, one_each, positive
from metakel.errors import InputError, ShapeError
from metakel.kernels.sum import KernelSum

ROUNDING = 1e-9
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


GRID = 40
REFINEMENTS = 3
BLOCK = 512


@dataclass(frozen=True, eq=False)
class ConfidenceSet:
    """Functions that agree with the data up to one time; frozen.

    Every regulariser alpha gives an interval; the set takes the best of them at every point.

    Parameters
    ----------
    spectrum : Spectrum
        The whitened observations.
    alphas : (A,) array
        Regularisers, increasing; (0,) alone stands for no norm bound at all.
    squared_radii : (A,) array
        R_alpha^2, not negative.
    norm_bound : float
        Bound of the norm of f in the kernel, which caps the interval at B sqrt(k(x, x)); inf
        where there is none, or where a closed form does not use it so.
    squared_radius : float, optional
        R^2 where alpha may be refined between the values of the grid.
    """

    spectrum: Spectrum = field(repr=False)
    alphas: Array = field(repr=False)
    squared_radii: Array = field(repr=False)
    norm_bound: float
    squared_radius: float | None = None

    @property
    def kernel(self) -> KernelSum:
        """The kernel whose functions the set holds."""
        return self.spectrum.kernel

    def interval(self, Z: ArrayLike, *, refine: bool = True) -> tuple[Array, Array]:
        """Lower and upper bounds (n,) of f at ``Z``.

        With ``refine`` alpha is optimised at every point, which equals the extremes of f(x) over
        the set; without, it stays on the grid: up to half a per cent wider, and faster.
        """
        return interval_of([self], self.kernel.base.points(Z), refine=refine)

    def upper(self, Z: ArrayLike) -> Array:
        """(n,) upper bounds of f at ``Z``, alpha on the grid."""
        return self.interval(Z, refine=False)[1]

    def lower(self, Z: ArrayLike) -> Array:
        """(n,) lower bounds of f at ``Z``, alpha on the grid."""
        return self.interval(Z, refine=False)[0]

    def _interval_from(
        self, coordinates: Array, outside: Array, *, refine: bool
    ) -> tuple[Array, Array]:
        """`interval` of points with these projections (r, n) and (n,)."""
        mean, spread = self._curves(coordinates, outside)  # (A, n)
        lower, upper = mean - spread, mean + spread
        best_lower, best_upper = lower.max(axis=0), upper.min(axis=0)
        if refine and self.squared_radius is not None:
            best_upper = np.minimum(best_upper, self._refined(coordinates, outside, upper, 1))
            best_lower = np.maximum(best_lower, -self._refined(coordinates, outside, -lower, -1))
        if not np.isfinite(self.norm_bound):
            return best_lower, best_upper
        # B sqrt(k(x, x)), which needs no data.
        squares = np.einsum("rn,rn->n", coordinates, coordinates)
        ball = self.norm_bound * np.sqrt(squares + outside)
        return np.maximum(best_lower, -ball), np.minimum(best_upper, ball)

    def mean(self, Z: ArrayLike, alpha: float) -> Array:
        """(n,) ridge solution with regulariser ``alpha``, in units of the noise variance."""
        coordinates, _ = self.spectrum.project(Z)
        return np.asarray(self.spectrum.mean_coefficients(np.array([alpha]))[0] @ coordinates)

    def best_alpha(self, z: Array, sign: int) -> float:
        """The regulariser of the grid with the best bound at a point (1, d0): 1 upper, -1 lower."""
        mean, spread = self._curves(*self.spectrum.project(z))
        return float(self.alphas[int(np.argmin(sign * mean[:, 0] + spread[:, 0]))])

    def _curves(self, coordinates: Array, outside: Array) -> tuple[Array, Array]:
        """Centres and half-widths (A, n) for every alpha."""
        with np.errstate(divide="ignore"):
            beyond = np.where(self.alphas > 0, 1 / self.alphas, 0.0)  # per unit outside of V
        variance = self._inverse @ coordinates**2
        variance += np.multiply.outer(beyond, outside)
        variance *= self.squared_radii[:, None]
        if self.alphas[0] == 0:
            hidden = outside + (coordinates[~observed(self.spectrum)] ** 2).sum(axis=0)
            total = outside + (coordinates**2).sum(axis=0)
            variance[0, hidden > 100 * NEGLIGIBLE**2 * total] = np.inf
        return self._coefficients @ coordinates, np.sqrt(variance)

    @cached_property
    def _inverse(self) -> Array:
        """(A, r) eigenvalues of (F'F + alpha)^{-1}; 0 for what was never observed at alpha = 0."""
        with np.errstate(divide="ignore"):
            inverse = self.spectrum.inverse(self.alphas)
        if self.alphas[0] == 0:
            inverse[0, ~observed(self.spectrum)] = 0
        return inverse

    @cached_property
    def _coefficients(self) -> Array:
        """(A, r) ridge solutions."""
        return np.sqrt(self.spectrum.values) * self.spectrum.targets * self._inverse

    def _refined(self, coordinates: Array, outside: Array, curve: Array, sign: int) -> Array:
        """(n,) minima of ``curve`` (A, n) over alpha, by parabolas in log alpha between its nodes.

        ``sign`` is 1 for the upper bound and -1 for minus the lower bound. The curve is
        quasi-convex in alpha, so the best node and its neighbours enclose the minimum.
        """
        middle = np.clip(curve.argmin(axis=0), 1, len(self.alphas) - 2)
        columns = np.arange(curve.shape[1])
        nodes = np.log(self.alphas)
        x = [nodes[middle + shift] for shift in (-1, 0, 1)]
        g = [curve[middle + shift, columns] for shift in (-1, 0, 1)]
        for _ in range(REFINEMENTS):
            trial = _parabola_minimum(x, g)
            value = self._curve_at(np.exp(trial), coordinates, outside, sign)
            left, better = trial < x[1], value < g[1]
            for side, at_side in ((0, left), (2, ~left)):
                # The trial ends the bracket on its side, or its old middle does on the other.
                shrink, move = at_side & ~better, ~at_side & better
                x[side] = np.where(shrink, trial, np.where(move, x[1], x[side]))
                g[side] = np.where(shrink, value, np.where(move, g[1], g[side]))
            x[1], g[1] = np.where(better, trial, x[1]), np.where(better, value, g[1])
        return np.asarray(g[1])

    def _curve_at(self, alphas: Array, coordinates: Array, outside: Array, sign: int) -> Array:
        """Sign times the centre plus the half-width at a regulariser of its own for every point."""
        assert self.squared_radius is not None
        spectrum = self.spectrum
        inverse = 1 / (spectrum.values[:, None] + alphas)  # (r, n)
        projected = coordinates * inverse
        center = (np.sqrt(spectrum.values) * spectrum.targets) @ projected
        variance = np.einsum("rn,rn->n", projected, coordinates) + outside / alphas
        misfit = spectrum.rest + alphas * (spectrum.targets**2 @ inverse)
        radii = self.squared_radius + alphas * self.norm_bound**2 - misfit
        return np.asarray(sign * center + np.sqrt(variance * np.maximum(radii, 0)))


def interval_of(sets: Sequence[ConfidenceSet], Z: Array, *, refine: bool) -> tuple[Array, Array]:
    """Bounds (n,) at ``Z`` by all of the sets, the last of which is the present one."""
    now = sets[-1]
    lower, upper = np.empty((2, len(Z)))
    for block in blocks(len(Z)):
        Phi = now.kernel.features(Z[block]) if now.spectrum.X is None else None
        bounds = np.array(
            [s._interval_from(*s.spectrum.project(Z[block], Phi), refine=refine) for s in sets]
        )  # (sets, 2, block)
        lower[block], upper[block] = bounds[:, 0].max(axis=0), bounds[:, 1].min(axis=0)
        # Where sets of different times are disjoint, the present one counts.
        crossed = lower[block] > upper[block]
        lower[block][crossed] = bounds[-1, 0, crossed]
        upper[block][crossed] = bounds[-1, 1, crossed]
    return lower, upper


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices of at most ``size`` points, whose features and bounds stay in the cache together."""
    return (slice(start, start + size) for start in range(0, n, size))


def _parabola_minimum(x: list[Array], g: list[Array]) -> Array:
    """Minimum of the parabola through three points, kept inside of the outer two."""
    before, after = x[1] - x[0], x[2] - x[1]
    down, up = (g[1] - g[0]) / before, (g[2] - g[1]) / after  # slopes, down <= 0 <= up
    curvature = up - down
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(curvature > 0, -down / curvature, 0.5)
    start, stop = (x[0] + x[1]) / 2, (x[1] + x[2]) / 2
    trial = start + np.clip(share, 0.02, 0.98) * (stop - start)
    # A step onto the middle itself would learn nothing.
    return np.where(np.abs(trial - x[1]) < 1e-3 * (x[2] - x[0]), x[1] + 1e-3 * (x[2] - x[0]), trial)


def dual_set(
    spectrum: Spectrum, *, squared_radius: float, norm_bound: float, norm_scales: Array
) -> ConfidenceSet:
    """The set of both constraints; of the first alone where the norm bound is infinite."""
    if not np.isfinite(norm_bound):
        free = free_squared_radius(spectrum, squared_radius)
        return ConfidenceSet(spectrum, np.zeros(1), np.array([max(free, 0.0)]), norm_bound)
    alphas = alpha_grid(spectrum, norm_bound, norm_scales)
    radii = squared_radii(spectrum, alphas, squared_radius=squared_radius, norm_bound=norm_bound)
    return ConfidenceSet(spectrum, alphas, np.maximum(radii, 0), norm_bound, squared_radius)


def closed_form_set(spectrum: Spectrum, *, alpha: float, nu: float) -> ConfidenceSet:
    """Posterior mean plus and minus nu posterior standard deviations, at one regulariser."""
    return ConfidenceSet(spectrum, np.array([alpha]), np.array([alpha * nu**2]), np.inf)


def alpha_grid(spectrum: Spectrum, norm_bound: float, norm_scales: Array) -> Array:
    """(A,) regularisers from "the norm does not matter" to "the data do not", increasing.

    They contain the regulariser 1 / scale^2 of every one of the ``norm_scales``, so the bound is
    never worse than the closed form "amm" at one of these.
    """
    largest = float(spectrum.values.max(initial=0))
    lowest = 1e-4 / norm_bound**2  # adds 1e-4 to R^2, which is 2 log(1/delta) at least
    if spectrum.X is not None:
        # Eigenvalues of a kernel matrix are known up to rounding of the largest only.
        lowest = max(lowest, 1e-12 * largest)
    spread = np.geomspace(lowest, 10 * max(largest, lowest, 1 / norm_bound**2), GRID)
    return np.unique(np.concatenate([spread, norm_scales**-2.0]))


def squared_radii(
    spectrum: Spectrum, alphas: Array, *, squared_radius: float, norm_bound: float
) -> Array:
    """(A,) the radii R_alpha^2 of the ellipsoids; negative when the set is empty."""
    return squared_radius + alphas * norm_bound**2 - spectrum.misfit(alphas)


def free_squared_radius(spectrum: Spectrum, squared_radius: float) -> float:
    """R^2 minus the residual sum of squares: the limit alpha -> 0, which needs no norm bound."""
    unseen = spectrum.targets[~observed(spectrum)]
    return squared_radius - (spectrum.rest + float((unseen**2).sum()))


def observed(spectrum: Spectrum) -> NDArray[np.bool_]:
    """(r,) which directions have been observed at all, up to rounding."""
    largest = float(spectrum.values.max(initial=0))
    return np.asarray(spectrum.values > NEGLIGIBLE**2 * largest)


def smallest_squared_radius(
    spectrum: Spectrum, *, squared_radius: float, norm_bound: float
) -> float:
    """The minimum of R_alpha^2 over all alpha >= 0; the set is empty exactly if it is negative.

    R_alpha^2 is convex in alpha with derivative B^2 - ||theta_alpha||^2, so the minimum is where
    the ridge solution has norm B, or at 0 when all have less.
    """
    free = free_squared_radius(spectrum, squared_radius)
    if not np.isfinite(norm_bound) or not len(spectrum.values):
        return free
    energy = float((spectrum.values * spectrum.targets**2).sum())
    if energy == 0:
        return free
    # ||theta_alpha||^2 <= energy / alpha^2, so the root lies below sqrt(energy) / B.
    high = np.log(np.sqrt(energy) / norm_bound)
    low = high - 80.0
    for _ in range(3):
        nodes = np.linspace(low, high, 33)
        small = spectrum.squared_norms(np.exp(nodes)) <= norm_bound**2
        first = int(np.argmax(small)) if small.any() else 32
        low, high = nodes[max(first - 1, 0)], nodes[first]
    ends = np.exp(np.array([low, high]))
    return float(
        squared_radii(spectrum, ends, squared_radius=squared_radius, norm_bound=norm_bound).min()
    )
