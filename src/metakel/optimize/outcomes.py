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

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.optimize.record import Record

# A call with more results than this is one step: models take it in at once, which is faster.
BULK = 64


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
    fantasies : (q, d0) array
        Points of runs without a value, each once.
    pending : (p, d0) array
        Those of them that are still awaited.
    closed : (k, d0) array
        Points not to be asked for again.
    """

    numbers: tuple[int, ...]
    X: Array
    y: Array
    noise_std: Array
    counts: NDArray[np.bool_]
    ends: tuple[int, ...]
    constraints: tuple[tuple[Array, Mapping[str, float]], ...]
    outputs: tuple[tuple[Array, Mapping[str, float]], ...]
    fantasies: Array
    pending: Array
    closed: Array

    @property
    def t(self) -> int:
        """How many values were observed."""
        return len(self.y)

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
        shared = 0
        for mine, other_end in zip(self.ends, other.ends, strict=False):
            if mine != other_end or mine > alike:
                break
            shared += 1
        return shared


def outcomes(record: Record, *, d0: int, sign: float) -> Outcomes:
    """Apply the policy; ``sign`` is 1 to maximise, -1 to minimise.

    Evidence is ordered by the numbers of the trials, whatever the order in which it came. A point
    depends only on the values of trials with smaller numbers, so this order is a valid one for
    confidence sequences, and the same trials always give the same model, to the last bit.
    """
    steps = sorted(_steps(record), key=min)
    seen = [record.trials[n] for step in steps for n in step if record.trials[n].value is not None]
    sizes = (sum(record.trials[n].value is not None for n in step) for step in steps)
    ends = np.cumsum([size for size in sizes if size]).tolist()
    finished = [record.trials[n] for step in steps for n in step]
    constraints = tuple((trial.x, trial.constraints) for trial in finished if trial.constraints)
    waiting = [trial.x for trial in record.trials if trial.state == "pending"]
    failed = [trial.x for trial in record.trials if trial.state == "failed"]
    closed = [trial.x for trial in record.trials if trial.closed and trial.state != "pending"]
    return Outcomes(
        numbers=tuple(trial.number for trial in seen),
        X=_points([trial.x for trial in seen], d0),
        y=sign * np.array([trial.value for trial in seen], dtype=np.float64),
        noise_std=np.array([t.noise_std for t in seen], dtype=np.float64),
        counts=np.array([trial.state == "complete" for trial in seen], dtype=bool),
        ends=tuple(ends),
        constraints=constraints,
        outputs=tuple((trial.x, trial.outputs) for trial in finished if trial.outputs),
        fantasies=_distinct(_points([*failed, *waiting], d0)),
        pending=_points(waiting, d0),
        closed=_points(closed, d0),
    )


def _steps(record: Record) -> list[tuple[int, ...]]:
    """Trials with a result, one by one; those of a very large call together."""
    steps: list[tuple[int, ...]] = []
    for step in record.steps:
        numbers = tuple(sorted(step))
        steps += [numbers] if len(numbers) > BULK else [(number,) for number in numbers]
    return steps


def _points(rows: list[Array], d0: int) -> Array:
    return np.array(rows, dtype=np.float64).reshape(-1, d0)


def _distinct(X: Array) -> Array:
    """Without repetitions, in the order of the first ones."""
    return X[list({row.tobytes(): i for i, row in reversed(list(enumerate(X)))}.values())[::-1]]
