"""Suggestions as rows of a table that a person fills in, and the way back to the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

from metakel.cli.outputs import quantity, typed
from metakel.errors import InputError
from metakel.io import append_csv, append_excel, csv_columns, excel_columns, parquet_columns
from metakel.io.cleaning import FAILED, normalised
from metakel.priors import Prior
from metakel.space import Space
from metakel.tuner import JournalReader, JournalTrial


def is_workbook(path: str | Path) -> bool:
    """Whether it is an Excel workbook."""
    return str(path).lower().endswith((".xlsx", ".xlsm"))


def is_parquet(path: str | Path) -> bool:
    """Whether it is a Parquet file."""
    return str(path).endswith((".parquet", ".pq"))


def table_columns(
    path: str | Path, delimiter: str | None = None, sheet: str | None = None
) -> dict[str, list[Any]]:
    """The columns of a file as lists."""
    if is_workbook(path):
        return excel_columns(path, sheet=sheet)
    return parquet_columns(path) if is_parquet(path) else csv_columns(path, delimiter=delimiter)


def append_rows(
    path: str | Path, rows: Sequence[Mapping[str, Any]], sheet: str | None = None
) -> None:
    """Write rows at the end of a table, for people to fill in."""
    if is_parquet(path):
        raise InputError(f"{path} is a Parquet file; expected a CSV file or a workbook (.xlsx)")
    if is_workbook(path):
        append_excel(path, rows, sheet=sheet)
    else:
        append_csv(path, rows)


# The column that says which row belongs to which suggestion.
SUGGESTION = "suggestion"


@dataclass(frozen=True)
class FilledIn:
    """What came from a table: trials that were recorded, and numbers of rows still to fill in."""

    recorded: tuple[JournalTrial, ...]
    empty: tuple[int, ...]
    differing: tuple[int, ...]


def append_suggestions(
    path: Path,
    sheet: str | None,
    journal: Path,
    prior: Prior,
    trials: Sequence[JournalTrial],
    task: str,
    others: Sequence[str] = (),
) -> None:
    """Write suggestions at the end of a table, with an empty cell for every result."""
    column = _task_column(path, sheet, prior) if task else None
    rows = [
        {
            **({column: task} if column else {}),
            **trial.configuration,
            prior.info.output: None,
            **dict.fromkeys(others),
            SUGGESTION: _label(journal, trial.number),
        }
        for trial in trials
    ]
    append_rows(path, rows, sheet)


def read_results(
    record: JournalReader, journal: Path, path: Path, sheet: str | None, *, correct: bool
) -> FilledIn:
    """Record the rows of a table that have a result and did not have one before.

    A result that differs from the journal's is recorded only with ``correct``.
    """
    columns = table_columns(path, sheet=sheet)
    output = str(record.header["output"])
    others = record.other_outputs
    for name in (SUGGESTION, output, *others):
        if name not in columns:
            raise InputError(
                f"{path.name} has no column {name!r}; found {', '.join(columns)}. "
                "`metakel suggest --append` writes suggestions to a table"
            )
    numbers = {_label(journal, trial.number): trial.number for trial in record.trials.all}
    found: list[tuple[int, dict[str, Any], float | None, dict[str, float | None]]] = []
    empty = []
    for i, label in enumerate(columns[SUGGESTION]):
        number = numbers.get(str(label))
        if number is None:
            continue
        value, where = columns[output][i], f"{path.name}, {SUGGESTION} {label!r}"
        if value is None:
            empty.append(number)
            continue
        cells = {name: columns[name][i] for name in record.space.names if name in columns}
        also = {name: _result(columns[name][i], where) for name in others if columns[name][i]}
        lacking = [name for name in others if name not in also]
        settings, number_found = _settings(record.space, cells, where), _result(value, where)
        if lacking and number_found is not None:
            raise InputError(f"{where} has no {', '.join(lacking)}, which is limited")
        found.append((number, settings, number_found, also))
    recorded, differing = [], []
    for number, settings, value, also in found:
        trial = record.trials.all[number]
        if trial.state == "pending":
            used = {**trial.configuration, **settings}
            recorded.append(record.tell(used, value, number, _reason(value), also))
        elif not _same(trial, value):
            if correct:
                used = {**trial.configuration, **settings}
                recorded.append(record.correct(number, value, used, _reason(value), also))
            else:
                differing.append(number)
    return FilledIn(tuple(recorded), tuple(empty), tuple(differing))


def _label(journal: Path, number: int) -> str:
    """One table may hold the suggestions of several journals."""
    return f"{journal.name} {number}"


def _task_column(path: Path, sheet: str | None, prior: Prior) -> str | None:
    """The column that names past tasks of the prior, if the table has one."""
    columns: dict[str, list[Any]] = {}
    with suppress(InputError):  # a new table, or one without rows
        columns = table_columns(path, sheet=sheet)
    known = set(prior.info.tasks)
    return next((name for name, v in columns.items() if known & set(map(str, v))), None)


def _settings(space: Space, cells: Mapping[str, Any], where: str) -> dict[str, Any]:
    try:
        return {name: typed(space, name, cell) for name, cell in cells.items() if cell is not None}
    except InputError as error:
        raise error.at(where) from None


def _result(value: Any, where: str) -> float | None:
    """A number, or None for a word such as failed."""
    if isinstance(value, str) and normalised(value) in FAILED:
        return None
    try:
        number = quantity(value)
    except InputError as error:
        raise error.at(where) from None
    if number is None:
        raise InputError(f"{where}: the result is {value!r}; expected a number or 'failed'")
    return number


def _reason(value: float | None) -> str:
    return "" if value is not None else "failed, by the table"


def _same(trial: JournalTrial, value: float | None) -> bool:
    if trial.value is None or value is None:
        return trial.value is None and value is None
    return isclose(trial.value, value, rel_tol=1e-12)
