r"""Upper bounds that GP-UCB maximises (Eq. 11): of a confidence set, or mean plus nu deviations.

For every regulariser alpha of the confidence set
the upper bound is centre plus half-width, and the smallest of them counts. A pending point, whose
value is unknown, shrinks the half-widths around it and leaves the centres where they are:

.. math:: u(x) = \min_\alpha \mu_\alpha(x) +
          R_\alpha \sqrt{\phi(x)'(F'F + P'P + \alpha)^{-1}\phi(x)}

with whitened features F (t, d) of the observations and P (q, d) of the pending points. Points are
columns below: coordinates (r, n) in the eigenbasis of a spectrum, curves (A, n) over the alphas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from metakel._arrays import Array, is_number
from metakel.confidence.methods import Center, center_at
from metakel.confidence.set import (
    Batch,
    ConfidenceSet,
    Observations,
    Spectrum,
    blocks,
    closed_form_set,
)
from metakel.errors import InputError
from metakel.kernels.sum import KernelSum
from metakel.search import StartPoints

# A number, or one for every step t = 1, 2, ... as the paper's nu_t.
Schedule = float | Callable[[int], float]
# Stands for alpha = 0, relative to the largest eigenvalue: where the norm of f is not bounded, what
# was never observed gets a bound so large that it is looked at first, and no infinite one.
VANISHING = 1e-12
# Points that are worked on together: 100 features of them take 100 kB. Arrays above 128 kB come
# fresh from the system every time, which costs more than the arithmetic.
BLOCK = 128
STEP = 2  # every other alpha is enough for a first look
SAMPLE = 64  # points that say which alphas matter
THREE = np.array([[-1], [0], [1]])


@dataclass(frozen=True, eq=False)
class UpperBound:
    """The upper bound u."""

    set: ConfidenceSet  # centres and radii
    spread: Spectrum  # of the half-widths: observations and pending points, in this order

    def upper(self, Z: Array, Phi: Array | None = None) -> Array:
        """(n,) values at ``Z`` (n, d0).

        Their features ``Phi`` (n, d) may be given where they are known. Single precision asks for a
        first look: an upper bound of these values, close to them, in less time.
        """
        if Phi is not None and Phi.dtype == np.float32:
            with np.errstate(over="ignore", invalid="ignore"):
                look = self._first_look(Phi)
            if np.isfinite(look).all():
                return look
            Phi = Phi.astype(np.float64)  # bounds whose squares single precision does not hold
        upper = np.empty(len(Z))
        for block in blocks(len(Z), BLOCK):
            rows = None if Phi is None else Phi[block]
            inside, outside = self.spread.project(Z[block], rows)
            center = inside if self._shared else self.set.spectrum.project(Z[block], rows)[0]
            curves = self._half_widths(inside, outside)
            curves += self._centers @ center
            curves.min(axis=0, out=upper[block])
            if np.isfinite(self.set.norm_bound):
                ball = self.set.norm_bound * _size(inside, outside)
                np.minimum(upper[block], ball, out=upper[block])
        return upper

    def _first_look(self, Phi: Array) -> Array:
        """`upper` (n,) or a little more, in single precision, by the alphas that a few ask for."""
        single = Phi.dtype
        basis = self.spread.basis.astype(single)
        others = None if self._shared else self.set.spectrum.basis.astype(single)
        inverse, centers = self._scaled_inverse.astype(single), self._centers.astype(single)
        unseen = (self._radii / self._alphas).astype(single) if self._has_outside else None

        def curves(rows: Array, useful: slice) -> Array:  # (d, n) -> (A, n)
            inside = basis.T @ rows
            squares = inside * inside
            variance = inverse[useful] @ squares
            if unseen is not None:
                outside = np.einsum("dn,dn->n", rows, rows) - squares.sum(axis=0)
                variance += np.multiply.outer(unseen[useful], np.maximum(outside, 0))
            heights: Array = np.sqrt(variance, out=variance)
            heights += centers[useful] @ (inside if others is None else others.T @ rows)
            return heights

        best = curves(Phi[:: max(len(Phi) // SAMPLE, 1)].T, slice(None)).argmin(axis=0)
        useful = slice(max(best.min() - 1, 0), best.max() + 2, STEP if len(self._alphas) > 8 else 1)
        upper = np.empty(len(Phi))
        for block in blocks(len(Phi), 2 * BLOCK):
            curves(Phi[block].T, useful).min(axis=0, out=upper[block])
        return upper

    def upper_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """`upper` (n,) and its derivative (n, d0) at ``Z`` (n, d0), for smooth kernels.

        Alpha is refined between the values of the set, which makes the bound smaller by some 1e-4
        of its half-width, and smooth. The derivative is that at the best alpha (envelope theorem).
        """
        spread = self.spread
        Phi = jacobian = None
        if spread.X is None:
            Phi, jacobian = spread.kernel.features_and_jacobian(Z)
        inside, outside = spread.project(Z, Phi)
        center = inside if self._shared else self.set.spectrum.project(Z, Phi)[0]
        alphas, radii = self._refined(self._half_widths(inside, outside) + self._centers @ center)
        pull = self.set.spectrum.mean_coefficients(alphas).T  # (r, n)
        push = inside / (spread.values[:, None] + alphas)
        beyond = 1 / alphas
        variance = np.einsum("rn,rn->n", push, inside) + beyond * outside
        half_width = np.sqrt(radii * variance)
        upper = np.einsum("rn,rn->n", pull, center) + half_width
        # d sqrt(R v) = R / sqrt(R v) * dv / 2, and v is quadratic in the features.
        rate = radii / np.maximum(half_width, 1e-300)
        push, beyond = push * rate, beyond * rate
        if np.isfinite(self.set.norm_bound):
            size = _size(inside, outside)
            ball = self.set.norm_bound * size
            capped = ball < upper
            if capped.any():
                upper = np.minimum(upper, ball)
                rate = self.set.norm_bound / np.maximum(size, 1e-300)
                pull = np.where(capped, 0.0, pull)
                push = np.where(capped, rate * inside, push)
                beyond = np.where(capped, rate, beyond)
        if Phi is None or jacobian is None:
            return upper, self._slope_from_kernel(Z, inside, pull, push, beyond)
        ascent = spread.basis @ (push + pull if self._shared else push)
        if not self._shared:
            ascent += self.set.spectrum.basis @ pull
        if self._has_outside:
            ascent += beyond * (Phi.T - spread.basis @ inside)
        slope = ascent.T[:, None] @ jacobian  # (n, 1, d0)
        return upper, slope[:, 0]

    def _refined(self, curves: Array) -> tuple[Array, Array]:
        """Best alphas (n,) of curves (A, n), by parabolas in log alpha, and squared radii there."""
        best = curves.argmin(axis=0)
        if self.set.squared_radius is None or len(curves) < 3:
            return self._alphas[best], self._radii[best]
        middle = np.minimum(np.maximum(best, 1), len(curves) - 2)
        three = middle + THREE
        x, height = np.log(self._alphas)[three], curves[three, np.arange(len(best))]  # (3, n)
        slopes = (height[1:] - height[:-1]) / (x[1:] - x[:-1])
        bend = np.maximum(slopes[1] - slopes[0], 1e-300)
        vertex = (x[0] + x[1]) / 2 - slopes[0] / bend * (x[2] - x[0]) / 2
        alphas = np.exp(np.minimum(np.maximum(vertex, x[0]), x[2]))
        radii = self.set.squared_radius + alphas * self.set.norm_bound**2
        return alphas, np.maximum(radii - self.set.spectrum.misfit(alphas), 0.0)

    def _slope_from_kernel(
        self, Z: Array, inside: Array, pull: Array, push: Array, beyond: Array
    ) -> Array:
        """(n, d0) derivatives where only k(x, z) is known, in the notation of the caller."""
        spread, kernel = self.spread, self.spread.kernel
        assert spread.X is not None
        assert spread.scale is not None
        # What is outside of the observed directions is k(x, x) minus what is inside.
        weights = spread.basis @ (push - beyond * inside)  # (t + q, n)
        weights[: len(self.set.spectrum.basis)] += self.set.spectrum.basis @ pull
        weights *= spread.scale[:, None]
        slopes = np.zeros(Z.shape)
        for i, z in enumerate(Z):
            # k(x, x) moves twice as fast as k(x, z) at z = x, and half of its slope is needed.
            slopes[i] = beyond[i] * kernel.gradient(z, z[None])[0]
            if len(spread.X):
                slopes[i] += weights[:, i] @ kernel.gradient(z, spread.X)
        return slopes

    @property
    def _shared(self) -> bool:
        return self.spread is self.set.spectrum

    @property
    def _has_outside(self) -> bool:
        """Whether there are features in directions that were never observed."""
        return self.spread.X is not None or self.spread.basis.shape[0] > self.spread.basis.shape[1]

    @cached_property
    def _alphas(self) -> Array:
        alphas = self.set.alphas
        largest = float(self.spread.values.max(initial=0)) or 1.0
        return np.where(alphas > 0, alphas, VANISHING * largest)

    @cached_property
    def _radii(self) -> Array:
        """(A,) squared radii; without a norm bound never 0, so that the unknown attracts."""
        radii = self.set.squared_radii
        return np.where(self.set.alphas > 0, radii, np.maximum(radii, 1.0))

    @cached_property
    def _centers(self) -> Array:
        """(A, r) ridge solutions in the eigenbasis of the set."""
        return self.set.spectrum.mean_coefficients(self._alphas)

    @cached_property
    def _scaled_inverse(self) -> Array:
        """(A, r) eigenvalues of (F'F + P'P + alpha)^{-1}, times the squared radii."""
        return np.asarray(self._radii[:, None] * self.spread.inverse(self._alphas))

    def _half_widths(self, inside: Array, outside: Array) -> Array:
        """(A, n) for every alpha."""
        variance = self._scaled_inverse @ (inside * inside)
        if self._has_outside:
            variance += np.multiply.outer(self._radii / self._alphas, outside)
        return np.asarray(np.sqrt(variance, out=variance))


def _size(inside: Array, outside: Array) -> Array:
    """(n,) square roots of k(x, x)."""
    return np.asarray(np.sqrt(np.einsum("rn,rn->n", inside, inside) + outside))


@dataclass(eq=False)
class StartFeatures:
    """Features of the start points, once for each kernel; in single precision before a climb."""

    start: StartPoints
    kernel: KernelSum | None = None
    features: Array | None = None
    center: Array | None = None

    def at(self, kernel: KernelSum, Z: Array) -> Array | None:
        """(n, d) features for a first look at ``Z``; None where the kernel has none."""
        if not kernel.finite:
            return None
        climbs = self.start.climbs
        if Z is self.start.X:
            if self.kernel is not kernel:
                found = kernel.features(Z)
                self.kernel, self.features = kernel, found.astype(np.float32) if climbs else found
            return self.features
        return kernel.features(Z).astype(np.float32) if climbs and kernel.smooth else None

    def center_at(self, center: Center, Z: Array) -> Array:
        """(n,) the centre at ``Z``."""
        if Z is not self.start.X:
            return center_at(center, Z)
        if self.center is None:
            self.center = center_at(center, Z)
        return self.center


# -- a fixed number of standard deviations ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FixedNu:
    """Posterior mean plus nu posterior standard deviations (Eqs. 3 and 11)."""

    observations: Observations  # whitened with their noise
    nu: Schedule
    noise_var: Schedule
    noise_std: float  # of an observation that has no other; ``noise_var`` is meant for it
    t: int = 0  # how many observations there are

    def observe(self, batch: Batch) -> FixedNu:
        """With the observations of one more call."""
        observations = self.observations.append(batch)
        return replace(self, observations=observations, t=self.t + len(batch.y))

    @cached_property
    def current(self) -> ConfidenceSet:
        """The interval mean +- nu std, in the form of a confidence set."""
        noise_var = at_step("noise_var", self.noise_var, self.t + 1)
        return closed_form_set(
            self.observations.spectrum(),
            alpha=noise_var / self.noise_std**2,
            nu=at_step("nu", self.nu, self.t + 1),
        )

    def spectrum(self, pending: Array) -> Spectrum:
        """Observations, and points ``pending`` (q, d0) whose values are not known yet."""
        if not len(pending):
            return self.current.spectrum
        noise = np.full(len(pending), self.noise_std)
        return self.observations.append(Batch(pending, np.zeros(len(pending)), noise)).spectrum()


def checked_schedule(name: str, schedule: Schedule) -> Schedule:
    """A schedule, of which a number is checked at once and a function whenever it is called."""
    return schedule if callable(schedule) else at_step(name, schedule, 1)


def at_step(name: str, schedule: Schedule, t: int) -> float:
    """The value of a schedule at step ``t``, checked."""
    value: Any = schedule(t) if callable(schedule) else schedule
    if not (is_number(value) and 0 < value < inf):
        raise InputError(f"{name} is {value!r} at step {t}; expected a positive number")
    return float(value)
