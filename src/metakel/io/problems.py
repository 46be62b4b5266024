"""Everything that is wrong with a table, in one message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from metakel.errors import Hint, InputError, SeveralProblems
from metakel.io.choose_inputs import typed_list


class Problems:
    """Errors that were found so far; `refuse` raises them together."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: list[tuple[str | None, InputError]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    @contextmanager
    def collected(self, column: str | None = None) -> Iterator[None]:
        """Note an error instead of raising it, of an input column if it is one."""
        try:
            yield
        except InputError as error:
            self._found.append((column, error))

    def refuse(self, inputs: Sequence[str]) -> None:
        """Raise what was found, with the inputs that are left if those columns are not taken."""
        if not self._found:
            return
        bad = {column for column, _ in self._found}
        good = tuple(name for name in inputs if name not in bad)
        hints: tuple[Hint, ...] = ()
        if good and len(good) < len(inputs):
            paste = f"inputs={list(good)}", f"--input {typed_list(good)}"
            hints = (Hint("leave those columns out", *paste),)
        if len(self._found) == 1:
            error = self._found[0][1]
            raise InputError(error.message, *error.hints, *hints)
        count = len(self._found)
        raise SeveralProblems(
            f"{self._source} has {count} problems:", [error for _, error in self._found], *hints
        )
