r"""Learning curves of past tasks: how runs go on, and which may be stopped.

A run has values at steps: epochs, rounds of boosting, rows. Let c(u) be its value after the share u
of its steps and f its last one, larger being better. What is still to come, f - c(u), is measured
by what came last: the pace w = max(c(u) - c(u/2), 0) + `STILL` s, where s is the spread of earlier
runs of the task after the first share `FIRST` of their steps, which every run makes. A slow run
gains evenly to its end, one that has levelled off gains little. More than q w was rarely still to
come of the best runs of past tasks, with q for every u on a grid; other runs may be stopped.

A run is stopped after the share u where its bound c(u) + m q w is below B - tolerance, with B the
best last value of the runs before it. The margin m is calibrated by replays: the best run of a past
task needed the smallest m with which it is not stopped at any u, where B is that of all runs before
it. m is the ceil((1 - delta)(k + 1))-th smallest of what k past tasks needed. If tasks are
exchangeable, the best run of a new task is stopped with probability at most delta (Theorem 21,
``docs/theory``): stopping other runs can only lower B, and s does not depend on it. What a past
task needed is computed with q of the others.

Curves contradict the past where finished runs gained too much: the median of by how many q w
exceeds what all but `FALSE_ALARM` of past tasks reached after any number of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import TINY, Array, as_number, is_integer, is_number, probability, shown
from metakel._files import Format, decode, encode, write_file
from metakel.errors import InputError

FORMAT = Format("metakel.CurveModel", version=3, noun="model of curves")
GRID = 20
FIRST = 0.1  # share of the steps that every run makes
FEWEST_RUNS = 2  # of a task that are made to their end, before one is stopped
TEACHING = 5  # runs that a past task has at least
BEST = 10  # runs of a task that say what the best one may still gain
RARE = 0.9  # quantile of what they gain, over their pace
STILL = 0.3  # of the spread: the pace of a run that stands still
DEVIATION = 0.68  # quantile of how far ends of all runs are from their line
LEAST = 0.02  # of pace or spread: what may always come
FALSE_ALARM = 0.05  # of tasks like the past ones, on which curves seem to contradict them

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
    never : bool
        Whether that holds for all runs of the task from now on.
    """

    stop: bool
    expected: float
    low: float
    high: float
    reason: str
    never: bool = False

    def __bool__(self) -> bool:
        return self.stop

    def __str__(self) -> str:
        return f"{'stop' if self.stop else 'go on'}: {self.reason}"


@dataclass(frozen=True, eq=False)
class CurveModel:
    """What past tasks say of how runs go on.

    Parameters
    ----------
    gains : (GRID,) array
        What is rarely still to come of the best runs after each share of the steps, over their
        pace.
    usual : (3, GRID) array
        What is still to come of all runs, in units of the spread of a task: the first plus the
        second times what the last half of the steps gained, and it is usually off by the third.
    margins : (k,) array, increasing
        What the best run of each past task needed, so as not to be stopped.
    surprises : (k,) array, increasing
        On each past task, the largest median of what its first runs gained, in units of
        what is rarely gained.
    steps : int
        The usual number of steps of a run.
    minimize : bool
    delta : float
        Probability with which the best run of a task may be stopped.
    tolerance : float
        By how much a run would have to become the best to count, in units of the spread.
    """

    gains: Array
    usual: Array
    margins: Array
    surprises: Array
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
        check_risk(delta, tolerance)
        sign = -1.0 if minimize else 1.0
        lengths = [max(curve) for task in tasks for curve in task if curve]
        if not lengths:
            raise InputError("there are no curves; expected values at several steps")
        found = [_on_grid(task, sign) for task in tasks]
        found = [curves for curves in found if len(curves) >= TEACHING and _spread(curves) > 0]
        if len(found) < 2:
            raise InputError(
                f"{len(found)} tasks have {TEACHING} or more whole curves that differ; "
                "expected two tasks at least"
            )
        gained = [_gained(curves, _spread(curves))[_best_runs(curves)] for curves in found]
        margins, surprises = [], []
        for s, curves in enumerate(found):
            others = _rare([gained[k] for k in range(len(found)) if k != s])
            margins.append(_needed(curves, others, tolerance))
            firsts = (curves[:n] for n in range(FEWEST_RUNS, len(curves) + 1))
            surprises.append(max(_surprise(c, others, _spread(c)) for c in firsts))
        return cls(
            gains=_rare(gained),
            usual=_usual(found),
            margins=np.sort(margins),
            surprises=np.sort(surprises),
            steps=int(np.median(lengths)),
            minimize=minimize,
            delta=float(delta),
            tolerance=float(tolerance),
        )

    @property
    def margin(self) -> float:
        """How many times what is rarely gained a run may gain; infinite with too few past tasks."""
        rank = ceil((1 - self.delta) * (len(self.margins) + 1) - 1e-9)
        return float(self.margins[rank - 1]) if rank <= len(self.margins) else inf

    def at(self, delta: float, tolerance: float | None = None) -> CurveModel:
        """The same model with another probability that the best run is stopped."""
        check_risk(delta, 0.0 if tolerance is None else tolerance)
        if tolerance not in (None, self.tolerance):
            raise InputError(
                f"tolerance is {tolerance}, but margins were calibrated for {self.tolerance:g}; "
                "learn the model again"
            )
        return replace(self, delta=float(delta))

    def check_goal(self, minimize: bool, whose: str) -> None:
        """Refuse to judge runs of a task with the other goal."""
        if self.minimize != minimize:
            words = ("minimised", "maximises") if self.minimize else ("maximised", "minimises")
            raise InputError(
                f"the curves were {words[0]}, but {whose} {words[1]}; expected the same"
            )

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
        u = self._place(curve, steps)
        scale = _spread(self._starts(earlier, steps))
        if u is None or not isfinite(scale):
            return np.nan, inf
        value, trend = self._seen(curve, u, steps)
        intercept, slope, off = self.usual[:, u]
        return sign * float(value + intercept * scale + slope * trend), float(off * scale)

    def decide(self, curve: Curve, earlier: Sequence[Curve], steps: int | None = None) -> Decision:
        """Whether to stop a run; see `predict` for the arguments.

        ``earlier`` are runs of the same task, in the order in which they began.
        """
        return self.beside(earlier, steps)(curve)

    def beside(
        self, earlier: Sequence[Curve], steps: int | None = None
    ) -> Callable[[Curve], Decision]:
        """`decide` beside the same earlier runs again and again, after every value of a run."""
        sign = -1.0 if self.minimize else 1.0
        whole = [c for c in earlier if self._ended(c, steps)]
        starts = self._starts(earlier, steps)
        scale, margin = _spread(starts), self.margin
        best = max((sign * float(c[max(c)]) for c in whole), default=nan)
        contradicted = cache(lambda: self.contradicted(earlier, steps))

        def decided(curve: Curve) -> Decision:
            u = self._place(curve, steps)
            if u is None:
                return _unsure("too few steps to tell")
            if self._ended(curve, steps):
                return _unsure("it has made all its steps")
            if len(starts) < FEWEST_RUNS or not whole or not scale > 0:
                return _unsure(f"fewer than {FEWEST_RUNS} earlier runs to compare with")
            if not isfinite(margin):
                tasks = len(self.margins)
                reason = f"{tasks} past tasks cannot vouch at delta = {self.delta:g}"
                return _unsure(reason, never=True)
            value, trend = self._seen(curve, u, steps)
            size = float(self.gains[u] * _pace(trend, scale))
            intercept, slope, _ = self.usual[:, u]
            expected = float(value + intercept * scale + slope * trend)
            most = value + margin * size
            least = min(expected - margin * size, most)
            ends = sorted((sign * least, sign * most))
            stop = bool(most < best - self.tolerance * scale)
            if stop and contradicted():
                return _unsure("curves of this task contradict those of the past", never=True)
            reason = (
                f"at best {sign * most:.4g} is to be expected, and {sign * best:.4g} was reached"
                if stop
                else f"it may still reach {sign * most:.4g}, and {sign * best:.4g} is the best "
                "so far"
            )
            return Decision(stop, sign * expected, ends[0], ends[1], reason)

        return decided

    def contradicted(self, earlier: Sequence[Curve], steps: int | None = None) -> bool:
        """Whether finished runs of the task gained more than those of nearly all past tasks.

        On tasks like the past ones it rings for at most `FALSE_ALARM` of them.
        """
        sign = -1.0 if self.minimize else 1.0
        curves = _on_grid([c for c in earlier if self._ended(c, steps)], sign)
        scale = _spread(self._starts(earlier, steps))
        if len(curves) < FEWEST_RUNS or not scale > 0:
            return False
        rank = min(ceil((1 - FALSE_ALARM) * (len(self.surprises) + 1)), len(self.surprises))
        return _surprise(curves, self.gains, scale) > float(self.surprises[rank - 1])

    def _seen(self, curve: Curve, u: int, steps: int | None) -> tuple[float, float]:
        """The value so far, and what the last half of the steps gained."""
        sign, steps = -1.0 if self.minimize else 1.0, steps or self.steps
        value = sign * _value_at(curve, u, steps)
        return value, value - sign * _value_at(curve, HALVES[u], steps)

    def _starts(self, earlier: Sequence[Curve], steps: int | None) -> Array:
        """(n, 1) values of runs after the first share of their steps, which every run makes."""
        sign, total = -1.0 if self.minimize else 1.0, steps or self.steps
        made = [curve for curve in earlier if curve and max(curve) >= FIRST * total]
        firsts = [sign * _value_at(curve, START, total) for curve in made]
        return np.array([value for value in firsts if isfinite(value)]).reshape(-1, 1)

    def _ended(self, curve: Curve, steps: int | None) -> bool:
        return bool(curve) and max(curve) >= (steps or self.steps) and _finite(curve)

    def _place(self, curve: Curve, steps: int | None) -> int | None:
        """The last share of the grid that is reached.

        What happened after it says nothing yet: margins were calibrated at the shares of the grid.
        """
        if not curve or not _finite(curve):
            return None
        u = min(int(GRID * max(curve) / (steps or self.steps) + 1e-9), GRID) - 1
        return u if u >= START else None

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


def check_risk(delta: Any, tolerance: Any) -> None:
    """Refuse what is no probability, or no tolerance."""
    probability("delta", delta)
    as_number("tolerance", tolerance, 0)


def from_one(values: Curve) -> dict[int, float]:
    """Values by step, counted from one: a first step of 0 has been made once it is reported."""
    shift = 1 if min(values, default=1) == 0 else 0
    return {step + shift: float(value) for step, value in values.items()}


def as_curve(values: Mapping[int, Any] | None) -> dict[int, float]:
    """Values by step, from step one on, in their order; nan where there is none."""
    if values is not None and not isinstance(values, Mapping):
        raise InputError(f"the curve is {shown(values)}; expected values by step, as in {{1: 0.5}}")
    steps = list(values or {})
    if not all(is_integer(step) and step > 0 for step in steps):
        raise InputError(f"the curve has the steps {steps[:5]}; expected whole numbers > 0")
    return {int(step): _number((values or {})[step], step) for step in sorted(steps)}


def _number(value: Any, step: int) -> float:
    found = value.item() if hasattr(value, "item") else value
    if found is None:
        return nan
    if not is_number(found):
        raise InputError(f"the curve has {shown(value)} at step {step}; expected a number, or nan")
    return float(found)


def _unsure(reason: str, *, never: bool = False) -> Decision:
    return Decision(False, np.nan, -inf, inf, reason, never)


def _finite(curve: Curve) -> bool:
    # Nearly all values are floats, of which the look at their type is a tenth of the time.
    return all((type(v) is float or is_number(v)) and isfinite(v) for v in curve.values())


def _value_at(curve: Curve, u: int, total: int) -> float:
    """The last value that is known after a share of the steps, and the first where none is."""
    known = [step for step in curve if step <= SHARES[u] * total]
    value = curve[max(known, default=min(curve))]
    return float(value) if is_number(value) else nan


def _on_grid(task: Sequence[Curve], sign: float) -> Array:
    """(n, GRID) values of whole curves after each share of their own steps; larger is better."""
    rows = []
    for curve in task:
        if len(curve) < 2 or not _finite(curve):
            continue
        steps = np.array(sorted(curve), dtype=np.float64)
        values = sign * np.array([float(curve[int(step)]) for step in steps])
        # The last value that is known after a share of the steps; none is looked ahead of.
        places = np.searchsorted(steps, SHARES * steps[-1], side="right") - 1
        rows.append(values[np.maximum(places, 0)])
    return np.array(rows).reshape(-1, GRID)


START = ceil(FIRST * GRID) - 1
SHARES = np.arange(1, GRID + 1) / GRID * (1 + 1e-9)  # a whole step is not missed by rounding
HALVES = np.maximum(np.arange(1, GRID + 1) // 2 - 1, 0)


def _spread(curves: Array) -> float:
    """Half the range of the middle two thirds of the values after the first share."""
    if len(curves) < 2:
        return 0.0
    column = curves[:, min(START, curves.shape[1] - 1)]
    low, high = np.quantile(column, [1 / 6, 5 / 6])
    return float(high - low) / 2


def _pace(trend: Any, scale: float) -> Any:
    return np.maximum(trend, 0) + STILL * scale


def _gained(curves: Array, scale: float) -> Array:
    """(n, GRID) what was still to come of runs, over their pace."""
    return np.asarray((curves[:, -1:] - curves) / _pace(curves - curves[:, HALVES], scale))


def _best_runs(curves: Array) -> NDArray[np.intp]:
    return np.argsort(-curves[:, -1], kind="stable")[:BEST]


def _rare(gained: Sequence[Array]) -> Array:
    """(GRID,) what is rarely still to come of the best runs of tasks, over their pace."""
    return np.maximum(np.quantile(np.concatenate(gained), RARE, axis=0), LEAST)


def _usual(tasks: Sequence[Array]) -> Array:
    """(3, GRID) the line of what is still to come, by what came last, and how far it is off."""
    scaled = [curves / _spread(curves) for curves in tasks]
    x = np.concatenate([curves - curves[:, HALVES] for curves in scaled])
    y = np.concatenate([curves[:, -1:] - curves for curves in scaled])
    centered = x - x.mean(axis=0)
    slope = (centered * y).sum(axis=0) / np.maximum((centered * centered).sum(axis=0), TINY)
    intercept = y.mean(axis=0) - slope * x.mean(axis=0)
    off = np.quantile(np.abs(y - intercept - slope * x), DEVIATION, axis=0)
    return np.array([intercept, slope, np.maximum(off, LEAST)])


def _surprise(curves: Array, gains: Array, scale: float) -> float:
    """The median over runs of the most that they gained, in units of what is rarely gained."""
    if not scale > 0:
        return 0.0
    return float(np.median((_gained(curves, scale) / gains)[:, START:-1].max(axis=1)))


def _needed(curves: Array, gains: Array, tolerance: float) -> float:
    """The margin that the best run of a task needs, so that it is not stopped."""
    best = int(np.argmax(curves[:, -1]))
    if best < FEWEST_RUNS:
        return 0.0  # it ran before any could be stopped
    scale = _spread(curves[:best])
    if not scale > 0:
        return 0.0
    before, run = float(curves[:best, -1].max()), curves[best]
    behind = (before - tolerance * scale - run) / (gains * _pace(run - run[HALVES], scale))
    return max(float(behind[START:].max()), 0.0)
