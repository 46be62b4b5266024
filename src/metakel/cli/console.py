"""What the command line says: tables on a terminal, plain text in a pipe, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer


def say(text: str) -> None:
    """A line for people, at once."""
    typer.echo(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """A remark that is not part of the result."""
    typer.echo(text, err=True)


def emit(data: Any) -> None:
    """One JSON document on one line; numbers that are not finite become null."""
    typer.echo(json.dumps(_finite(data), allow_nan=False))
    sys.stdout.flush()


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*map(escape, header), box=None, header_style="bold")
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)
        return
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def short(value: Any) -> str:
    """A value as people read it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def one_line(configuration: Mapping[str, Any]) -> str:
    """A configuration as people read it."""
    return "  ".join(f"{name}={short(value)}" for name, value in configuration.items())


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(k): _finite(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(v) for v in data]
    if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))):
        return None
    return data
