"""What a record means for a model: the one policy for runs with and without a value.

==============  =====================  =================================  ===================
state           evidence               fantasy                            counts for the best
==============  =====================  =================================  ===================
complete        its value              no                                 yes
infeasible      its value              no                                 no
failed          none                   yes: the search keeps away         no
pending         none                   yes: the search keeps away         no
forgotten       none                   no                                 no
==============  =====================  =================================  ===================

A run without a value changes no evidence: weights of models and confidence sets are the same with
and without it. Every point that was asked for is closed: it is not asked for again where the domain
does not repeat points. Constraints of all finished runs, failed ones included, inform where they
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.optimize.record import Record, Trial

# A call with more results than this is one step: models take it in at once, which is faster.
BULK = 64
FINISHED = ("complete", "infeasible", "failed")
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
        How many there are after each step; a model takes one step in at a time.
    constraints : tuple of (x, dict)
        What is known of the constraints.
    outputs : tuple of (x, dict)
        What was measured beside the objective.
    failed, pending : (q, d0) arrays
        Points of runs without a value: for good, and so far.
    closed : (k, d0) array
        Points not to be asked for again.
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
        """How many values were observed."""
        return len(self.y)

    @cached_property
    def fantasies(self) -> Array:
        """(q, d0) points of runs without a value, each once."""
        return _distinct(np.concatenate([self.failed, self.pending]))

    def of_output(self, name: str) -> Outcomes:
        """The outcomes of another output, as a model of it takes them in."""
        seen = [(x, values[name]) for x, values in self.outputs if name in values]
        t = len(seen)
        return replace(
            self,
            numbers=tuple(range(t)),
            X=_points([x for x, _ in seen], self.X.shape[1]),
            y=np.array([value for _, value in seen], dtype=np.float64),
            noise_std=np.full(t, np.nan),
            counts=np.ones(t, dtype=bool),
            ends=tuple(range(1, t + 1)),
            constraints=(),
            outputs=(),
        )

    def shared_steps(self, other: Outcomes) -> int:
        """How many steps of the evidence both begin with."""
        t = min(self.t, other.t)
        same = (self.X[:t] == other.X[:t]).all(axis=1) & (self.y[:t] == other.y[:t])
        noise, theirs = self.noise_std[:t], other.noise_std[:t]
        same &= (noise == theirs) | (np.isnan(noise) & np.isnan(theirs))
        alike = t if same.all() else int(np.argmin(same))
        shared = common_length(self.ends, other.ends)
        while shared and self.ends[shared - 1] > alike:
            shared -= 1
        return shared


def outcomes(
    record: Record, *, d0: int, sign: float, before: tuple[Record, Outcomes] | None = None
) -> Outcomes:
    """Apply the policy; ``sign`` is 1 to maximise, -1 to minimise.

    Evidence is ordered by the numbers of the trials, whatever the order in which it came. A point
    depends only on the values of trials with smaller numbers, so this order is a valid one for
    confidence sequences, and the same trials always give the same model, to the last bit.

    ``before`` is another record with its outcomes: what both begin with is taken from there.
    """
    known, found = before or (Record(), _nothing(d0))
    shared, bulk = _shared_trials(known, record), _end_of_bulk(record)
    if not shared or shared < bulk:
        known, found, shared = Record(), _nothing(d0), 0
    gone, new = known.trials[shared:], record.trials[shared:]
    if shared < bulk:
        steps = _steps(record)
    else:
        steps = [(trial,) for trial in new if trial.state in FINISHED]
    finished = [trial for step in steps for trial in step]
    seen = [trial for trial in finished if trial.value is not None]
    sizes = [sum(trial.value is not None for trial in step) for step in steps]
    t = found.t - sum(trial.value is not None for trial in gone)

    def points(kept: Array, chosen: Callable[[Trial], bool]) -> Array:
        kept = kept[: len(kept) - sum(map(chosen, gone))]
        return np.concatenate([kept, _points([trial.x for trial in new if chosen(trial)], d0)])

    def measured(kept: Measured, which: str) -> Measured:
        kept = kept[: len(kept) - sum(bool(getattr(trial, which)) for trial in gone)]
        return (*kept, *((r.x, getattr(r, which)) for r in finished if getattr(r, which)))

    return Outcomes(
        numbers=(*found.numbers[:t], *(trial.number for trial in seen)),
        X=np.concatenate([found.X[:t], _points([trial.x for trial in seen], d0)]),
        y=np.append(found.y[:t], sign * np.array([r.value for r in seen], dtype=np.float64)),
        noise_std=np.append(found.noise_std[:t], np.array([r.noise_std for r in seen], float)),
        counts=np.append(found.counts[:t], np.array([r.state == "complete" for r in seen], bool)),
        ends=(
            *found.ends[: len(found.ends) - (found.t - t)],
            *(t + end for size, end in zip(sizes, accumulate(sizes), strict=True) if size),
        ),
        constraints=measured(found.constraints, "constraints"),
        outputs=measured(found.outputs, "outputs"),
        failed=points(found.failed, lambda trial: trial.state == "failed"),
        pending=points(found.pending, lambda trial: trial.state == "pending"),
        closed=points(found.closed, lambda trial: trial.closed and trial.state != "pending"),
    )


def _nothing(d0: int) -> Outcomes:
    """The outcomes of an empty record."""
    empty, none = np.zeros((0, d0)), np.zeros(0)
    return Outcomes((), empty, none, none, none.astype(bool), (), (), (), empty, empty, empty)


def _shared_trials(one: Record, other: Record) -> int:
    """How many trials both begin with, the very same ones, with the same order of results."""
    if other.steps[: len(one.steps)] != one.steps:
        return 0
    return common_length(one.trials, other.trials)


def common_length(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    """How many entries two tuples begin with in common; by halves, as whole tuples are fast."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _end_of_bulk(record: Record) -> int:
    """After which trial none is part of a very large call."""
    if max(map(len, record.steps), default=0) <= BULK:
        return 0
    return 1 + max(max(step) for step in record.steps if len(step) > BULK)


def _steps(record: Record) -> list[tuple[Trial, ...]]:
    """Trials with a result, one by one; those of a very large call together."""
    steps: list[tuple[int, ...]] = []
    for step in record.steps:
        numbers = tuple(sorted(step))
        steps += [numbers] if len(numbers) > BULK else [(number,) for number in numbers]
    return [tuple(record.trials[n] for n in numbers) for numbers in sorted(steps, key=min)]


def _points(rows: list[Array], d0: int) -> Array:
    return np.array(rows, dtype=np.float64).reshape(-1, d0)


def _distinct(X: Array) -> Array:
    """Without repetitions, in the order of the first ones."""
    return X[list({row.tobytes(): i for i, row in reversed(list(enumerate(X)))}.values())[::-1]]
