"""What a search tries next: never the same arguments twice, also where lists leave few of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from metakel.integrations.sklearn.search_space import Searched
from metakel.optimize import Optimizer
from metakel.search import SearchSpace

MOST, DRAWN = 4096, 512  # configurations that are all looked at, and that are drawn otherwise
DEVIATIONS = 1.5


class Untried:
    """Configurations of a search in the order in which they are tried.

    A list has gaps: what the optimizer asks for is moved to a value of the list, and may have been
    tried already. Then it is the most promising one that has not been, by the optimizer's model.
    """

    def __init__(self, searched: Searched, optimizer: Optimizer, seed: int) -> None:
        self.searched, self._optimizer = searched, optimizer
        self._tried: set[str] = set()
        self._rng = np.random.default_rng(seed)

    def next(self) -> dict[str, Any] | None:
        """The next configuration; None if there is none left."""
        asked = self._optimizer.ask()
        found = self.searched.settled(asked)
        if found == asked and self._key(found) not in self._tried:
            self._tried.add(self._key(found))
            return found
        self._optimizer.drop(asked)
        chosen = found if self._key(found) not in self._tried else self._most_promising()
        if chosen is not None:
            self._tried.add(self._key(chosen))
        return chosen

    def _key(self, configuration: Mapping[str, Any]) -> str:
        return repr(sorted(self.searched.arguments(configuration).items()))

    def _most_promising(self) -> dict[str, Any] | None:
        left = {self._key(found): found for found in self._possible()}
        others = [found for key, found in left.items() if key not in self._tried]
        if not others:
            return None
        mean, deviation = self._optimizer.predict(others)
        gain = -mean if self._optimizer.minimize else mean
        return others[int(np.argmax(gain + DEVIATIONS * deviation))]

    def _possible(self) -> Iterator[dict[str, Any]]:
        """All of them where they are few, otherwise some that are drawn."""
        domain, searched = self._optimizer.domain, self.searched
        values = [choice.possible for choice in searched.choices.values()]
        finite = [found for found in values if found is not None]
        related = isinstance(domain, SearchSpace) and domain.model_space.conditions
        if len(finite) == len(values) and not related and prod(map(len, finite)) <= MOST:
            for row in product(*finite):
                yield {**searched.held, **dict(zip(searched.choices, row, strict=True))}
            return
        for x in domain.sample(self._rng, DRAWN):
            yield searched.settled(domain.decode(x))
