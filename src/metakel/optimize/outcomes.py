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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.optimize.record import Record, Trial


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Parameters
    ----------
    X : (t, d0) array
        Where values were observed, in the order in which they came.
    y : (t,) array
        The values, in the sign to be maximised.
    noise_std : (t,) array
        Noise of each; nan where it is that of the model.
    counts : (t,) array of bool
        Which of them may be the best.
    ends : tuple of int
        How many there were after each call.
    constraints : tuple of (x, dict)
        What is known of the constraints, in the order in which it came.
    fantasies : (q, d0) array
        Points of runs without a value, each once.
    pending : (p, d0) array
        Those of them that are still awaited.
    closed : (k, d0) array
        Points not to be asked for again.
    """

    X: Array
    y: Array
    noise_std: Array
    counts: NDArray[np.bool_]
    ends: tuple[int, ...]
    constraints: tuple[tuple[Array, Mapping[str, float]], ...]
    fantasies: Array
    pending: Array
    closed: Array

    @property
    def t(self) -> int:
        """How many values were observed."""
        return len(self.y)

    def begins_with(self, earlier: Outcomes) -> bool:
        """Whether the evidence of ``earlier`` is the first part of this one, call by call."""
        t, calls = earlier.t, len(earlier.ends)
        return (
            self.ends[:calls] == earlier.ends
            and np.array_equal(self.X[:t], earlier.X)
            and np.array_equal(self.y[:t], earlier.y)
            and np.array_equal(self.noise_std[:t], earlier.noise_std, equal_nan=True)
            and np.array_equal(self.counts[:t], earlier.counts)
            and len(self.constraints) >= len(earlier.constraints)
            and all(
                np.array_equal(x, z) and dict(mine) == dict(theirs)
                for (x, mine), (z, theirs) in zip(
                    self.constraints, earlier.constraints, strict=False
                )
            )
        )


def outcomes(record: Record, *, d0: int, sign: float) -> Outcomes:
    """Apply the policy; ``sign`` is 1 to maximise, -1 to minimise."""
    seen: list[Trial] = []
    constraints = []
    ends: list[int] = []
    for step in record.steps:
        for number in step:
            trial = record.trials[number]
            if trial.value is not None:
                seen.append(trial)
            if trial.constraints:
                constraints.append((trial.x, trial.constraints))
        if not ends or len(seen) > ends[-1]:
            ends.append(len(seen))
    waiting = [trial.x for trial in record.trials if trial.state == "pending"]
    failed = [trial.x for trial in record.trials if trial.state == "failed"]
    closed = [trial.x for trial in record.trials if trial.closed and trial.state != "pending"]
    return Outcomes(
        X=_points([trial.x for trial in seen], d0),
        y=sign * np.array([trial.value for trial in seen], dtype=np.float64),
        noise_std=np.array([t.noise_std for t in seen], dtype=np.float64),
        counts=np.array([trial.state == "complete" for trial in seen], dtype=bool),
        ends=tuple(end for end in ends if end),
        constraints=tuple(constraints),
        fantasies=_distinct(_points([*failed, *waiting], d0)),
        pending=_points(waiting, d0),
        closed=_points(closed, d0),
    )


def no_outcomes(like: Outcomes) -> Outcomes:
    """Before anything happened, in a domain of as many inputs."""
    return outcomes(Record(), d0=like.X.shape[1], sign=1.0)


def _points(rows: list[Array], d0: int) -> Array:
    return np.array(rows, dtype=np.float64).reshape(-1, d0)


def _distinct(X: Array) -> Array:
    """Without repetitions, in the order of the first ones."""
    _, first = np.unique(X, axis=0, return_index=True)
    return X[np.sort(first)]
