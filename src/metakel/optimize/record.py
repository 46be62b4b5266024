"""The record of a run, and the one policy for what its trials mean for a model.

A record is the whole memory of an optimizer. What follows from it for a model is decided here, and
nowhere else:

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import isfinite, nan
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, positive
from metakel.errors import InputError, ShapeError

State = Literal["pending", "complete", "infeasible", "failed", "forgotten"]
LARGEST = 1e50  # beyond this no interval can be computed, and a value says no more than "failed"


@dataclass(frozen=True, eq=False)
class Trial:
    """One point, asked for or brought along.

    Parameters
    ----------
    number : int
        Its place in the record, from 0.
    point : object
        As the user sees it: an array, or a dict of named parameters.
    x : (d0,) array
        As the model sees it.
    state : "pending", "complete", "infeasible", "failed" or "forgotten"
        Infeasible: it has a value, but violates a constraint. Failed: there is no value, for good.
        Forgotten: it will not be run.
    value : float or None
        What was observed.
    noise_std : float or None
        Noise of this observation, where it is not that of the optimizer.
    constraints : dict
        Numbers by name; a constraint holds where its number is not above 0.
    outputs : dict
        What was measured beside the objective, by name; for `Limit`.
    closed : bool
        Whether the point is not to be asked for again, in a domain that does not repeat points.
    context : object
        The context that the point was chosen for, as the user sees it; None where there are none.
    """

    number: int
    point: Any
    x: Array
    state: State = "pending"
    value: float | None = None
    noise_std: float | None = None
    constraints: Mapping[str, float] = field(default_factory=dict)
    outputs: Mapping[str, float] = field(default_factory=dict)
    closed: bool = True
    context: Any = None

    def with_result(
        self,
        value: float | None,
        noise_std: float | None = None,
        constraints: Mapping[str, float] | None = None,
        outputs: Mapping[str, float] | None = None,
    ) -> Trial:
        """After it was run; a value that is None, not finite or beyond 1e50 is a failure."""
        limits, measured = dict(constraints or {}), dict(outputs or {})
        state: State = "complete" if feasible(limits) else "infeasible"
        if value is None or not isfinite(value) or abs(value) > LARGEST:
            state, value, noise_std = "failed", None, self.noise_std
        return Trial(  # `replace` takes five times as long, which shows in long records
            *(self.number, self.point, self.x, state),
            *(None if value is None else float(value), noise_std, limits, measured),
            *(self.closed, self.context),
        )

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        stored = {
            "point": _plain(self.point),
            "context": _plain(self.context),
            "state": self.state,
            "value": self.value,
            "noise_std": self.noise_std,
            "constraints": dict(self.constraints),
            "outputs": dict(self.outputs),
            "closed": self.closed,
        }
        return {name: v for name, v in stored.items() if v is not None and v != {}}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def feasible(constraints: Mapping[str, float]) -> bool:
    """Whether no constraint is above 0."""
    if not constraints:
        return True
    if any(value != value for value in constraints.values()):
        raise InputError(f"constraints are {dict(constraints)}; expected numbers, not nan")
    return all(value <= 0 for value in constraints.values())


@dataclass(frozen=True, eq=False)
class Record:
    """Trials by number, and the order in which results came.

    Parameters
    ----------
    trials : tuple of Trial
    steps : tuple of tuple of int
        Numbers of the trials that have a result; those of one call together.
    """

    trials: tuple[Trial, ...] = ()
    steps: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def pending(self) -> tuple[Trial, ...]:
        """Asked for, and without a result."""
        return tuple(trial for trial in self.trials if trial.state == "pending")

    @property
    def observed(self) -> tuple[Trial, ...]:
        """With a value, in the order in which the values came."""
        done = (self.trials[number] for step in self.steps for number in step)
        return tuple(trial for trial in done if trial.value is not None)

    def with_pending(self, point: Any, x: Array, context: Any = None) -> Record:
        """After one more point was asked for."""
        trial = Trial(len(self.trials), point, x, context=context)
        return Record((*self.trials, trial), self.steps)

    def with_results(self, results: Sequence[Trial]) -> Record:
        """After trials got results in one call; those whose number is new are added."""
        trials = list(self.trials)
        for trial in results:
            if trial.number < len(trials):
                trials[trial.number] = trial
            else:
                trials.append(trial)
        return Record(tuple(trials), (*self.steps, tuple(trial.number for trial in results)))

    def with_forgotten(self, numbers: Sequence[int]) -> Record:
        """After pending trials were given up; their points may be asked for again."""
        trials = list(self.trials)
        for number in numbers:
            trials[number] = replace(trials[number], state="forgotten", closed=False)
        return replace(self, trials=tuple(trials))

    def until(self, step: int) -> Record:
        """As it was after so many calls, with only the trials that had a result then."""
        known = {number for numbers in self.steps[:step] for number in numbers}
        trials = tuple(
            trial
            if trial.number in known
            else Trial(
                trial.number,
                trial.point,
                trial.x,
                "forgotten",
                closed=False,
                context=trial.context,
            )
            for trial in self.trials[: max(known, default=-1) + 1]
        )
        return Record(trials, self.steps[:step])

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {
            "trials": [trial.to_dict() for trial in self.trials],
            "steps": [list(step) for step in self.steps],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], encode: Any) -> Record:
        """Inverse of `to_dict`.

        ``encode(point, context)`` gives point, context and (d0,) array of what was stored.
        """
        trials = []
        for number, entry in enumerate(data["trials"]):
            state = entry["state"]
            if state not in get_args(State):
                known = ", ".join(get_args(State))
                raise InputError(f"stored trial {number} is {state!r}; known states: {known}")
            point, context, x = encode(entry["point"], entry.get("context"))
            kept = {name: entry[name] for name in ("value", "noise_std") if name in entry}
            kept |= {name: dict(entry.get(name, {})) for name in ("constraints", "outputs")}
            kept["closed"] = entry["closed"]
            trials.append(Trial(number, point, x, state, context=context, **kept))
        steps = tuple(tuple(map(int, step)) for step in data["steps"])
        finished = [number for step in steps for number in step]
        expected = [t.number for t in trials if t.state not in ("pending", "forgotten")]
        if sorted(finished) != expected:
            raise InputError(
                f"stored steps name the trials {sorted(finished)}; expected those with a result, "
                f"{expected}"
            )
        for trial in trials:
            if (trial.value is not None) != (trial.state in ("complete", "infeasible")):
                raise InputError(f"stored trial {trial.number} is {trial.state} with {trial.value}")
        return cls(tuple(trials), steps)


def as_values(value: Any, n: int) -> list[float | None]:
    """One number or None for every point; text is refused, even of a number."""
    if isinstance(value, np.ndarray) and value.shape == (n, 1):
        value = value[:, 0]
    many = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
    entries = list(value) if many else [value]
    if isinstance(value, np.ndarray) and value.ndim > 1:
        raise ShapeError(f"tell: values have shape {value.shape}; expected ({n},)")
    if len(entries) != n:
        raise ShapeError(f"tell: {n} points but {len(entries)} values; expected one for each")
    return [_as_value(entry) for entry in entries]


def _as_value(value: Any) -> float | None:
    if value is None:
        return None
    try:
        found = value.item() if hasattr(value, "item") else value
        if not isinstance(found, str | bytes | bool):
            return float(found)
    except OverflowError:
        return nan
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"tell: the value is {value!r}; expected a number, or None or nan for a failed run"
    )


def as_noise_levels(noise_std: float | ArrayLike | None, n: int) -> list[float | None]:
    if noise_std is None:
        return [None] * n
    given = np.asarray(noise_std, dtype=np.float64)
    if given.ndim == 0:
        given = np.full(n, float(given))
    if given.shape != (n,):
        raise ShapeError(
            f"tell: noise_std has shape {given.shape}; expected one number or ({n},), one for "
            "every observation"
        )
    return [positive("tell: noise_std", float(level)) for level in given]


def as_outputs(
    outputs: Mapping[str, Any] | None, names: Sequence[str], n: int
) -> list[dict[str, float]]:
    """Measured outputs of ``n`` points, point by point, without those that were not measured."""
    given = {} if outputs is None else outputs
    if not isinstance(given, Mapping):
        raise InputError(f"tell: outputs are {given!r}; expected a dict of numbers by name")
    if set(given) != set(names):
        expected = f"one for each of {', '.join(map(repr, names))}" if names else "none"
        raise InputError(
            f"tell: outputs are given for {', '.join(map(repr, given)) or 'nothing'}; expected "
            f"{expected} (None where it was not measured)"
        )
    columns = {name: _column(name, values, n) for name, values in given.items()}
    return [{name: c[i] for name, c in columns.items() if isfinite(c[i])} for i in range(n)]


def _column(name: str, values: Any, n: int) -> list[float]:
    try:
        found = np.array(values, dtype=np.float64)  # None becomes nan
    except (TypeError, ValueError):
        raise InputError(f"tell: output {name!r} is {values!r}; expected numbers") from None
    if found.shape not in ((), (n,)) or (found.shape == () and n != 1):
        raise ShapeError(f"tell: output {name!r} has shape {found.shape}; expected ({n},)")
    return [float(value) for value in np.atleast_1d(found)]


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
        if not len(self.failed) and not len(self.pending):
            return self.pending
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
        t = alike = min(self.t, other.t)
        pairs = [(self.X, other.X), (self.y, other.y), (self.noise_std, other.noise_std)]
        # Most often all of the shorter one is shared, to the bit; bytes are compared fastest.
        if not all(one[:t].tobytes() == theirs[:t].tobytes() for one, theirs in pairs):
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
        more = [trial.x for trial in new if chosen(trial)]
        return np.concatenate([kept, _points(more, d0)]) if more else kept

    def measured(kept: Measured, which: str) -> Measured:
        kept = kept[: len(kept) - sum(bool(getattr(trial, which)) for trial in gone)]
        return (*kept, *((r.x, getattr(r, which)) for r in finished if getattr(r, which)))

    def joined(kept: NDArray[Any], more: list[Any]) -> NDArray[Any]:
        return np.concatenate([kept[:t], np.array(more, kept.dtype)])

    return Outcomes(
        numbers=(*found.numbers[:t], *(trial.number for trial in seen)),
        X=np.concatenate([found.X[:t], _points([trial.x for trial in seen], d0)]),
        y=joined(found.y, [sign * trial.value for trial in seen if trial.value is not None]),
        noise_std=joined(found.noise_std, [trial.noise_std for trial in seen]),
        counts=joined(found.counts, [trial.state == "complete" for trial in seen]),
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
