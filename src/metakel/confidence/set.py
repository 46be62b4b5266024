r"""Confidence sets: bounds of f(x) at any points, their gradients, their intersection over time.

The set of "dmm" (the replacement of Theorem 5.1) holds the functions that fit the data and have a
small norm:

.. math:: \{\theta : \|y - F\theta\|^2 \le R^2,\ \|\theta\|^2 \le B^2\}

Adding alpha times the second constraint to the first gives, for every alpha > 0, an ellipsoid
around the ridge solution that contains the set:

.. math:: |f(x) - \mu_\alpha(x)|^2 \le \phi(x)'(F'F + \alpha)^{-1}\phi(x)\, \tilde R_\alpha^2,
          \quad \tilde R_\alpha^2 = R^2 + \alpha B^2 - \min_\theta(\|y - F\theta\|^2 +
          \alpha\|\theta\|^2).

The best upper bound over alpha is the maximum of f(x) over the set (strong duality).

The sets hold at all times together, so any of them may be used. Their intersection is exact on a
finite domain that is fixed in advance. At arbitrary points all past sets would have to be kept, so
the intersection is over a few of them; any choice of times is valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.confidence.observations import NEGLIGIBLE, ObservationLog, Spectrum
from metakel.kernels.sum import KernelSum

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Intersection:
    """What is kept of earlier sets."""

    points: Array | None  # (n, d0) the finite domain
    remember: int  # at most how many past sets are kept
    # Largest lower and smallest upper bound so far at ``points``, (n,) each.
    running: tuple[Array, Array] | None = None
    # (time, is it a milestone, set): of the previous call, and of the first to reach a power of 2.
    past: tuple[tuple[int, bool, ConfidenceSet], ...] = ()

    def keeping(self, log: ObservationLog, past: ConfidenceSet) -> Intersection:
        """With the set after all observations of the log."""
        before = log.t - len(log.batches[-1].y)  # observations before the last call
        milestone = log.t.bit_length() > before.bit_length()
        entries = (*(entry for entry in self.past if entry[1]), (log.t, milestone, past))
        return replace(self, past=entries[-self.remember :] if self.remember else ())

    def forgetting(self) -> Intersection:
        """Without earlier sets, because an assumption behind them failed."""
        return replace(self, running=None, past=())

    def narrowed(self, now: ConfidenceSet) -> tuple[Intersection, bool]:
        """With the present set at ``points``; False if no value is left at one of them."""
        if self.points is None:
            return self, True
        lower, upper = now.interval(self.points, refine=False)
        if self.running is not None:
            lower = np.maximum(lower, self.running[0])
            upper = np.minimum(upper, self.running[1])
        agreed = not (lower > upper + ROUNDING * (1 + np.abs(lower) + np.abs(upper))).any()
        running = np.minimum(lower, upper), np.maximum(lower, upper)
        return replace(self, running=running), agreed

    def interval(self, Z: Array, now: ConfidenceSet, *, refine: bool) -> tuple[Array, Array]:
        """Bounds (n,) at any points ``Z``: the present set and the kept ones, of one kernel."""
        return _interval([*(entry[2] for entry in self.past), now], Z, refine=refine)


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
        return _interval([self], self.kernel.base.points(Z), refine=refine)

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


def _interval(sets: Sequence[ConfidenceSet], Z: Array, *, refine: bool) -> tuple[Array, Array]:
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
