"""The errors and warnings of the library, each with the builtin it refines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self


def first_of(names: Iterable[object], most: int = 8) -> str:
    """The first names of many, and how many more there are."""
    distinct = list(dict.fromkeys(map(str, names)))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more


class MetaKelError(Exception):
    """Base class of the errors that this library raises on purpose."""


class ShapeError(MetaKelError, ValueError):
    """An array has the wrong shape."""


@dataclass(frozen=True)
class Hint:
    """A remedy that Python and the command line spell differently."""

    remedy: str  # what to do, as in "give the value that they used"
    argument: str  # how to say so in Python
    option: str  # and on the command line


class InputError(MetaKelError, ValueError):
    """A value cannot be used: not finite, out of range, empty, or an unknown name.

    Parameters
    ----------
    message : str
        What was found and what was expected.
    hints : Hint
        Remedies; ``str`` gives them as arguments, `as_typed` as options of the command line.
    """

    def __init__(self, message: str = "", *hints: Hint) -> None:
        super().__init__(message, *hints)
        self.message, self.hints = message, hints

    def __str__(self) -> str:
        return self._with([f"{hint.remedy} by {hint.argument}" for hint in self.hints])

    def as_typed(self) -> str:
        """The message, with remedies for the command line."""
        return self._with([f"{hint.remedy} by {hint.option}" for hint in self.hints])

    def _with(self, remedies: list[str]) -> str:
        return f"{self.message}; {', or '.join(remedies)}" if remedies else self.message

    def at(self, where: str) -> Self:
        """The same error, with the place where it happened in front."""
        return type(self)(f"{where}: {self.message}", *self.hints)


class SeveralProblems(InputError):
    """All that is wrong with a table at once, each on a line of its own.

    Parameters
    ----------
    message : str
        What the problems are of.
    problems : sequence of InputError
    hints : Hint
        Remedies for all of them.
    """

    def __init__(self, message: str, problems: Sequence[InputError], *hints: Hint) -> None:
        super().__init__(message, *hints)
        self.args = message, problems, *hints  # with which copies are made
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return self._listed(map(str, self.problems), super().__str__())

    def as_typed(self) -> str:
        """The message, with remedies for the command line."""
        return self._listed((p.as_typed() for p in self.problems), super().as_typed())

    def _listed(self, problems: Iterable[str], whole: str) -> str:
        remedies = whole.removeprefix(self.message).removeprefix("; ")
        last = [f"Or {remedies}"] if remedies else []
        return "\n".join([self.message, *(f"  - {problem}" for problem in problems), *last])

    def at(self, where: str) -> Self:
        """The same error, with the place where it happened in front."""
        return type(self)(f"{where}: {self.message}", self.problems, *self.hints)


class NotConverged(UserWarning):
    """A solver stopped before its tolerance; the message carries the gap it reached."""


class CannotWrite(MetaKelError, OSError):
    """A file cannot be written; what stood there before is still there."""


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


def typed_list(names: tuple[str, ...]) -> str:
    """Names as one word of a command line."""
    text = ",".join(names)
    return text if re.fullmatch(r"[\w.,+%=-]+", text) else "'" + text.replace("'", "'\\''") + "'"
