"""Suggestions as rows of a table that a person fills in, and the way back to the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

from metakel.cli.console import note
from metakel.cli.outputs import quantity, typed
from metakel.errors import InputError
from metakel.io import append_csv, append_excel, csv_columns, excel_columns, parquet_columns
from metakel.io.cleaning import FAILED, normalised
from metakel.io.schema import SUGGESTION
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


FORMULA_MARKS = ("=", "+", "-", "@")  # text that spreadsheet programs compute


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
        cells = [value for row in rows for entry in row.items() for value in entry]
        odd = [cell for cell in cells if isinstance(cell, str) and cell.startswith(FORMULA_MARKS)]
        if odd:
            note(
                f"{path}: {odd[0]!r} begins like a formula, and spreadsheet programs may compute "
                "it; look at it in a text editor, or use a workbook (.xlsx), which keeps text"
            )


@dataclass(frozen=True)
class FilledIn:
    """What came from a table.

    Parameters
    ----------
    recorded : tuple of JournalTrial
    empty : tuple of int
        Numbers of the suggestions that wait for a result.
    differing : dict of str
        How rows differ from what the journal has of them, by number.
    problems : tuple of InputError
        What is wrong with the rows that could not be read.
    """

    recorded: tuple[JournalTrial, ...]
    empty: tuple[int, ...]
    differing: Mapping[int, str]
    problems: tuple[InputError, ...] = ()


@dataclass(frozen=True)
class _Row:
    """A row of a suggestion: where it stands, the settings that were used, what was measured."""

    number: int
    where: str
    settings: Mapping[str, Any]
    value: float | None
    outputs: Mapping[str, float | None]


def append_suggestions(
    path: Path,
    sheet: str | None,
    journal: Path,
    prior: Prior,
    trials: Sequence[JournalTrial],
    task: str,
    others: Sequence[str] = (),
) -> list[str]:
    """Write suggestions at the end of a table, with an empty cell for every result.

    Columns that the table lacks are added and returned. A table without the output or without any
    of the parameters is another one, and refused.
    """
    columns: dict[str, list[Any]] = {}
    with suppress(InputError):  # a new table, or one without rows
        columns = table_columns(path, sheet=sheet)
    names, output = prior.space.names, prior.info.output
    if columns and (output not in columns or not set(names) & set(columns)):
        raise InputError(
            f"{path.name} has the columns {', '.join(columns)}; expected a table of past runs with "
            f"{', '.join((*names, output))}, or a file that is not there yet"
        )
    column = task_column(columns, prior) if task else None
    rows = [
        {
            **({column: task} if column else {}),
            **trial.configuration,
            output: None,
            **dict.fromkeys(others),
            SUGGESTION: _label(journal, trial.number),
        }
        for trial in trials
    ]
    append_rows(path, rows, sheet)
    return [name for name in names if columns and name not in columns]


def read_results(
    record: JournalReader, journal: Path, path: Path, sheet: str | None, *, correct: bool
) -> FilledIn:
    """Record the rows of a table that have a result and did not have one before.

    What differs from the journal, in the result or in the settings, is recorded only with
    ``correct``. A row that cannot be read keeps no other one from being recorded.
    """
    rows, empty, differing, problems = _rows(record, journal, path, sheet)
    recorded = []
    for row in rows:
        trial = record.trials.all[row.number]
        used, reason = {**trial.configuration, **row.settings}, _reason(row.value)
        try:
            if trial.state == "pending":
                recorded.append(record.tell(used, row.value, row.number, reason, row.outputs))
            elif difference := _difference(trial, used, row.value):
                if correct:
                    found = record.correct(row.number, row.value, used, reason, row.outputs)
                    recorded.append(found)
                else:
                    differing[row.number] = difference
        except InputError as error:
            problems.append(error.at(row.where))
    return FilledIn(tuple(recorded), tuple(empty), differing, tuple(problems))


def _rows(
    record: JournalReader, journal: Path, path: Path, sheet: str | None
) -> tuple[list[_Row], list[int], dict[int, str], list[InputError]]:
    """Rows with a result; those that wait for one, have lost theirs, or cannot be read."""
    columns = table_columns(path, sheet=sheet)
    output, others = str(record.header["output"]), record.other_outputs
    for name in (SUGGESTION, output, *others):
        if name not in columns:
            raise InputError(
                f"{path.name} has no column {name!r}; found {', '.join(columns)}. "
                "`metakel suggest --append` writes suggestions to a table"
            )
    numbers = {_label(journal, trial.number): trial.number for trial in record.trials.all}
    rows, empty, lost, problems = list[_Row](), list[int](), dict[int, str](), list[InputError]()
    for i, label in enumerate(columns[SUGGESTION]):
        number = numbers.get(str(label))
        if number is None:
            continue
        value, where = columns[output][i], f"{path.name}, {SUGGESTION} {label!r}"
        trial = record.trials.all[number]
        if value is None:
            if trial.state == "pending":
                empty.append(number)
            elif trial.value is not None:
                lost[number] = f"no {output} in the table, and {trial.value:g} in the journal"
            continue
        cells = {name: columns[name][i] for name in record.space.names if name in columns}
        measured = {name: columns[name][i] for name in others if columns[name][i]}
        try:
            rows.append(_row(record, number, where, value, cells, measured))
        except InputError as problem:
            problems.append(problem)
    return rows, empty, lost, problems


def _row(
    record: JournalReader,
    number: int,
    where: str,
    value: Any,
    cells: Mapping[str, Any],
    measured: Mapping[str, Any],
) -> _Row:
    also = {name: _result(cell, where) for name, cell in measured.items()}
    lacking = [name for name in record.other_outputs if name not in also]
    settings, found = _settings(record.space, cells, where), _result(value, where)
    if lacking and found is not None:
        raise InputError(f"{where} has no {', '.join(lacking)}, which is limited")
    return _Row(number, where, settings, found, also)


def _label(journal: Path, number: int) -> str:
    """One table may hold the suggestions of several journals."""
    return f"{journal.name} {number}"


def task_column(columns: Mapping[str, list[Any]], prior: Prior) -> str | None:
    """The column that names past tasks of the prior, if the table has one."""
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


def _difference(trial: JournalTrial, used: Mapping[str, Any], value: float | None) -> str:
    """How a row differs from what is recorded of it; empty where it does not."""
    if trial.state == "dropped":
        return "a result, though it was dropped"
    parts = []
    if not _same(trial.value, value):
        parts.append(f"{_said(value)} instead of {_said(trial.value)}")
    for name, now in used.items():
        was = trial.configuration[name]
        if not _same(was, now):
            parts.append(f"{name}={now} instead of {was}")
    return ", ".join(parts)


def _said(value: float | None) -> str:
    return "failed" if value is None else f"{value:g}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=1e-12)
    return bool(one == other)
