"""Ask and tell with a learned prior, over a table of candidates or the whole space."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metakel.errors import InputError
from metakel.prior.configurations import encode_configurations
from metakel.prior.decider import Decider
from metakel.tasks import Array

if TYPE_CHECKING:
    from metakel.prior.prior import Prior

POOL = 1000
POLISHED, STEPS = 3, (0.1, 0.03, 0.01)
DRAWS = 48


class PriorOptimizer:
    """What both optimizers share: values told, in the user's units and direction."""

    def __init__(self, prior: Prior, Z: Array, acquisition: str, *, outside: bool) -> None:
        self.prior, self.outside = prior, outside
        self._Z = Z
        self._sign = -1.0 if prior.facts.minimize else 1.0
        self._decider = Decider(prior, Z, acquisition)
        self._told: list[Any] = []
        self.failed = 0

    @property
    def t(self) -> int:
        """How many values were told."""
        return len(self._told)

    @property
    def trust(self) -> float:
        """Posterior weight of the learned belief against the cold start, given the values told."""
        return float(self._decider.mix.members[0]) if self.prior.used else 0.0

    def predict(self, configurations: Any) -> tuple[Array, Array]:
        """(n,) mean and standard deviation for configurations."""
        Z = encode_configurations(configurations, self.prior.space, outside=self.outside)
        mean, sd = self._decider.predict(Z)
        return self._sign * mean, sd

    def _take(self, choice: Any, x: Array, value: float | None, candidate: int | None) -> None:
        if value is None or not isfinite(value):
            self.failed += 1
            return
        self._decider.tell(x, self._sign * float(value), candidate)
        self._told.append(choice)

    def _best(self) -> tuple[Any, float]:
        if not self._told:
            raise InputError("nothing was told yet, so there is no best")
        i = int(np.argmax(self._decider.values))
        return self._told[i], self._sign * self._decider.values[i]


class TableOptimizer(PriorOptimizer):
    """Choose among the rows of a table; no row is asked twice."""

    def __init__(self, prior: Prior, Z: Array, acquisition: str, *, outside: bool = False) -> None:
        if not len(Z):
            raise InputError("the table of candidates is empty")
        super().__init__(prior, Z, acquisition, outside=outside)
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
        row = self._decider.best_candidate(~self._open)
        self._open[row] = False
        return row

    def tell(self, row: int, value: float | None) -> None:
        """The value of a row; None or nan for a failed run."""
        if not 0 <= row < len(self._open):
            raise InputError(f"row {row} does not exist; there are {len(self._open)} candidates")
        self._open[row] = False
        self._take(int(row), self._Z[row], value, int(row))


class SpaceOptimizer(PriorOptimizer):
    """Choose named parameters from the whole space."""

    def __init__(
        self,
        prior: Prior,
        rng: np.random.Generator,
        acquisition: str,
        *,
        fixed: Mapping[str, Any],
        outside: bool = False,
    ) -> None:
        space = prior.space
        pool = space.sample(rng, POOL, fixed=fixed, outside=outside)
        free = space.varying(fixed)
        if prior.shape is not None:  # configurations of the past are worth a look as well
            past = np.clip(prior.shape.basis.landmarks, -1, 1)
            held = np.tile(pool[0], (len(past), 1))
            held[:, free] = past[:, free]
            pool = np.concatenate([pool, held])
        super().__init__(prior, pool, acquisition, outside=outside)
        self._rng, self._free = rng, free
        self._asked: list[Array] = []

    @property
    def best(self) -> tuple[dict[str, Any], float]:
        """Configuration and value of the best told so far."""
        configuration, value = self._best()
        return dict(configuration), value

    def ask(self) -> dict[str, Any]:
        """The configuration to try next."""
        seen = self._seen(self._Z)
        scores = np.where(seen, -np.inf, self._decider.scores(seen))
        top = np.argsort(-scores, kind="stable")[:POLISHED]
        x, score = self._Z[top[0]], float(scores[top[0]])
        starts = self._Z[top]
        for step in STEPS if len(self._free) else ():
            drawn = np.repeat(starts, DRAWS, axis=0)
            shape = (len(drawn), len(self._free))
            drawn[:, self._free] += step * self._rng.standard_normal(shape)
            near = self.prior.space.nearest(drawn)
            near[:, ~np.isin(np.arange(near.shape[1]), self._free)] = self._held
            gains = np.where(self._seen(near), -np.inf, self._decider.scores_at(near))
            order = np.argsort(-gains, kind="stable")[:POLISHED]
            if gains[order[0]] > score:
                x, score = near[order[0]], float(gains[order[0]])
            starts = near[order]
        self._asked.append(x)
        return self.prior.space.decode(x[None])[0]

    def tell(self, configuration: Mapping[str, Any], value: float | None) -> None:
        """The value of a configuration; None or nan for a failed run."""
        x = self.prior.space.encode([configuration], outside=self.outside)[0]
        self._asked.append(x)
        self._take(dict(configuration), x, value, None)

    @property
    def _held(self) -> Array:
        held = np.ones(self._Z.shape[1], dtype=bool)
        held[self._free] = False
        return np.asarray(self._Z[0, held])

    def _seen(self, Z: Array) -> NDArray[np.bool_]:
        """Which points were asked or told already."""
        seen = np.zeros(len(Z), dtype=bool)
        for x in self._asked:
            seen |= (np.abs(Z - x) < 1e-9).all(axis=1)
        return seen
