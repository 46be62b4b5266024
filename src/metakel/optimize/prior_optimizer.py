"""Ask and tell with a learned prior, over a table of candidates or the whole space."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.optimize.feasibility import Feasibility, feasible
from metakel.optimize.mixture import GPMixture
from metakel.priors.configurations import encode_configurations
from metakel.search.named import SearchSpace

if TYPE_CHECKING:
    from metakel.priors.prior import Prior

POOL = 1000
POLISHED, STEPS = 3, (0.1, 0.03, 0.01)
DRAWS = 48
SAME = 1e-9


class PriorOptimizer:
    """What both optimizers share: values told, in the user's units and direction."""

    def __init__(self, prior: Prior, Z: Array, acquisition: str, *, extrapolate: bool) -> None:
        self.prior, self.extrapolate = prior, extrapolate
        self._Z = Z
        self._sign = -1.0 if prior.info.minimize else 1.0
        self._decider = GPMixture(prior, Z, acquisition)
        self._supposed = np.empty((0, Z.shape[1]))
        self._ahead: GPMixture | None = None  # until more is told or supposed
        self._told: list[Any] = []
        self._achieved: list[tuple[Any, float]] = []  # feasible ones, with their values
        self.failed = 0

    @property
    def t(self) -> int:
        """How many values were told."""
        return len(self._told)

    @property
    def trust(self) -> float:
        """Posterior weight of the learned belief against the cold start, given the values told."""
        return self._decider.trust

    def predict(self, configurations: Any) -> tuple[Array, Array]:
        """(n,) mean and standard deviation for configurations."""
        Z = encode_configurations(configurations, self.prior.space, extrapolate=self.extrapolate)
        mean, sd = self._outlook.predict(Z)
        return self._sign * mean, sd

    @property
    def _outlook(self) -> GPMixture:
        """What the values say, and after all of them the runs without one."""
        if not len(self._supposed):
            return self._decider
        if self._ahead is None:
            self._ahead = self._decider.supposing(self._supposed)
        return self._ahead

    def _suppose(self, x: Array) -> None:
        self._ahead = None
        if not _meet(x[None], self._supposed)[0]:
            self._supposed = np.concatenate([self._supposed, x[None]])

    def _take(
        self, choice: Any, x: Array, value: float | None, candidate: int | None, *, counts: bool
    ) -> None:
        self._ahead = None
        if value is None or not isfinite(value):
            self.failed += 1
            self._suppose(x)
            return
        self._decider.tell(x, self._sign * value, candidate, counts=counts)
        self._told.append(choice)
        if counts:
            self._achieved.append((choice, value))

    def _best(self) -> tuple[Any, float]:
        if not self._achieved:
            told = f"all {self.t} told are infeasible" if self.t else "nothing was told yet"
            raise InputError(f"{told}, so there is no best")
        return max(self._achieved, key=lambda pair: self._sign * pair[1])


class TableOptimizer(PriorOptimizer):
    """Choose among the rows of a table; no row is asked twice."""

    def __init__(
        self, prior: Prior, Z: Array, acquisition: str, *, extrapolate: bool = False
    ) -> None:
        if not len(Z):
            raise InputError("the table of candidates is empty")
        super().__init__(prior, Z, acquisition, extrapolate=extrapolate)
        self._open: NDArray[np.bool_] = np.ones(len(Z), dtype=bool)

    @property
    def best(self) -> tuple[int, float]:
        """Row and value of the best told so far."""
        row, value = self._best()
        return int(row), value

    def ask(self) -> int:
        """The number of the row to try next."""
        if not self._open.any():
            raise InputError(f"all {len(self._open)} candidates were asked")
        row = self._outlook.best_candidate(~self._open)
        self._open[row] = False
        return row

    def tell(self, row: int, value: float | None) -> None:
        """The value of a row; None or nan for a failed run, whose like is left then."""
        number = _checked_value(value)
        self.close(row)
        self._take(int(row), self._Z[row], number, int(row), counts=True)

    def suppose(self, row: int) -> None:
        """A run of this row without a value, because it goes on or was given up."""
        self.close(row)
        self._suppose(self._Z[row])

    def close(self, row: int) -> None:
        """Do not ask for this row, whatever it is worth."""
        if isinstance(row, bool) or not isinstance(row, (int, np.integer)):
            raise InputError(f"row is {row!r}; expected its number, as `ask` gives it")
        if not 0 <= row < len(self._open):
            raise InputError(f"row {row} does not exist; there are {len(self._open)} candidates")
        self._open[row] = False

    def __repr__(self) -> str:
        return (
            f"TableOptimizer(t={self.t}, failed={self.failed}, candidates={len(self._open)}, "
            f"open={int(self._open.sum())})"
        )


class SpaceOptimizer(PriorOptimizer):
    """Choose named parameters from a space: that of the prior, or one placed in it."""

    def __init__(
        self,
        prior: Prior,
        rng: np.random.Generator,
        acquisition: str,
        *,
        ground: SearchSpace,
    ) -> None:
        pool = ground.sample(rng, POOL)
        if prior.task_gp is not None:  # configurations of the past are worth a look as well
            past = ground.past(prior.task_gp.basis.landmarks, pool[0])
            pool = np.concatenate([pool, past])
        super().__init__(prior, ground.place(pool), acquisition, extrapolate=ground.extrapolate)
        self._rng, self._ground, self._pool = rng, ground, pool
        self._asked = np.empty((0, self._Z.shape[1]))
        self._closed: NDArray[np.bool_] = np.zeros(len(pool), dtype=bool)
        self._feasibility = Feasibility(self._Z)

    @property
    def best(self) -> tuple[dict[str, Any], float]:
        """Configuration and value of the best told so far; of the feasible ones."""
        configuration, value = self._best()
        return dict(configuration), value

    def ask(self) -> dict[str, Any]:
        """The configuration to try next."""
        # Where everything was tried, what is best to try again.
        closed = self._closed if not self._closed.all() else np.zeros_like(self._closed)
        outlook = self._outlook
        scores = outlook.scores(closed, self._feasibility.chance)
        scores = np.where(closed, -np.inf, scores)
        top = np.argsort(-scores, kind="stable")[:POLISHED]
        x, z, score = self._pool[top[0]], self._Z[top[0]], float(scores[top[0]])
        starts, free = self._pool[top], self._ground.free
        for step in STEPS if len(free) else ():
            drawn = np.repeat(starts, DRAWS, axis=0)
            drawn[:, free] += step * self._rng.standard_normal((len(drawn), len(free)))
            near = self._ground.nearest(drawn, self._pool[0])
            placed = self._ground.place(near)
            chance = self._feasibility.chance_at(placed)
            gains = outlook.scores_at(placed, chance)
            gains = np.where(_meet(placed, self._asked), -np.inf, gains)
            order = np.argsort(-gains, kind="stable")[:POLISHED]
            if gains[order[0]] > score:
                x, z, score = near[order[0]], placed[order[0]], float(gains[order[0]])
            starts = near[order]
        self._close(z)
        return self._ground.configuration(x)

    def tell(
        self,
        configuration: Mapping[str, Any],
        value: float | None,
        constraints: Mapping[str, float] | None = None,
    ) -> None:
        """The value of a configuration; None or nan for a failed run (see `suppose`).

        A run is feasible where none of its ``constraints``, numbers by name, is above 0. An
        infeasible one is never the best, and tells where its like is not worth trying.
        """
        # Everything that can be refused comes before anything is taken in.
        x, number, limits = self._encoded(configuration), _checked_value(value), constraints or {}
        counts = feasible(limits)
        self._close(x)
        self._take(dict(configuration), x, number, None, counts=counts)
        self._feasibility.tell(x, limits)

    def suppose(self, configuration: Mapping[str, Any]) -> None:
        """A run without a value, because it goes on or was given up.

        It counts as its prediction from all values told, also later ones, one standard deviation
        for the worse, so that the next configurations keep away from it. It is never the best,
        and says nothing about `trust`.
        """
        x = self._encoded(configuration)
        self._close(x)
        self._suppose(x)

    def fork(self, rng: np.random.Generator) -> SpaceOptimizer:
        """A copy with draws of its own, to be told what if; of use until this one is told again."""
        fork = copy(self)
        fork._rng, fork._closed = rng, self._closed.copy()
        fork._decider, fork._feasibility = self._decider.fork(), self._feasibility.fork()
        fork._told, fork._achieved = list(self._told), list(self._achieved)
        return fork

    def __repr__(self) -> str:
        names = ", ".join(self._ground.look.names)
        return f"SpaceOptimizer(t={self.t}, failed={self.failed}, parameters=[{names}])"

    def _encoded(self, configuration: Mapping[str, Any]) -> Array:
        row = {**self._ground.unseen, **configuration}
        return np.asarray(self.prior.space.encode([row], extrapolate=self.extrapolate)[0])

    def _close(self, x: Array) -> None:
        """Do not ask for this point again."""
        self._asked = np.concatenate([self._asked, x[None]])
        self._closed |= _meet(self._Z, x[None])


def _checked_value(value: Any) -> float | None:
    """A number, or None for a failed run; text is refused, even of a number."""
    if value is None:
        return None
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"the value told is {value!r}; expected a number, or None or nan for a failed run"
    )


def _meet(Z: Array, points: Array) -> NDArray[np.bool_]:
    """Which rows of Z are among the points."""
    same = np.ones((len(Z), len(points)), dtype=bool)
    for column, theirs in zip(Z.T, points.T, strict=True):
        same &= np.abs(column[:, None] - theirs) < SAME
    return np.asarray(same.any(axis=1))
