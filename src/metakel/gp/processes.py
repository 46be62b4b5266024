r"""Mean, kernel, level and scale of the function of a task (Eqs. 5, 6).

A task is y = a + s (m(x) + g(x)), with spreads of a and s taken from the history. The level
a ~ N(level, s^2 level_variance) is one more direction of the kernel. The scale s is integrated out
on a grid: log-normal as among past tasks, with a small weight on any smaller scale. Not on larger
ones: one very bad value would make them likely, and the search too wide. The kernel of g is

    k(x, z) = sum_j eta_j phi_j(x) phi_j(z) + residual_weight k0(x, z)

phi_j = psi'u_j are eigenfunctions of past tasks, each a base kernel of its own. k0 is the
Matern-5/2 kernel that the tasks share; it keeps every continuous function possible.

A task may have inputs u that no past task had. The learned mean ignores them, and the kernel is

    k((x, u), (z, v)) = k(x, z) + NEW_VARIANCE c(u, v) ((1 - INTERACTION) + INTERACTION c0(x, z)).

c is a Matern-5/2 kernel set by hand, as of a cold start, and c0 the correlation that past tasks
share. So the new inputs may have an effect of their own, and one that depends on the others.

A parameter may have choices that no past task had. Of those the past says what it says of all
choices alike: where a known one has 1 in its column, a new one has 1/K in the columns of all K
known ones. Beyond that it has an effect of its own, and one that depends on the other inputs x:
with u the columns of the new choices, CHOICE_VARIANCE / 2 (u'v) (1 + 3 x'z / d) more. Between known
choices everything stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log, pi, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import TINY, Array, as_number, as_numbers
from metakel.kernels.nystrom import NystromFeatures
from metakel.kernels.stationary import Matern52ARD

GRID = 15
GRID_WIDTH = 2.5
SMALLEST_SPREAD = 0.3
EXTRA_LEVEL_VARIANCE = 0.1
# A first value this many standard deviations from where past tasks expect it is that of a task at
# another level. Nearer ones are evidence for or against what was learned.
UNEXPECTED = 4.0
# Standard deviation of a level about which nothing is known, in units of the scale. A larger one
# says no more, and costs digits of everything else.
VAGUE = 30.0
# The scale of a task may be smaller by any factor, with this probability; grid of its logarithm
# beyond that of past tasks.
OTHER_SCALE = 0.05
TAIL_STEP, TAIL_REACH = 1.0, log(1e6)
# Levels and scales of past tasks further out than this many standard deviations, robustly
# estimated, are moved there: one task in another unit says nothing about the next one.
OUTLYING = 3.0
NORMAL_MAD = 1.4826  # standard deviation over median absolute deviation of a normal distribution


@dataclass(frozen=True)
class LevelAndScale:
    """What past tasks say about the level and scale of the next one."""

    level: float  # mean of the task means
    level_variance: float  # of the level, in units of the squared scale
    scale: float  # median standard deviation of a task
    spread: float  # standard deviation of the log of the scale

    def __post_init__(self) -> None:
        lowest = {"level": -inf, "level_variance": 0.0, "scale": TINY, "spread": TINY}
        for name, low in lowest.items():
            # A spread of 100 is a factor of e to the 100 between the scales of tasks.
            as_number(name, getattr(self, name), low, 100.0 if name == "spread" else inf)

    @cached_property
    def _grid(self) -> tuple[Array, Array]:
        """Logarithms of the scales over the usual one, and their probabilities."""
        steps = np.linspace(-GRID_WIDTH, GRID_WIDTH, GRID)
        usual = np.exp(-(steps**2) / 2)
        inner, step = self.spread * steps, self.spread * (steps[1] - steps[0])
        tail = np.arange(inner[-1] + TAIL_STEP, max(TAIL_REACH, inner[-1]) + TAIL_STEP, TAIL_STEP)
        logs = np.concatenate([-tail[::-1], inner])
        cells = np.where(logs < inner[0], TAIL_STEP, step)
        anything = cells / (pi * (1 + logs**2))
        weights = OTHER_SCALE * anything / anything.sum()
        weights[len(tail) : len(tail) + GRID] += (1 - OTHER_SCALE) * usual / usual.sum()
        return logs, weights

    @cached_property
    def scales(self) -> Array:
        """(g,) grid of scales, increasing."""
        return np.asarray(self.scale * np.exp(self._grid[0]))

    @cached_property
    def squares(self) -> Array:
        """(g,) of the scales."""
        return np.asarray(self.scales**2)

    @cached_property
    def log_scales(self) -> Array:
        """(g,) logarithms of the scales."""
        return np.asarray(np.log(self.scales))

    @cached_property
    def usual(self) -> NDArray[np.bool_]:
        """(g,) which scales of the grid past tasks allow for."""
        return np.asarray(np.abs(self._grid[0]) <= GRID_WIDTH * self.spread * (1 + 1e-9))

    @cached_property
    def log_weights(self) -> Array:
        """(g,) log prior probabilities of the grid."""
        return np.asarray(np.log(self._grid[1]))

    def expects(self, y: float, means: Sequence[float] | Array = ()) -> bool:
        """Whether past tasks allow for a first value ``y`` where mean functions are ``means``.

        It was chosen where they are high, so that it may be far above the level.
        """
        sd = self.scale * sqrt(1 + self.level_variance)
        at = self.level + self.scale * np.append(means, 0.0)
        return bool(at.min() - UNEXPECTED * sd <= y <= at.max() + UNEXPECTED * sd)

    def at_other_level(self, y: float) -> LevelAndScale:
        """For a task with a value ``y`` that past tasks do not allow for: a level around it."""
        return _OtherLevel(y, VAGUE**2, self.scale, self.spread)


class _OtherLevel(LevelAndScale):
    """A level about which nothing is known but the first value, which fixed it."""

    @cached_property
    def log_weights(self) -> Array:
        """(g,) log prior probabilities of the grid, times a power of the scale.

        The first value is level, and says nothing of the scale. Its density is that of a level
        spread in proportion to the scale, which one factor cancels; small scales would win by it.
        Two more beyond the scales of past tasks: a few equal values, as on a plateau, fix a level
        as well and should not make such a scale likely.
        """
        logs = self._grid[0]
        logs = np.log(self._grid[1]) + np.where(self.usual, logs, 3 * logs)
        return np.asarray(logs - np.log(np.exp(logs).sum()))


class KnownScale(LevelAndScale):
    """A level and a scale that were estimated from the values themselves."""

    @cached_property
    def _grid(self) -> tuple[Array, Array]:
        return np.zeros(1), np.ones(1)


def level_and_scale(
    means: Sequence[float] | Array, spreads: Sequence[float] | Array
) -> LevelAndScale:
    """From the means and the positive standard deviations of past tasks."""
    levels = _without_outliers(np.asarray(means, float))
    log_scales = _without_outliers(np.log(np.asarray(spreads, float)))
    scale = float(np.median(spreads))
    level_sd = min(float(levels.std()) / scale, VAGUE)
    return LevelAndScale(
        level=float(levels.mean()),
        level_variance=level_sd**2 + EXTRA_LEVEL_VARIANCE,
        scale=scale,
        spread=max(float(log_scales.std()), SMALLEST_SPREAD),
    )


def _without_outliers(values: Array) -> Array:
    """Values far from the median, in units of the median absolute deviation, moved nearer."""
    center = float(np.median(values))
    width = OUTLYING * NORMAL_MAD * float(np.median(np.abs(values - center)))
    return np.clip(values, center - width, center + width)


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

    def first(self, t: int) -> PointCache:
        """The first ``t`` points."""
        return PointCache(
            self.scaled[:t], self.norms[:t], self.phi[:t], self.mean[:t], self.diag[:t]
        )

    @staticmethod
    def joined(*caches: PointCache) -> PointCache:
        """All points of several."""
        if len(caches) == 1:
            return caches[0]
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

    @property
    def learned(self) -> bool:
        """Whether past tasks taught it."""
        ...

    def shares_kernel(self, other: TaskProcess) -> bool:
        """Whether the other one differs in its noise only."""
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
class LearnedProcess:
    """Mean and kernel learned from past tasks."""

    basis: NystromFeatures
    mu: Array  # (r,) coefficients of the mean m(x) = psi(x)'mu
    directions: Array  # (r, J) orthonormal coefficients u_j of the eigenfunctions
    eta: Array  # (J,) their weights
    residual_weight: float  # of the shared kernel
    noise_ratio: float = 1.0  # the noise of this task over the noise that tasks usually have

    def __post_init__(self) -> None:
        r, J = self.basis.r, len(self.eta)
        as_numbers("mu", self.mu, (r,))
        as_numbers("eta", self.eta, (None,), low=0)
        as_number("residual_weight", self.residual_weight, 0)
        as_number("noise_ratio", self.noise_ratio, TINY)
        # Sums are rounded by the order in memory; one that was stored and read has this order.
        directions = np.ascontiguousarray(as_numbers("directions", self.directions, (r, J)))
        object.__setattr__(self, "directions", directions)

    @property
    def noise(self) -> float:
        return self.noise_ratio * self.basis.shared.noise

    @property
    def learned(self) -> bool:
        return True

    @property
    def stationary(self) -> tuple[Matern52ARD, float]:
        """The part of the kernel that is the same everywhere, and its weight."""
        return self.basis.shared, self.residual_weight

    def widened(self, d_new: int, places: Array, choices: Sequence[int]) -> TaskProcess:
        """On points with ``d_new`` new inputs and columns of new ``choices``.

        X @ places are points of the past, as near as there are any, and then the new inputs.
        """
        return WidenedProcess(self, Matern52ARD.typical(d_new), places, tuple(choices))

    def shares_kernel(self, other: TaskProcess) -> bool:
        """Whether the other one is this one for another noise."""
        return getattr(other, "mu", None) is self.mu

    def mean(self, X: Array) -> Array:
        """(n,) values m(x)."""
        return np.asarray(self.basis.features(X) @ self.mu)

    def prepare(self, Z: Array) -> PointCache:
        psi = self.basis.features(Z)
        phi = (psi @ self.directions) * np.sqrt(self.eta)
        diag = np.einsum("nj,nj->n", phi, phi) + self.residual_weight * self.basis.shared.signal
        return PointCache(*self.basis.shared.scale(Z), phi, psi @ self.mu, diag)

    @cached_property
    def pull(self) -> Array:
        """(r, 1 + J) coefficients of mean and eigenfunctions for the kernel at the landmarks."""
        functions = np.column_stack([self.mu, self.directions * np.sqrt(self.eta)])
        return self.basis.pull(functions)

    def gram(self, left: PointCache, right: PointCache) -> Array:
        shared = self.basis.shared
        K = shared.of_scaled(left.scaled, left.norms, right.scaled, right.norms)
        K *= self.residual_weight
        K += left.phi @ right.phi.T
        return K

    def derivatives(self, points: PointCache, Z: Array) -> PointDerivatives:
        both = self.basis.slopes(self.pull, points.scaled)  # (1 + J, n, d0)
        phi = both[1:].transpose(1, 0, 2)
        return PointDerivatives(phi, both[0], 2 * np.einsum("nj,njd->nd", points.phi, phi))

    def gram_derivative(
        self, left: PointCache, right: PointCache, slopes: PointDerivatives
    ) -> Array:
        dK = self.basis.shared.slopes_of_scaled(left.scaled, right.scaled)
        dK *= self.residual_weight
        if left.phi.shape[1]:
            dK += np.einsum("nj,kjd->nkd", left.phi, slopes.phi, optimize=True)
        return dK


@dataclass(frozen=True, eq=False)
class ColdProcess:
    """Zero mean and a Matern kernel set by hand: what there is without a history."""

    shared: Matern52ARD

    @classmethod
    def typical(cls, d0: int) -> ColdProcess:
        """Lengthscale half of sqrt(d0), variance 1."""
        return cls(Matern52ARD.typical(d0))

    @property
    def noise(self) -> float:
        return self.shared.noise

    @property
    def learned(self) -> bool:
        return False

    @property
    def stationary(self) -> tuple[Matern52ARD, float]:
        """All of the kernel."""
        return self.shared, 1.0

    def widened(self, d_new: int, places: Array, choices: Sequence[int]) -> TaskProcess:
        """Typical of all columns, as one choice is like any other."""
        return ColdProcess.typical(len(places))

    def shares_kernel(self, other: TaskProcess) -> bool:
        """Every one has its own."""
        return False

    def prepare(self, Z: Array) -> PointCache:
        """Only the points: the mean is 0."""
        n = len(Z)
        signal = np.full(n, self.shared.signal)
        return PointCache(*self.shared.scale(Z), np.empty((n, 0)), np.zeros(n), signal)

    def gram(self, left: PointCache, right: PointCache) -> Array:
        return self.shared.of_scaled(left.scaled, left.norms, right.scaled, right.norms)

    def derivatives(self, points: PointCache, Z: Array) -> PointDerivatives:
        """All 0: mean and k(z, z) are constant."""
        return PointDerivatives(
            np.empty((len(Z), 0, Z.shape[1])), np.zeros(Z.shape), np.zeros(Z.shape)
        )

    def gram_derivative(
        self, left: PointCache, right: PointCache, slopes: PointDerivatives
    ) -> Array:
        return self.shared.slopes_of_scaled(left.scaled, right.scaled)


PastProcess = LearnedProcess | ColdProcess

# In units of the variance of a task: new inputs are taken to matter less than the known ones do
# together, as they were not worth tuning before. Of a new choice nothing is known.
NEW_VARIANCE, CHOICE_VARIANCE = 0.3, 1.0
INTERACTION = 0.5


@dataclass(frozen=True, eq=False)
class WidenedProcess:
    """A process of the past on points with new inputs and columns of new choices.

    In a `PointCache`, ``scaled`` holds the known inputs and then the new ones, ``norms`` (n, 2)
    those of both, and ``phi`` the eigenfunctions and then the own effects of new choices.
    """

    past: LearnedProcess  # with d inputs
    new: Matern52ARD  # kernel c of the new inputs; constant where there are none
    places: Array  # (d0, d + d_new) X @ places is what the past knows of X, then the new inputs
    choices: tuple[int, ...]  # (q,) which columns are those of new choices

    @property
    def noise(self) -> float:
        return self.past.noise

    @property
    def learned(self) -> bool:
        return True

    def shares_kernel(self, other: TaskProcess) -> bool:
        """Whether the other one is this one for another noise."""
        return self.past.shares_kernel(getattr(other, "past", other))

    @property
    def _shared(self) -> Matern52ARD:
        return self.past.basis.shared

    @property
    def _d(self) -> int:
        """How many inputs the past knows."""
        return len(self._shared.lengthscales)

    @property
    def _variance(self) -> float:
        return NEW_VARIANCE if len(self.new.lengthscales) else 0.0

    @cached_property
    def _slopes(self) -> Array:
        """(d0, 1 + d + d_new) of level and inputs, by which an effect of its own is spanned."""
        unit = sqrt(CHOICE_VARIANCE / 2)
        return np.insert(unit * sqrt(3 / self.places.shape[1]) * self.places, 0, 0.0, axis=1)

    def _own(self, Z: Array) -> tuple[Array, Array]:
        """Level and inputs (n, 1 + d + d_new), and own effects (n, q, 1 + d + d_new)."""
        along = Z @ self._slopes
        along[:, 0] = sqrt(CHOICE_VARIANCE / 2)
        return along, Z[:, self.choices, None] * along[:, None]

    def prepare(self, Z: Array) -> PointCache:
        known, own = Z @ self.places, _flat(self._own(Z)[1])
        past = self.past.prepare(known[:, : self._d])
        scaled, norms = self.new.scale(known[:, self._d :])
        more = self._variance * self.new.signal + np.einsum("nj,nj->n", own, own)
        return PointCache(
            np.concatenate([past.scaled, scaled], axis=1),
            np.column_stack([past.norms, norms]),
            np.concatenate([past.phi, own], axis=1),
            past.mean,
            past.diag + more,
        )

    def _kernels(self, left: PointCache, right: PointCache) -> tuple[Array, Array, Array]:
        """(n, k) what past tasks share, new inputs, and how alike the effect of these is."""
        d = self._d
        K0 = self._shared.of_scaled(
            left.scaled[:, :d], left.norms[:, 0], right.scaled[:, :d], right.norms[:, 0]
        )
        C = self._variance * self.new.of_scaled(
            left.scaled[:, d:], left.norms[:, 1], right.scaled[:, d:], right.norms[:, 1]
        )
        return K0, C, (1 - INTERACTION) + INTERACTION / self._shared.signal * K0

    def gram(self, left: PointCache, right: PointCache) -> Array:
        K0, C, alike = self._kernels(left, right)
        C *= alike
        C += self.past.residual_weight * K0
        C += left.phi @ right.phi.T
        return C

    def derivatives(self, points: PointCache, Z: Array) -> PointDerivatives:
        along, own = self._own(Z)
        slopes = np.einsum("nq,dj->nqjd", Z[:, self.choices], self._slopes)
        for i, column in enumerate(self.choices):
            slopes[:, i, :, column] += along
        scaled, phi = points.scaled[:, : self._d], points.phi[:, : len(self.past.eta)]
        known, back = Z @ self.places, self.places[:, : self._d].T
        past = replace(points, scaled=scaled, phi=phi)
        found = self.past.derivatives(past, known[:, : self._d])
        return PointDerivatives(
            np.concatenate([found.phi @ back, _flat(slopes)], axis=1),
            found.mean @ back,
            found.diag @ back + 2 * np.einsum("nqj,nqjd->nd", own, slopes),
        )

    def gram_derivative(
        self, left: PointCache, right: PointCache, slopes: PointDerivatives
    ) -> Array:
        d, (_, C, alike) = self._d, self._kernels(left, right)
        dK0 = self._shared.slopes_of_scaled(left.scaled[:, :d], right.scaled[:, :d])
        dC = self.new.slopes_of_scaled(left.scaled[:, d:], right.scaled[:, d:])
        dC *= self._variance * alike[:, :, None]
        rate = self.past.residual_weight + INTERACTION / self._shared.signal * C
        dK = np.concatenate([rate[:, :, None] * dK0, dC], axis=2) @ self.places.T
        if left.phi.shape[1]:
            dK += np.einsum("nj,kjd->nkd", left.phi, slopes.phi, optimize=True)
        return np.asarray(dK)


def _flat(effects: Array) -> Array:
    """Effects of q choices (n, q, j, ...) side by side (n, q j, ...)."""
    n, q, j, *rest = effects.shape
    return effects.reshape(n, q * j, *rest)
