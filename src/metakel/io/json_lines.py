"""JSON lines: one object per run, with parameters at the top or one level below."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metakel._files import read_text
from metakel.errors import Hint, InputError
from metakel.io.columns import Column, Columns
from metakel.io.schema import Source


def read_jsonl(path: str | Path, *, task: str, output: str) -> Source:
    """A file with one JSON object per line; objects in it are spread, as in ``params.rate``.

    The name of a nested value is its own where that is the only one of its name.
    """
    file = Path(path)
    columns, lines = _columns(file)
    return Source(
        file.name, columns, task, output, place=lambda i: f"line {lines[i]} of {file.name}"
    )


def jsonl_columns(path: str | Path) -> dict[str, list[Any]]:
    """Columns of a file of JSON lines as lists, None for missing values."""
    return {name: column.tolist() for name, column in _columns(Path(path))[0].items()}


def _columns(file: Path) -> tuple[Columns, list[int]]:
    rows, lines = list[dict[tuple[str, ...], Any]](), list[int]()
    for number, line in enumerate(read_text(file, "JSON lines").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {number} of {file.name} is not JSON: {error}") from None
        if not isinstance(found, Mapping):
            raise InputError(
                f"line {number} of {file.name} is {str(found)[:40]!r}; expected an object, as in "
                '{"data": "a", "rate": 0.1, "auc": 0.9}'
            )
        if number == 1 and found.get("format") == "metakel.journal":
            raise InputError(
                f"{file.name} is a journal of metakel; expected a table of past runs",
                Hint("learn from journals", "Store.open(path)", "--journals"),
            )
        rows.append(dict(_spread(found)))
        lines.append(number)
    if not rows:
        raise InputError(f"{file.name} has no line; expected one JSON object per run")
    paths = list(dict.fromkeys(path for row in rows for path in row))
    ends = [path[-1] for path in paths]
    names = [p[-1] if ends.count(p[-1]) == 1 else ".".join(p) for p in paths]
    pairs = zip(paths, names, strict=True)
    return {name: Column.of([row.get(path) for row in rows]) for path, name in pairs}, lines


def _spread(entry: Mapping[str, Any], above: tuple[str, ...] = ()) -> Any:
    for name, value in entry.items():
        if isinstance(value, Mapping):
            yield from _spread(value, (*above, str(name)))
        else:
            yield (*above, str(name)), value
