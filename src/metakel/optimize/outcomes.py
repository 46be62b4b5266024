"""What the trials of a record mean for a model: the one policy, decided here and nowhere else.

`OutputScale` says how a model sees a value, and `outcomes` which values it sees.

==============  =====================  =================================  ===================
state           evidence               fantasy                            counts for the best
==============  =====================  =================================  ===================
complete        its value              no                                 yes
infeasible      its value              no                                 no
failed          none                   yes: the search keeps away         no
stopped         none                   yes: the search keeps away         no
pending         none                   yes: the search keeps away         no
dropped         none                   no                                 no
==============  =====================  =================================  ===================

A run without a value changes no evidence: weights of models and confidence sets are the same with
and without it. Every point that was asked for is closed: it is not asked for again where the domain
does not repeat points. Constraints of all finished runs, failed ones included, inform where they
hold.

A Gaussian process takes up to `MOST` values: the time of one suggestion grows with their square,
and that of opening a record with the cube. Predictions and decisions of longer records use a part
of all values:

- every value since the last multiple of `BLOCK`,
- of those before, `NEAREST` at the points nearest to the best one, and as many of the others as
  there is room for, evenly spaced over the run.

Which they are depends on the record alone, so that a restart decides the same. They change once in
`BLOCK` values; until then, a new value is added to those that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, as_number
from metakel.errors import InputError
from metakel.optimize.record import Record, Trial


@dataclass(frozen=True)
class OutputScale:
    """From values as users measure them to values as a model takes them in, and back."""

    minimize: bool = False  # whether smaller is better
    # If it is positive, a model takes in logarithms, and smaller values count as this one.
    floor: float = 0.0

    def __post_init__(self) -> None:
        as_number("floor of a logarithm", self.floor, 0)

    @property
    def log(self) -> bool:
        """Whether a model takes in logarithms."""
        return self.floor > 0

    @property
    def _sign(self) -> float:
        return -1.0 if self.minimize else 1.0

    def to_model(self, values: Any) -> Array:
        """As a model takes them in: larger is better."""
        found = np.asarray(values, dtype=np.float64)
        self.refuse_negative(found)
        return self._sign * (np.log(np.maximum(found, self.floor)) if self.log else found)

    def refuse_negative(self, values: Any) -> None:
        """No value of an output that is learned on a log scale is below 0."""
        least = np.min(values, initial=0.0, where=np.isfinite(values)) if self.log else 0.0
        if least < 0:
            raise InputError(
                f"the value is {least:g}; expected a positive number, as the past was learned on a "
                "log scale. Of an error, tell the error and not its negative; where values below 0 "
                "are right, learn with log_output=False (--no-log-output)"
            )

    def from_model(self, values: Any) -> Array:
        """As users measure them."""
        found = self._sign * np.asarray(values, dtype=np.float64)
        if not self.log:
            return found
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(found))

    def value(self, value: float) -> float:
        """`from_model` of one value."""
        return float(self.from_model(value)) + 0.0  # and no -0

    def interval(self, lower: Any, upper: Any) -> tuple[Array, Array]:
        """Ends as users measure them, from those of a model."""
        low, high = self.from_model(lower), self.from_model(upper)
        return (high, low) if self.minimize else (low, high)

    def range(self, low: float, high: float) -> tuple[float, float]:
        """The range of the output as that of a model; a logarithm of 0 is no end."""
        if not self.log:
            return (-high, -low) if self.minimize else (low, high)
        with np.errstate(divide="ignore"):
            lower, upper = float(np.log(max(low, 0.0))), float(np.log(high))
        return (-upper, -lower) if self.minimize else (lower, upper)

    def noise(self, values: Any, noise_std: Any) -> Array:
        """The noise of observed values, as a model takes it in."""
        found = np.asarray(noise_std, dtype=np.float64)
        return found / np.maximum(values, self.floor) if self.log else found

    def deviation(self, mean: Any, sd: Any) -> Array:
        """The standard deviation about a mean of the model, to first order."""
        return np.asarray(sd * self.from_model(mean) if self.log else sd)

    def difference(self, best: float, gain: float) -> float:
        """How much better than ``best`` a value is that a model sees better by ``gain``."""
        if not self.log or not np.isfinite(gain):
            return gain
        return abs(self.value(best + gain) - self.value(best))


MOST = 512
BLOCK = 128
NEAREST = (MOST - BLOCK) // 2
BATCH = 64  # results of one call; more than these are one batch
FINISHED = ("complete", "infeasible", "failed", "stopped")
Measured = tuple[tuple[Array, Mapping[str, float]], ...]  # points, and numbers by name


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Parameters
    ----------
    numbers : tuple of int
        The trials whose values were observed.
    X : (t, d0) array
        Where values were observed, in the order of the trials.
    y : (t,) array
        The values, in the sign to be maximised.
    noise_std : (t,) array
        Noise of each; nan where it is that of the model.
    counts : (t,) array of bool
        Which of them may be the best.
    ends : tuple of int
        Number of values after each batch: most often one by one, those of a very large call
        together, as a confidence sequence takes them in at once.
    constraints : tuple of (x, dict)
        What is known of the constraints.
    outputs : tuple of (x, dict)
        What was measured beside the objective.
    failed, pending : (q, d0) arrays
        Points of runs without a value: for good, and so far.
    closed : (k, d0) array
        Points not to be asked for again; those with the best values last.
    """

    numbers: tuple[int, ...]
    X: Array
    y: Array
    noise_std: Array
    counts: NDArray[np.bool_]
    ends: tuple[int, ...]
    constraints: Measured
    outputs: Measured
    failed: Array
    pending: Array
    closed: Array

    @property
    def t(self) -> int:
        """Number of values."""
        return len(self.y)

    @cached_property
    def fantasies(self) -> Array:
        """(q, d0) points of runs without a value, each once."""
        if not len(self.failed) and not len(self.pending):
            return self.pending
        return _distinct(np.concatenate([self.failed, self.pending]))

    def first(self, t: int) -> Outcomes:
        """The first ``t`` values alone."""
        return self.taking(range(t))

    def taking(self, rows: Sequence[int]) -> Outcomes:
        """These values alone, in this order."""
        at, none = np.array(rows, dtype=int), self.failed[:0]
        numbers, ends = tuple(self.numbers[row] for row in rows), tuple(range(1, len(at) + 1))
        values = (numbers, self.X[at], self.y[at], self.noise_std[at], self.counts[at])
        return Outcomes(*values, ends, (), (), none, none, none)

    def of_output(self, name: str) -> Outcomes:
        """The outcomes of another output, as a model of it takes them in."""
        seen = [(x, values[name]) for x, values in self.outputs if name in values]
        t = len(seen)
        return replace(
            self,
            numbers=tuple(range(t)),
            X=_points((x for x, _ in seen), self.X.shape[1]),
            y=np.array([value for _, value in seen], dtype=np.float64),
            noise_std=np.full(t, np.nan),
            counts=np.ones(t, dtype=bool),
            ends=tuple(range(1, t + 1)),
            constraints=(),
            outputs=(),
        )

    def shared(self, other: Outcomes) -> int:
        """How many values both begin with, noise included."""
        t = min(self.t, other.t)
        same = (self.X[:t] == other.X[:t]).all(axis=1) & (self.y[:t] == other.y[:t])
        noise, theirs = self.noise_std[:t], other.noise_std[:t]
        same &= (noise == theirs) | (np.isnan(noise) & np.isnan(theirs))
        return t if same.all() else int(np.argmin(same))


def outcomes(record: Record, *, d0: int, scale: OutputScale) -> Outcomes:
    """Apply the policy; ``scale`` says how a model sees the values.

    Evidence is ordered by the numbers of the trials, whatever the order in which it came. A point
    depends only on the values of trials with smaller numbers, so this order is a valid one for
    confidence sequences, and the same trials always give the same model, to the last bit.
    """
    trials = record.trials
    finished = [trial for trial in trials if trial.state in FINISHED]
    seen = [trial for trial in finished if trial.value is not None]

    def points(some: Iterable[Trial]) -> Array:
        return _points((trial.x for trial in some), d0)

    def height(trial: Trial) -> float:
        return -inf if trial.value is None else (-trial.value if scale.minimize else trial.value)

    values = np.array([trial.value for trial in seen], float)
    noise = np.array([trial.noise_std for trial in seen], float)  # None becomes nan
    return Outcomes(
        numbers=tuple(trial.number for trial in seen),
        X=points(seen),
        y=scale.to_model(values),
        noise_std=scale.noise(values, noise),
        counts=np.array([trial.state == "complete" for trial in seen], dtype=bool),
        ends=_ends(record, seen),
        constraints=tuple((t.x, t.constraints) for t in finished if t.constraints),
        outputs=tuple((t.x, t.outputs) for t in finished if t.outputs),
        failed=points(trial for trial in finished if trial.state in ("failed", "stopped")),
        pending=points(trial for trial in trials if trial.state == "pending"),
        closed=_points([x for trial in sorted(trials, key=height) for x in trial.closes], d0),
    )


def _ends(record: Record, seen: list[Trial]) -> tuple[int, ...]:
    large = [step for step in record.steps if len(step) > BATCH]
    call = {number: i for i, step in enumerate(large) for number in step}
    calls = [call.get(trial.number, -1) for trial in seen]
    last = [one < 0 or one != other for one, other in pairwise([*calls, -1])]
    return tuple(i + 1 for i, ends in enumerate(last) if ends)


def nothing(d0: int) -> Outcomes:
    """The outcomes of an empty record."""
    return outcomes(Record(), d0=d0, scale=OutputScale())


def representative(outcomes: Outcomes) -> tuple[NDArray[np.intp], int]:
    """(k,) which values decide, at most `MOST` of all, and how many of them were selected."""
    since = BLOCK * (outcomes.t // BLOCK)
    y = np.where(outcomes.counts, outcomes.y, -np.inf)[:since]
    distance = ((outcomes.X[:since] - outcomes.X[int(np.argmax(y))]) ** 2).sum(axis=1)
    order = np.argsort(distance, kind="stable")
    others = np.sort(order[NEAREST:])
    room = MOST - BLOCK - NEAREST
    spaced = others[np.linspace(0, len(others) - 1, room).round().astype(np.intp)]
    base = np.sort(np.append(order[:NEAREST], spaced))
    return np.append(base, np.arange(since, outcomes.t)), len(base)


def _points(rows: Iterable[Array], d0: int) -> Array:
    return np.array(list(rows), dtype=np.float64).reshape(-1, d0)


def _distinct(X: Array) -> Array:
    """Without repetitions, in the order of the first ones."""
    return X[list({row.tobytes(): i for i, row in reversed(list(enumerate(X)))}.values())[::-1]]
