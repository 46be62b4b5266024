"""The past runs that a command is given: a file, or a storage of Optuna."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import typer

from metakel.data import History
from metakel.errors import InputError, MetaKelError
from metakel.io import csv_columns, parquet_columns
from metakel.space import Space


def read_history(
    source: str,
    task: str,
    output: str,
    *,
    minimize: bool,
    inputs: list[str] | None = None,
    log: list[str] | None = None,
    defaults: list[str] | None = None,
    categories: list[str] | None = None,
    space: Path | Space | None = None,
    extrapolate: bool = False,
    delimiter: str | None = None,
) -> History:
    """The history in a file or an Optuna storage."""
    options: dict[str, Any] = {"inputs": inputs, "log": log, "categories": categories or ()}
    options["extrapolate"] = extrapolate
    options["defaults"] = dict(_default(text) for text in defaults or ())
    if space is not None:
        options["space"] = space if isinstance(space, Space) else _read_space(space)
    if is_storage(source):
        return _read_storage(source, {k: v for k, v in options.items() if v})
    return _read_file(source, task, output, delimiter, {"minimize": minimize, **options})


def _read_file(
    source: str, task: str, output: str, delimiter: str | None, options: dict[str, Any]
) -> History:
    parquet = source.endswith((".parquet", ".pq"))
    if parquet and delimiter is not None:
        raise typer.BadParameter(f"--delimiter beside {source}: Parquet has none")
    inputs = options["inputs"]
    if not task or not output or any("," in name for name in inputs or ()):
        columns = parquet_columns(source) if parquet else csv_columns(source, delimiter=delimiter)
        if not task or not output:
            raise typer.BadParameter(_which(columns, task, output))
        options["inputs"] = [name for text in inputs for name in _names(text, columns)]
    if parquet:
        return History.from_parquet(source, task=task, output=output, **options)
    return History.from_csv(source, task=task, output=output, delimiter=delimiter, **options)


def _names(text: str, columns: Collection[str]) -> list[str]:
    """The columns that ``a,b`` names, unless one has that very name."""
    return [text] if text in columns else [name.strip() for name in text.split(",")]


def is_storage(source: str) -> bool:
    """Whether it is the URL of a storage, not a file."""
    return "://" in source


def _read_storage(url: str, options: dict[str, Any]) -> History:
    try:
        return History.from_optuna(url, **options)
    except (MetaKelError, ImportError):
        raise
    except Exception as error:  # of SQLAlchemy, a driver, or Optuna: whatever they raise
        reason = str(error).partition("\n")[0]
        raise InputError(f"{url} cannot be read as a storage of Optuna: {reason}") from error


def _read_space(path: Path) -> Space:
    try:
        return Space.from_toml(path)
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None


def _which(columns: dict[str, Any], task: str, output: str) -> str:
    lacking = " and ".join(
        f"{option} COLUMN ({meaning})"
        for option, meaning, given in (
            ("--task", "which names the past task", task),
            ("--output", "which was measured", output),
        )
        if not given
    )
    return f"say {lacking}; the columns are: {', '.join(columns)}"


def _default(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--default {text!r}; expected name=value")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value
