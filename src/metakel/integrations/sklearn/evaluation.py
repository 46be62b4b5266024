"""Fits of one configuration at a time by scikit-learn, with a bar that shows how far it is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from metakel.integrations.sklearn.search_space import Searched
from metakel.optimize import Optimizer
from metakel.search import SearchSpace

MOST, DRAWN = 4096, 512  # configurations that are all looked at, and that are drawn otherwise
DEVIATIONS = 1.5


class SameSplits:
    """The first splits of a splitter, for every configuration: it may shuffle anew each time."""

    def __init__(self, splitter: Any) -> None:
        self._splitter = splitter
        self._found: list[Any] | None = None

    def split(self, X: Any, y: Any = None, **params: Any) -> list[Any]:
        """As a splitter of scikit-learn."""
        self._found = self._found or list(self._splitter.split(X, y, **params))
        return self._found


class Evaluation:
    """Calls scikit-learn for one configuration at a time, and shows how far it is.

    scikit-learn refuses a call in which every fit fails. A configuration that fails is therefore
    evaluated again beside the next one that does not, so that ``cv_results_`` has it.
    """

    def __init__(
        self,
        evaluate: Callable[..., Any],
        cv: Any,
        verbose: int,
        column: Callable[[Mapping[str, Any]], str],
    ) -> None:
        splits = SameSplits(cv) if hasattr(cv, "split") else None
        self._evaluate = partial(evaluate, cv=splits)
        self._verbose, self._column = verbose, column
        self._failed: list[dict[str, Any]] = []
        self._good: dict[str, Any] = {}
        self.done = self.number = 0  # configurations that were fitted, and all of them
        self._best = -np.inf

    def __call__(self, arguments: dict[str, Any], number: int, total: int) -> float | None:
        with _without_headlines(self._verbose):
            try:
                results = self._evaluate([*self._failed, arguments])
            except ValueError as error:
                if "fits failed" not in str(error):
                    raise
                self._failed.append(arguments)
                self._show(number, total, None)
                return None
        self._failed, self._good = [], arguments
        score = float(results[self._column(results)][-1])
        self.done += 1
        found = score if np.isfinite(score) else None
        self._show(number, total, found)
        return found

    def _show(self, number: int, total: int, score: float | None) -> None:
        self.number = number
        if self._verbose != 1:
            return
        self._best = max(self._best, -np.inf if score is None else score)
        bar = "=" * (20 * number // total)
        shown = "failed" if score is None else f"{score:.4g}"
        best = "" if np.isinf(self._best) else f", best {self._best:.4g}"
        end = "\n" if number == total or not sys.stderr.isatty() else "\r"
        sys.stderr.write(f"[{bar:20}] {number}/{total}: {shown}{best}{end}")
        sys.stderr.flush()

    def finish(self) -> None:
        """Have ``cv_results_`` hold the last failures, beside one that is dropped from it again.

        Where nothing could be fitted, scikit-learn refuses the search.
        """
        if self._failed:
            with _without_headlines(self._verbose):
                self._evaluate([*self._failed, self._good] if self.done else self._failed)


class _Filter:
    """A stream without scikit-learn's headline, which would come before every configuration."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._dropped = stream, False

    def write(self, text: str) -> int:
        if text.startswith("Fitting ") and " folds for each of " in text:
            self._dropped = True
            return len(text)
        if self._dropped and text == "\n":
            self._dropped = False
            return 1
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _without_headlines(verbose: int) -> Iterator[None]:
    if verbose < 1:
        yield
        return
    with contextlib.redirect_stdout(_Filter(sys.stdout)):
        yield


# What is tried next: never the same twice, also where lists leave few configurations


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
