"""The record of a run: the whole memory of an optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, nan
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import LARGEST, Array, is_number, one_each, positive, shown
from metakel.charts import paragraph, short, table
from metakel.curves import Curve, as_curve
from metakel.errors import InputError, ShapeError

TrialState = Literal["pending", "complete", "infeasible", "failed", "stopped", "dropped"]


UNPLACED = np.empty(0)  # of a trial whose point a store has not encoded yet


@dataclass(frozen=True)
class Note:
    """What is remembered of a trial for people and other processes; no suggestion uses it."""

    asked: bool = True  # whether the optimizer chose it
    owner: Mapping[str, Any] | None = field(default=None, repr=False)  # process that evaluates it
    since: str = field(default="", repr=False)  # when that was given it; empty if unknown
    reason: str = ""  # why it failed, or what is special about it
    expected: tuple[float, float] | None = None  # mean and sd by the model that chose it
    suggested: Mapping[str, Any] | None = None  # where something else was run instead
    # The same as the model sees it (d0,); it is not suggested again.
    suggested_x: Array | None = field(default=None, repr=False)
    released: bool = False  # whether it was given back, so that it is asked again
    curve: Curve = field(default_factory=dict, repr=False)  # values by step, from 1


NO_NOTE = Note()


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
    state : "pending", "complete", "infeasible", "failed", "stopped" or "dropped"
        Infeasible: it has a value, but violates a constraint. Failed: there is no value, for good.
        Stopped: it was ended early, as by its curve it would not have become the best. Dropped: it
        will not be run.
    value : float or None
        What was observed.
    noise_std : float or None
        Noise of this observation, where it is not that of the optimizer.
    constraints : dict
        Numbers by name; a constraint holds where its number is not above 0.
    outputs : dict
        What was measured beside the objective, by name.
    closed : bool
        Whether the point is not to be asked for again, in a domain that does not repeat points.
    note : Note
        What a store remembers of it.
    """

    number: int
    point: Any
    x: Array
    state: TrialState = "pending"
    value: float | None = None
    noise_std: float | None = None
    constraints: Mapping[str, float] = field(default_factory=dict)
    outputs: Mapping[str, float] = field(default_factory=dict)
    closed: bool = True
    note: Note = field(default=NO_NOTE, repr=False)

    @property
    def closes(self) -> list[Array]:
        """Points (d0,) that are not to be asked for again because of it."""
        own = [self.x] if self.closed and self.state != "pending" else []
        instead = self.note.suggested_x
        return own if instead is None else [*own, instead]

    def with_result(
        self,
        value: float | None,
        noise_std: float | None = None,
        constraints: Mapping[str, float] | None = None,
        outputs: Mapping[str, float] | None = None,
    ) -> Trial:
        """After it was run; a value that is None, not finite or beyond 1e50 is a failure."""
        bounds, measured = dict(constraints or {}), dict(outputs or {})
        state: TrialState = "complete" if feasible(bounds) else "infeasible"
        if value is None or not isfinite(value) or abs(value) > LARGEST:
            state, value, noise_std = "failed", None, self.noise_std
        return Trial(  # `replace` takes five times as long, which shows in long records
            *(self.number, self.point, self.x, state),
            *(None if value is None else float(value), noise_std, bounds, measured),
            *(self.closed, self.note),
        )

    def with_curve(self, curve: Curve, *, stopped: bool) -> Trial:
        """With its values by step; one that was ``stopped`` has no value, and is not failed."""
        state: TrialState = "stopped" if stopped else self.state
        return replace(self, state=state, note=replace(self.note, curve=dict(curve)))

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        pairs = [[step, y if isfinite(y) else None] for step, y in self.note.curve.items()]
        point = self.point
        stored = {
            "point": point.tolist() if isinstance(point, np.ndarray) else point,
            "state": self.state,
            "value": self.value,
            "noise_std": self.noise_std,
            "constraints": dict(self.constraints),
            "outputs": dict(self.outputs),
            "closed": self.closed,
            "curve": pairs or None,
        }
        return {name: v for name, v in stored.items() if v is not None and v != {}}


def feasible(constraints: Mapping[str, float]) -> bool:
    """Whether no constraint is above 0."""
    if not constraints:
        return True
    if not all(is_number(value) and value == value for value in constraints.values()):
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

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    @overload
    def __getitem__(self, number: int) -> Trial: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Trial, ...]: ...
    def __getitem__(self, number: int | slice) -> Trial | tuple[Trial, ...]:
        return self.trials[number]

    def _in(self, *states: TrialState) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.state in states)

    @cached_property
    def failed(self) -> tuple[Trial, ...]:
        """Without a value, for good."""
        return self._in("failed")

    @property
    def counts(self) -> str:
        """How many there are of each kind, in words."""
        done, failed, waiting = len(self.observed), len(self.failed), len(self.pending)
        early = f", {len(self.stopped)} stopped early ({self.saved} steps saved)"
        return f"{done} values, {failed} failed, {waiting} pending{early * bool(self.stopped)}"

    @property
    def stopped(self) -> tuple[Trial, ...]:
        """Ended early, by their curves."""
        return self._in("stopped")

    @property
    def curves(self) -> tuple[Curve, ...]:
        """Of the runs that have ended, in the order of their numbers; values by step."""
        ended = self._in("complete", "infeasible", "stopped")
        return tuple(trial.note.curve for trial in ended if trial.note.curve)

    @property
    def saved(self) -> int:
        """Steps that stopped runs did not make, if they are as long as the longest."""
        whole = max((max(curve) for curve in self.curves), default=0)
        return sum(whole - max(trial.note.curve, default=whole) for trial in self.stopped)

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row per trial and a column per parameter.

        The other columns are number, state and value, and what was expected: mean and sd.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas") from error
        return pd.DataFrame(trial_columns(self.trials))

    def _repr_html_(self) -> str:
        return trial_table(self.trials)

    @cached_property
    def pending(self) -> tuple[Trial, ...]:
        """Asked for, and without a result."""
        return self._in("pending")

    @cached_property
    def observed(self) -> tuple[Trial, ...]:
        """With a value, in the order in which the values came."""
        done = (self.trials[number] for step in self.steps for number in step)
        return tuple(trial for trial in done if trial.value is not None)

    def with_pending(self, point: Any, x: Array) -> Record:
        """After one more point was asked for."""
        trial = Trial(len(self.trials), point, x)
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

    def with_dropped(self, numbers: Sequence[int]) -> Record:
        """After pending trials were given up; their points may be asked for again."""
        trials = list(self.trials)
        for number in numbers:
            trials[number] = replace(trials[number], state="dropped", closed=False)
        return replace(self, trials=tuple(trials))

    def until(self, step: int) -> Record:
        """As it was after so many calls, with only the trials that had a result then."""
        known = {number for numbers in self.steps[:step] for number in numbers}
        trials = tuple(
            trial
            if trial.number in known
            else Trial(trial.number, trial.point, trial.x, "dropped", closed=False)
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

        ``encode(point)`` gives point and (d0,) array of what was stored.
        """
        trials = []
        for number, entry in enumerate(data["trials"]):
            state = entry["state"]
            if state not in get_args(TrialState):
                known = ", ".join(get_args(TrialState))
                raise InputError(f"stored trial {number} is {state!r}; known states: {known}")
            point, x = encode(entry["point"])
            kept = {name: entry[name] for name in ("value", "noise_std") if name in entry}
            kept |= {name: dict(entry.get(name, {})) for name in ("constraints", "outputs")}
            kept["closed"] = entry["closed"]
            if pairs := entry.get("curve"):
                kept["note"] = Note(curve=as_curve(dict(pairs)))
            trials.append(Trial(number, point, x, state, **kept))
        steps = tuple(tuple(map(int, step)) for step in data["steps"])
        finished = [number for step in steps for number in step]
        expected = [t.number for t in trials if t.state not in ("pending", "dropped")]
        if sorted(finished) != expected:
            raise InputError(
                f"stored steps name the trials {sorted(finished)}; expected those with a result, "
                f"{expected}"
            )
        for trial in trials:
            if (trial.value is not None) != (trial.state in ("complete", "infeasible")):
                raise InputError(f"stored trial {trial.number} is {trial.state} with {trial.value}")
        return cls(tuple(trials), steps)


FACTS = ("number", "state", "value", "expected", "sd")
SHOWN = 10  # trials in a box; the last ones


def trial_columns(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """One column per fact and per parameter; a parameter with the name of a fact is "its_name_"."""
    guesses = [trial.note.expected or (None, None) for trial in trials]
    columns: dict[str, list[Any]] = {
        "number": [trial.number for trial in trials],
        "state": [trial.state for trial in trials],
        "value": [trial.value for trial in trials],
        "expected": [mean for mean, _ in guesses],
        "sd": [sd for _, sd in guesses],
    }
    rows = [
        t.point
        if isinstance(t.point, Mapping)
        else {f"x{i}": float(v) for i, v in enumerate(t.point)}
        for t in trials
    ]
    for name in dict.fromkeys(name for row in rows for name in row):
        columns[f"{name}_" if name in FACTS else name] = [row.get(name) for row in rows]
    return columns


def trial_table(trials: Sequence[Trial]) -> str:
    """The last trials as HTML."""
    last = trials[-SHOWN:]
    if not last:
        return paragraph("no trials yet")
    columns = trial_columns(last)
    cells = [["" if v is None else short(v, 4) for v in column] for column in columns.values()]
    more = f"the last {len(last)} of {len(trials)} trials" if len(trials) > len(last) else ""
    return table(list(columns), list(zip(*cells, strict=True)), more)


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
        f"tell: the value is {shown(value)}; expected a number, or nan or failed=True for a "
        "failed run"
    )


def as_noise_levels(noise_std: float | ArrayLike | None, n: int) -> list[float | None]:
    if noise_std is None:
        return [None] * n
    levels = one_each("tell: noise_std", noise_std, n)
    return [positive("tell: noise_std", level) for level in levels.tolist()]


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
