r"""Learning curves of past tasks: how runs go on, and which may be stopped.

A run has values at steps: epochs, rounds of boosting, rows. Let c(u) be its value after the share u
of its steps and f its last one, larger being better. What is still to come, f - c(u), is learned
from past tasks: a + b (c(u) - c(u/2)) is expected of it, and usually it is at most q more, each for
every u on a grid. All of it is in units of the spread s of earlier runs of the task after the first
share `FIRST` of their steps, which every run makes.

A run is stopped after the share u where its bound c(u) + a s + b (c(u) - c(u/2)) + m q s is below
B - tolerance, with B the best last value of the runs before it. The margin m is calibrated: the
best run of a past task needed the smallest m with which it is not stopped at any u, where B is that
of all runs before it. m is the ceil((1 - delta)(k + 1))-th smallest of what k past tasks needed. If
tasks are exchangeable, the best run of a new task is stopped with probability at most delta
(``docs/guide/curves.md``): stopping other runs can only lower B, and s does not depend on it. What
a past task needed is computed with a, b and q of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, isfinite
from typing import Any

import numpy as np

from metakel._arrays import TINY, Array, is_number
from metakel._codec import decode, encode
from metakel._files import Format, write_file
from metakel.errors import InputError

FORMAT = Format("metakel.CurveModel", version=1, noun="model of curves")
GRID = 20
FIRST = 0.1  # share of the steps that every run makes
FEWEST_RUNS = 4  # of a task, before one is stopped
USUAL = 0.75  # quantile of what is still to come
LEAST = 0.02  # of the spread: what may always come
ENOUGH = 8  # finished runs, before curves can contradict the past
CHANCE = 0.01  # of so many misses, where tasks have as many as the worst past ones

Curve = Mapping[int, float]


@dataclass(frozen=True, eq=False)
class Decision:
    """What is said of a run after some of its steps.

    Parameters
    ----------
    stop : bool
    expected, low, high : float
        Of its last value; infinite where nothing is known yet.
    reason : str
        Why it is stopped, or why it is not.
    """

    stop: bool
    expected: float
    low: float
    high: float
    reason: str

    def __bool__(self) -> bool:
        return self.stop

    def __str__(self) -> str:
        return f"{'stop' if self.stop else 'go on'}: {self.reason}"


@dataclass(frozen=True, eq=False)
class CurveModel:
    """What past tasks say of how runs go on.

    Parameters
    ----------
    shape : (3, GRID) array
        After each share of the steps, in units of the spread of a task: what is still to come is
        the first plus the second times what the last half of the steps gained, and usually at most
        the third more.
    margins : (k,) array, increasing
        What the best run of each past task needed, so as not to be stopped.
    misses : (k,) array, increasing
        On each past task, the share of runs that ended above what the margin of the others allows.
    steps : int
        The usual number of steps of a run.
    minimize : bool
    delta : float
        Probability with which the best run of a task may be stopped.
    tolerance : float
        By how much a run would have to become the best to count, in units of the spread.
    """

    shape: Array
    margins: Array
    misses: Array
    steps: int
    minimize: bool
    delta: float = 0.05
    tolerance: float = 0.0

    @classmethod
    def learn(
        cls,
        tasks: Sequence[Sequence[Curve]],
        *,
        minimize: bool,
        delta: float = 0.05,
        tolerance: float = 0.0,
    ) -> CurveModel:
        """From the curves of past tasks, each in the order in which its runs were made.

        Parameters
        ----------
        tasks : sequence of sequences of dict
            Values by step. Runs that were stopped early, and values that are not finite, are left
            out of what is learned.
        """
        if not 0 < delta < 1:
            raise InputError(f"delta is {delta}; expected a number between 0 and 1")
        if not (is_number(tolerance) and tolerance >= 0):
            raise InputError(f"tolerance is {tolerance!r}; expected a number >= 0")
        sign = -1.0 if minimize else 1.0
        lengths = [max(curve) for task in tasks for curve in task if curve]
        if not lengths:
            raise InputError("there are no curves; expected values at several steps")
        found = [_on_grid(task, sign) for task in tasks]
        found = [curves for curves in found if len(curves) > FEWEST_RUNS and _spread(curves) > 0]
        if len(found) < 2:
            raise InputError(
                f"{len(found)} tasks have more than {FEWEST_RUNS} whole curves that differ; "
                "expected two tasks at least"
            )
        rest, trends = [_remaining(c) for c in found], [_trend(c) for c in found]
        margins = []
        for s, curves in enumerate(found):
            others = [k for k in range(len(found)) if k != s]
            shape = _fit([trends[k] for k in others], [rest[k] for k in others])
            margins.append(_needed(curves, shape, tolerance))
        order, (intercept, slope, size) = np.sort(margins), _fit(trends, rest)
        most = min(_quantile(order, delta), 1e9) * size
        misses = [
            float((r - intercept - slope * t > most).any(axis=1).mean())
            for t, r in zip(trends, rest, strict=True)
        ]
        return cls(
            shape=np.array([intercept, slope, size]),
            margins=order,
            misses=np.sort(misses),
            steps=int(np.median(lengths)),
            minimize=minimize,
            delta=float(delta),
            tolerance=float(tolerance),
        )

    @property
    def margin(self) -> float:
        """By how many usual sizes a run may still gain; infinite with too few past tasks."""
        return _quantile(self.margins, self.delta)

    def at(self, delta: float, tolerance: float | None = None) -> CurveModel:
        """The same model with another probability that the best run is stopped."""
        if not 0 < delta < 1:
            raise InputError(f"delta is {delta}; expected a number between 0 and 1")
        if tolerance not in (None, self.tolerance):
            raise InputError(
                f"tolerance is {tolerance}, but margins were calibrated for {self.tolerance:g}; "
                "learn the model again"
            )
        return replace(self, delta=float(delta))

    def predict(
        self, curve: Curve, earlier: Sequence[Curve], steps: int | None = None
    ) -> tuple[float, float]:
        """The last value to be expected of a run, and its usual deviation from that.

        Parameters
        ----------
        curve : dict
            Values by step, so far.
        earlier : sequence of dict
            Curves of the task before it, stopped ones included.
        steps : int, optional
            Of the whole run; by default as usual in the past.
        """
        sign = -1.0 if self.minimize else 1.0
        place = self._place(curve, steps)
        scale = _spread(self._starts(earlier, steps))
        if place is None or not isfinite(scale):
            return np.nan, inf
        value, coming, size = self._ahead(curve, place, scale)
        return sign * (value + coming), size

    def decide(self, curve: Curve, earlier: Sequence[Curve], steps: int | None = None) -> Decision:
        """Whether to stop a run; see `predict` for the arguments.

        ``earlier`` are runs of the same task, in the order in which they began.
        """
        sign = -1.0 if self.minimize else 1.0
        place = self._place(curve, steps)
        if place is None:
            return _unsure("too few steps to tell")
        if self._ended(curve, steps):
            return _unsure("it has made all its steps")
        whole = [c for c in earlier if self._ended(c, steps)]
        starts = self._starts(earlier, steps)
        scale = _spread(starts)
        if len(starts) < FEWEST_RUNS or not whole or not scale > 0:
            return _unsure(f"fewer than {FEWEST_RUNS} earlier runs to compare with")
        margin = self.margin
        if not isfinite(margin):
            return _unsure(f"{len(self.margins)} past tasks cannot vouch at delta = {self.delta:g}")
        if self.contradicted(whole, steps):
            return _unsure("curves of this task contradict those of the past")
        value, coming, size = self._ahead(curve, place, scale)
        best = max(sign * float(c[max(c)]) for c in whole)
        expected = value + coming
        least, most = expected - margin * size, expected + margin * size
        ends = sorted((sign * least, sign * most))
        stop = bool(most < best - self.tolerance * scale)
        reason = (
            f"at best {sign * most:.4g} is to be expected, and {sign * best:.4g} was reached"
            if stop
            else f"it may still reach {sign * most:.4g}, and {sign * best:.4g} is the best so far"
        )
        return Decision(stop, sign * expected, ends[0], ends[1], reason)

    def contradicted(self, whole: Sequence[Curve], steps: int | None = None) -> bool:
        """Whether more finished runs ended above their bounds than chance allows for.

        By a binomial test against the share of misses that all but delta of past tasks have.
        """
        from scipy.special import bdtrc

        sign = -1.0 if self.minimize else 1.0
        curves = _on_grid(whole, sign)
        if len(curves) < ENOUGH:
            return False
        scale = _spread(curves)
        if not scale > 0:
            return False
        intercept, slope, size = self.shape
        above = _remaining(curves) - intercept - slope * _trend(curves) > self.margin * size
        count, usual = int(above.any(axis=1).sum()), min(_quantile(self.misses, self.delta), 1.0)
        return bool(count and bdtrc(count - 1, len(curves), usual) < CHANCE)

    def _ahead(
        self, curve: Curve, place: tuple[int, int], scale: float
    ) -> tuple[float, float, float]:
        """The value so far, what is to be expected of the rest, and its usual size."""
        sign = -1.0 if self.minimize else 1.0
        step, u = place
        halfway = max((s for s in curve if s <= step / 2), default=min(curve))
        value = sign * float(curve[step])
        trend = value - sign * float(curve[halfway])
        intercept, slope, size = self.shape[:, u]
        return value, float(intercept * scale + slope * trend), float(size * scale)

    def _starts(self, earlier: Sequence[Curve], steps: int | None) -> Array:
        """(n, 1) values of runs after the first share of their steps, which every run makes."""
        sign, total = -1.0 if self.minimize else 1.0, steps or self.steps
        firsts = []
        for curve in earlier:
            known = [step for step in curve if step <= FIRST * total * (1 + 1e-9)] or [
                min(curve, default=0)
            ]
            value = curve.get(max(known), np.nan)
            if is_number(value) and isfinite(value) and max(curve) >= FIRST * total:
                firsts.append([sign * float(value)])
        return np.array(firsts).reshape(-1, 1)

    def _ended(self, curve: Curve, steps: int | None) -> bool:
        return bool(curve) and max(curve) >= (steps or self.steps) and _finite(curve)

    def _place(self, curve: Curve, steps: int | None) -> tuple[int, int] | None:
        """The last share of the grid that is reached, and the step of its value.

        What happened after it says nothing yet: margins were calibrated at the shares of the grid.
        """
        if not curve or not _finite(curve):
            return None
        total = steps or self.steps
        u = min(int(GRID * max(curve) / total + 1e-9), GRID) - 1
        if u < START:
            return None
        known = [step for step in curve if step <= (u + 1) / GRID * total * (1 + 1e-9)]
        return (max(known), u) if known else None

    def save(self, path: Any) -> None:
        """Write one versioned JSON file."""
        write_file(path, FORMAT.dump(encode(self)))

    @classmethod
    def load(cls, path: Any) -> CurveModel:
        """Read what `save` wrote."""
        with FORMAT.read_file(path) as content:
            return decode(cls, content, str(path))

    def __repr__(self) -> str:
        return (
            f"CurveModel({len(self.margins)} tasks, {self.steps} steps, delta={self.delta:g}, "
            f"margin={self.margin:.3g})"
        )


def from_one(values: Curve) -> dict[int, float]:
    """Values by step, counted from one: a first step of 0 has been made once it is reported."""
    shift = 1 if min(values, default=1) == 0 else 0
    return {step + shift: float(value) for step, value in values.items()}


def _unsure(reason: str) -> Decision:
    return Decision(False, np.nan, -inf, inf, reason)


def _finite(curve: Curve) -> bool:
    return all(is_number(value) and isfinite(value) for value in curve.values())


def _on_grid(task: Sequence[Curve], sign: float) -> Array:
    """(n, GRID) values of whole curves after each share of their own steps; larger is better."""
    shares = np.arange(1, GRID + 1) / GRID
    rows = []
    for curve in task:
        if len(curve) < 2 or not _finite(curve):
            continue
        steps = np.array(sorted(curve), dtype=np.float64)
        values = sign * np.array([float(curve[int(step)]) for step in steps])
        # The last value that is known after a share of the steps; none is looked ahead of.
        places = np.searchsorted(steps, shares * steps[-1], side="right") - 1
        rows.append(values[np.maximum(places, 0)])
    return np.array(rows).reshape(-1, GRID)


START = ceil(FIRST * GRID) - 1


def _spread(curves: Array) -> float:
    """Half the range of the middle two thirds of the values after the first share."""
    if len(curves) < 2:
        return 0.0
    column = curves[:, min(START, curves.shape[1] - 1)]
    low, high = np.quantile(column, [1 / 6, 5 / 6])
    return float(high - low) / 2


def _remaining(curves: Array) -> Array:
    """(n, GRID) what is still to come, in units of the spread."""
    return np.asarray((curves[:, -1:] - curves) / _spread(curves))


def _trend(curves: Array) -> Array:
    """(n, GRID) what the second half of the steps so far has gained, in units of the spread."""
    halves = np.maximum(np.arange(1, GRID + 1) // 2 - 1, 0)
    return np.asarray((curves - curves[:, halves]) / _spread(curves))


def _line(trend: Array, remaining: Array) -> tuple[Array, Array]:
    """(GRID,) intercepts and slopes of what is still to come, by what came last."""
    x, y = trend - trend.mean(axis=0), remaining - remaining.mean(axis=0)
    slope = (x * y).sum(axis=0) / np.maximum((x * x).sum(axis=0), TINY)
    return remaining.mean(axis=0) - slope * trend.mean(axis=0), slope


def _size(beyond: Array) -> Array:
    """(GRID,) usual size of what came beyond the line."""
    return np.asarray(np.maximum(np.quantile(np.maximum(beyond, 0), USUAL, axis=0), LEAST))


def _fit(trends: Sequence[Array], rest: Sequence[Array]) -> tuple[Array, Array, Array]:
    trend, remaining = np.concatenate(trends), np.concatenate(rest)
    intercept, slope = _line(trend, remaining)
    return intercept, slope, _size(remaining - intercept - slope * trend)


def _needed(curves: Array, shape: tuple[Array, Array, Array], tolerance: float) -> float:
    """The margin that the best run of a task needs, so that it is not stopped."""
    best = int(np.argmax(curves[:, -1]))
    if best < FEWEST_RUNS:
        return 0.0  # it ran before any could be stopped
    scale = _spread(curves[:best])
    if not scale > 0:
        return 0.0
    intercept, slope, size = shape
    before = float(curves[:best, -1].max())
    halves = np.maximum(np.arange(1, GRID + 1) // 2 - 1, 0)
    run = curves[best]
    expected = run + intercept * scale + slope * (run - run[halves])
    behind = (before - tolerance * scale - expected) / (size * scale)
    return max(float(behind[START:].max()), 0.0)


def _quantile(ordered: Array, delta: float) -> float:
    """The ceil((1 - delta)(k + 1))-th smallest; infinite where there are too few."""
    rank = ceil((1 - delta) * (len(ordered) + 1) - 1e-9)
    return float(ordered[rank - 1]) if rank <= len(ordered) else inf
