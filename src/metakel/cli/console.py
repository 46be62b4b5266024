"""What the command line prints, its exit codes, and the signals that stop a run."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from metakel import __version__
from metakel.errors import CannotWrite

STOPPING = (
    "SIGINT",
    "SIGTERM",
    "SIGHUP",
    "SIGQUIT",
    "SIGBREAK",
)  # the last is Ctrl-Break on Windows


class StopSignals:
    """Ctrl-C, kill, a closed terminal and quit raise KeyboardInterrupt, but not just anywhere.

    While a program is started or ended (`deferred`) they wait, so that it cannot be lost. Signals
    that were ignored before, as under nohup, stay ignored.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._deferred, self._received = False, False

    def __enter__(self) -> StopSignals:
        for name in STOPPING:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._received = True
        if not self._deferred:
            raise KeyboardInterrupt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Signals wait until the end of this block."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Within a deferred block: signals raise here, those that came before at once."""
        try:
            self._deferred = False
            if self._received:
                raise KeyboardInterrupt
            yield
        finally:
            self._deferred = True


NOTHING_SUCCEEDED = 3
CANNOT_WRITE = 4
INTERRUPTED = 130
EXIT_CODES = (
    "Exit codes: 0 done, 1 unusable input, 2 wrong usage, 3 no evaluation succeeded, "
    "4 cannot write, 130 interrupted."
)

Json = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of text; see above for the keys.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"metakel {__version__}")
        raise typer.Exit


def version_option(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """What ``metakel`` takes before a command."""


class OutputClosed(Exception):
    """Whoever read the output, ``head`` for instance, has left."""


def say(text: str) -> None:
    """Print a line of the result, at once."""
    try:
        typer.echo(printable(text))
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer goes nowhere, without a second error at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise OutputClosed from None


def note(text: str) -> None:
    """Print a remark that is not part of the result, to stderr."""
    typer.echo(printable(text), err=True)


def printable(text: str) -> str:
    r"""Text in which escape sequences and other control characters are spelled, as in ``\x1b``.

    Names and messages come from files and programs of others, and a terminal obeys what it reads.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else ascii(c)[1:-1] for c in text)


def at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def emit(data: Any) -> None:
    """Print one JSON document on one line; numbers that are not finite become null."""
    say(json.dumps(_finite(data), allow_nan=False))


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: coloured on a terminal, plain text in a pipe."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*(escape(printable(c)) for c in header), box=None, header_style="bold")
        for row in rows:
            table.add_row(*(escape(printable(_in_line(cell))) for cell in row))
        Console().print(table)
        return
    rows = [[_in_line(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def _in_line(cell: str) -> str:
    """A name that holds line ends must not look like rows of the table."""
    return cell.replace("\n", "\\n").replace("\t", "\\t")


def short(value: Any) -> str:
    """A value as people read it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def one_line(configuration: Mapping[str, Any]) -> str:
    """A configuration as people read it."""
    return "  ".join(f"{name}={short(value)}" for name, value in configuration.items())


def refuse_overwriting(out: Path, *sources: str | Path | None) -> None:
    """A result does not replace what it is made from."""
    for source in sources:
        if source is not None and out.exists() and Path(source).exists() and out.samefile(source):
            raise CannotWrite(f"{out} is read by this command; expected another place to write to")


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(k): _finite(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(v) for v in data]
    if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))):
        return None
    return data
