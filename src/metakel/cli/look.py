"""``metakel look``: what a table is taken for, before anything is learned from it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from metakel.cli.console import Json, emit, note, say
from metakel.cli.history import HistoryOptions, TaskColumn
from metakel.cli.outputs import Rename, Sheets
from metakel.errors import typed_list
from metakel.io import Roles, Schema
from metakel.space.text import is_numeric


def look(
    history: Annotated[list[str], typer.Argument(help="Past runs: .csv(.gz), .xlsx, .parquet.")],
    task: TaskColumn = "",
    output: Annotated[str, typer.Option(help="Column with the measured value.")] = "",
    minimize: Annotated[
        bool | None,
        typer.Option("--minimize/--maximize", help="Whether smaller is better."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="A column that is no parameter, or several (a,b).")
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(help="Separates cells, such as ';' or tab. [default: the header decides]"),
    ] = None,
    sheet: Sheets = None,
    rename: Rename = None,
    json: Json = False,
) -> None:
    """Look at a table, and print the options of `learn` that fit it.

    The parameters that are found in it are listed first.

    With --json: command, parameters (name and description of each), notes and doubtful, the
    columns that may be parameters after all, each with what speaks against it.
    """
    options = HistoryOptions(
        history, Roles(task, output), minimize=minimize, exclude=exclude or (), delimiter=delimiter,
        sheets=sheet, rename=rename,
    )  # fmt: skip
    options.check()
    schema = options.propose()
    assert schema.space is not None
    command = shlex.join(
        ["metakel", "learn", *history, *_as_options(schema, delimiter, sheet, rename)]
    )
    if json:
        found = {p.name: p.describe() for p in schema.space.parameters}
        emit(
            {
                "command": command,
                "parameters": found,
                "notes": list(schema.notes),
                "doubtful": dict(schema.doubtful),
            }
        )
        return
    say("parameters")
    say(str(schema.space))
    say("the same, said by options:")
    say(f"  {command}")
    for text in schema.notes:
        note(f"note: {text}")


def _as_options(
    schema: Schema,
    delimiter: str | None,
    sheets: Sequence[str] | None,
    rename: Sequence[str] | None,
) -> list[str]:
    """The schema in the words of `metakel learn`."""
    assert schema.space is not None
    words = ["--task", schema.roles.task, "--output", schema.roles.output]
    words.append("--minimize" if schema.minimize else "--maximize")
    names = tuple(schema.inputs or ())
    words += ["--input", ",".join(names)] if typed_list(names) else []
    for p in schema.space.parameters:
        if getattr(p, "log", False):
            words += ["--log", p.name]
        if len(p.choices) > 1 and all(map(is_numeric, p.choices)):
            words += ["--category", p.name]
    words += [word for total in schema.space.sums for word in ("--sum", str(total))]
    words += [word for name in sheets or () for word in ("--sheet", name)]
    words += [word for text in rename or () for word in ("--rename", text)]
    said = {"--status": schema.roles.status, "--delimiter": delimiter}
    return [*words, *(word for name, v in said.items() if v is not None for word in (name, v))]
