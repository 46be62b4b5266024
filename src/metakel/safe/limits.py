"""Limits: what is bounded, how sure one must be, and where a safe search may begin.

`metakel.safe.model` respects them when it chooses the next point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf, isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_number, as_numbers, is_number, positive, probability
from metakel.confidence.methods import Center, Learned, NormOf
from metakel.errors import InputError
from metakel.kernels.sum import KernelFunction, KernelSum
from metakel.search import Domain

OBJECTIVE = "objective"  # what the first output is called beside the names of the others
# A bound that equals a limit up to rounding is not trusted.
ROUNDING = 1e-9
SAME = 1e-9  # up to which a point is one that the user vouches for


@dataclass(frozen=True)
class Range:
    """Values that are allowed, between ``low`` and ``high``."""

    low: float = -inf
    high: float = inf

    @classmethod
    def of(cls, where: str, at_least: float | None, at_most: float | None) -> Range:
        """From the two ends, of which one may be None."""
        for name, end in (("at_least", at_least), ("at_most", at_most)):
            if end is not None and not (is_number(end) and isfinite(end)):
                raise InputError(f"{where}: {name} is {end!r}; expected a finite number")
        low = -inf if at_least is None else float(at_least)
        high = inf if at_most is None else float(at_most)
        if not low < high:
            raise InputError(f"{where}: at_least={low:g} is not below at_most={high:g}")
        return cls(low, high)

    @property
    def bounded(self) -> bool:
        """Whether it forbids anything."""
        return isfinite(self.low) or isfinite(self.high)

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low)

    def margin(self, lower: Array, upper: Array) -> Array:
        """(n,) how far inside values between these bounds are at least; negative for outside."""
        return self._room(lower, upper, ROUNDING)

    def hope(self, lower: Array, upper: Array) -> Array:
        """(n,) how far inside values between these bounds are at most; negative for outside."""
        return self._room(upper, lower, 0.0)

    def misses_below(self, lower: Array, upper: Array) -> bool:
        """Whether the first of these bounds is closer to the low end than to the high one."""
        if not (isfinite(self.low) and isfinite(self.high)):
            return isfinite(self.low)
        return bool(lower[0] - self.low <= self.high - upper[0])

    def _room(self, above: Array, below: Array, rounding: float) -> Array:
        room = np.full(len(above), inf)
        if isfinite(self.low):
            room = above - self.low - rounding * (1 + abs(self.low))
        if isfinite(self.high):
            room = np.minimum(room, self.high - below - rounding * (1 + abs(self.high)))
        return room

    def to_list(self) -> list[float | None]:
        """Exact JSON form."""
        return [end if isfinite(end) else None for end in (self.low, self.high)]

    def __str__(self) -> str:
        if isfinite(self.low) and isfinite(self.high):
            return f"between {self.low:g} and {self.high:g}"
        return f"at least {self.low:g}" if isfinite(self.low) else f"at most {self.high:g}"


@dataclass(frozen=True, eq=False)
class Limit:
    """A measured output that must stay within limits at every point that is tried.

    What is promised is the value without noise; a measurement beyond the limit is no violation.

    Parameters
    ----------
    kernel : LearnedKernel or KernelSum
        Of the output, as `ConfidenceSequence` takes it.
    noise_std : float, optional
        Noise of a measurement; a learned kernel has one.
    norm_bound : float or None
        See `ConfidenceSequence`. A function is refused: it is not valid from the first point on.
    at_least, at_most : float, optional
        The limits; one of them, or both.
    center, slack, norm_of, full
        See `ConfidenceSequence`.
    delta : float, optional
        Probability with which the bounds of this output may fail. By default, what is left of the
        optimizer's delta is shared equally.
    delta_learning : float, optional
        What learning this kernel has spent.
    """

    kernel: KernelSum | Learned
    noise_std: float | None = None
    norm_bound: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    center: Center | None = None
    slack: float = 0.0
    norm_of: NormOf | None = None
    full: KernelSum | None = None
    delta: float | None = None
    delta_learning: float | None = None

    def __post_init__(self) -> None:
        if not self.range.bounded:
            raise InputError("a Limit needs at_least, at_most or both; found neither")
        refuse_growing(self.norm_bound)

    @property
    def range(self) -> Range:
        """Values that are allowed."""
        return Range.of("Limit", self.at_least, self.at_most)

    @property
    def spent(self) -> float:
        """What learning the kernel has spent of delta."""
        if self.delta_learning is not None:
            return self.delta_learning
        return 0.0 if isinstance(self.kernel, KernelSum) else self.kernel.delta

    def sequence_options(self, share: float) -> dict[str, Any]:
        """Arguments of its confidence sequence, which gets ``share`` of delta for deciding."""
        names = ("noise_std", "norm_bound", "center", "slack", "norm_of", "full")
        deltas = {"delta": share + self.spent, "delta_learning": self.spent}
        return {name: getattr(self, name) for name in names} | deltas


def refuse_growing(norm_bound: Any) -> None:
    """A norm bound that grows with time holds only later, too late for a limit."""
    if callable(norm_bound):
        raise InputError(
            "norm_bound is a function, which holds only once it has passed the norm of f; with "
            "limits expected a number, or None"
        )


def shares(
    delta: float, spent: float, limits: Mapping[str, Limit]
) -> tuple[float, dict[str, float]]:
    """What the objective and every limit get of delta, after ``spent`` was spent on other things.

    All of it together is delta: the parts of the limits that carry their own, and of the rest an
    equal part for the objective and every other limit.
    """
    delta = as_number("delta", delta)
    given = {name: limit.delta for name, limit in limits.items() if limit.delta is not None}
    for name, value in given.items():
        probability(f"limit {name!r}: delta", value)
    learning = sum(limit.spent for limit in limits.values())
    left = delta - spent - learning - sum(given.values())
    if not 0 < left < 1:
        raise InputError(
            f"delta is {delta:g}, of which learning and the start have spent {spent + learning:g} "
            f"and limits with a delta of their own take {sum(given.values()):g}; nothing is left "
            "for the bounds. Give a larger delta"
        )
    part = left / (1 + len(limits) - len(given))
    return part, {name: given.get(name, part) for name in limits}


# -- points that may be tried before anything was measured, named by the user or by past tasks -----


@dataclass(frozen=True, eq=False)
class VouchedPoints:
    """Points (n, d0) that the user vouches for, in every context where there are contexts."""

    points: Array
    by_past_tasks: ClassVar[bool] = False

    @property
    def delta(self) -> float:
        """The user is taken at their word."""
        return 0.0

    def contains(self, Z: ArrayLike) -> NDArray[np.bool_]:
        """(n,) which points are among them, up to rounding."""
        choices = np.asarray(Z, dtype=np.float64)[:, : self.points.shape[1]]
        apart = np.abs(choices[:, None] - self.points)
        near = (apart <= SAME * (1 + np.abs(self.points))).all(axis=2)  # (n, number of points)
        return np.asarray(near.sum(axis=1) > 0)


@dataclass(frozen=True, eq=False)
class PastScore:
    """By how many standard deviations past tasks stay within a range.

    Parameters
    ----------
    mean : KernelFunction
        Of past tasks.
    spread : (d, r) array
        Root of the covariance of their coefficients.
    range : Range
        Values that are allowed.
    """

    mean: KernelFunction
    spread: Array
    range: Range

    def __post_init__(self) -> None:
        as_numbers("spread", self.spread, (self.mean.kernel.dim, None))

    def __call__(self, Z: Array) -> Array:
        """(n,) scores."""
        Phi = self.mean.kernel.features(Z)
        mean = Phi @ self.mean.coefficients
        sd = np.sqrt(((Phi @ self.spread) ** 2).sum(axis=1))
        return np.asarray(self.range.margin(mean, mean) / np.maximum(sd, 1e-12))


@dataclass(frozen=True, eq=False)
class PastFunction:
    """What past tasks say of one output of the next one.

    Parameters
    ----------
    center : KernelFunction
        Mean of past tasks.
    norm_bound : float or None
        Of the next task minus the centre, in the norm of the centre's kernel.
    noise_std : float
        Of a measurement.
    range : Range
        Values that are allowed.
    """

    center: KernelFunction
    norm_bound: float | None
    noise_std: float
    range: Range

    def __post_init__(self) -> None:
        positive("noise_std", self.noise_std)
        if self.norm_bound is not None:
            positive("norm_bound", self.norm_bound)

    def limit(self) -> Limit:
        """As a limit of `GPUCB`; what learning has spent is part of the delta of the start."""
        low, high = self.range.to_list()
        return Limit(
            self.center.kernel,
            self.noise_std,
            self.norm_bound,
            at_least=low,
            at_most=high,
            center=self.center,
            norm_of="kernel",
        )


@dataclass(frozen=True, eq=False)
class SafeStart:
    """Points that are safe on the next task with probability 1 - delta, from past tasks alone.

    `safe_start` makes it. The next task has to be exchangeable with the calibrating ones: same
    source, recorded in the same way, none chosen by its result.

    Parameters
    ----------
    scores : tuple of PastScore
        One for every limited output; the smallest counts.
    level : float
        Points with a larger score are in the set; inf for none.
    outputs : dict of PastFunction
        What is known of every output: the objective under "objective", others by their names.
    delta : float
        Probability, over histories and the next task, that the set holds an unsafe point or that
        one of the norm bounds is too small. What learning the kernels has spent is included.
    tasks : int
        How many past tasks were used to calibrate.
    rank : int
        The level is the rank-th smallest score of theirs.
    delta_calibrating : float
        The part of delta that calibrating has.
    """

    scores: tuple[PastScore, ...]
    level: float
    outputs: Mapping[str, PastFunction]
    delta: float
    tasks: int
    rank: int
    delta_calibrating: float
    by_past_tasks: ClassVar[bool] = True

    @property
    def kernel(self) -> KernelSum:
        """Of the objective, learned from the teaching tasks."""
        return self.outputs[OBJECTIVE].center.kernel

    @property
    def center(self) -> KernelFunction:
        """Mean of the objective in past tasks: the ``center`` of its confidence sequence."""
        return self.outputs[OBJECTIVE].center

    @property
    def norm_bound(self) -> float | None:
        """Of the objective minus its centre, for ``norm_of="kernel"``; None where none is known."""
        return self.outputs[OBJECTIVE].norm_bound

    def limits(self) -> dict[str, Limit]:
        """The ``limits`` of `GPUCB` for the other outputs."""
        return {name: o.limit() for name, o in self.outputs.items() if name != OBJECTIVE}

    @property
    def points(self) -> None:
        """None: it is known by a score, not by its points."""
        return None

    def score(self, Z: Array) -> Array:
        """(n,) the smallest of the scores at ``Z`` (n, d0)."""
        return np.asarray(np.min([score(Z) for score in self.scores], axis=0))

    def contains(self, Z: ArrayLike) -> NDArray[np.bool_]:
        """(n,) which points ``Z`` (n, d0) may be tried at once."""
        found: NDArray[np.bool_] = self.score(self.kernel.base.points(Z)) > self.level
        return found

    def share(self, Z: ArrayLike) -> float:
        """Which share of the points ``Z`` (n, d0) is in the set."""
        return float(self.contains(Z).mean())

    def worst_case(self, confidence: float = 0.95) -> float:
        """A bound of the calibration's error on the next task that holds for most histories.

        ``delta`` averages over histories. For the history at hand the error of the calibration is
        a Beta variable; this is its quantile, and does not include the noise of the records.
        """
        from scipy.special import betaincinv

        if self.rank > self.tasks:
            return 0.0
        return float(betaincinv(self.tasks + 1 - self.rank, self.rank, confidence))

    @property
    def needed(self) -> int:
        """How many calibrating tasks are needed at least, for a set that is not empty."""
        return ceil(1 / self.delta_calibrating - 1 - 1e-9)

    def __str__(self) -> str:
        if self.rank > self.tasks:
            return (
                f"no safe start: {self.tasks} calibration tasks are too few for delta = "
                f"{self.delta_calibrating:g}; {self.needed} are needed"
            )
        return (
            f"start vouched for by {self.tasks} past tasks: holds an unsafe point with probability "
            f"at most {self.delta:g} on average over histories (calibration error of this history: "
            f"at most {self.worst_case():.2g} in 19 of 20 cases)"
        )


StartSet = SafeStart | VouchedPoints  # where to begin


def as_start_set(start: Any, domain: Domain) -> StartSet | None:
    """A start set as it is, or points of the domain that the user vouches for."""
    if start is None or isinstance(start, SafeStart):
        return start
    points = domain.encode(start, "start")
    if not len(points):
        raise InputError("start has no points; expected at least one that you vouch for")
    return VouchedPoints(points)
