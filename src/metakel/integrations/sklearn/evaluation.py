"""Fits of one configuration at a time by scikit-learn, with a bar that shows how far it is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np


class Evaluation:
    """Calls scikit-learn for one configuration at a time, and shows how far it is.

    scikit-learn refuses a call in which every fit fails. A configuration that fails is therefore
    evaluated again beside the next one that does not, so that ``cv_results_`` has it.
    """

    def __init__(
        self,
        evaluate: Callable[..., Any],
        verbose: int,
        column: Callable[[Mapping[str, Any]], str],
    ) -> None:
        self._evaluate, self._verbose, self._column = evaluate, verbose, column
        self._failed: list[dict[str, Any]] = []
        self.done = 0
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
        self._failed = []
        score = float(results[self._column(results)][-1])
        self.done += 1
        found = score if np.isfinite(score) else None
        self._show(number, total, found)
        return found

    def _show(self, number: int, total: int, score: float | None) -> None:
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
        """Refuse a search in which nothing could be fitted, as scikit-learn does."""
        if self._failed and not self.done:
            self._evaluate(self._failed)


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
