"""Suggestions as rows of a table that a person fills in, and the way back to the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Any

from metakel.cli.console import note
from metakel.cli.history import is_parquet, is_workbook, table_columns
from metakel.errors import InputError
from metakel.io import append_csv, append_excel
from metakel.io.cleaning import FAILED, normalised
from metakel.io.schema import SUGGESTION
from metakel.priors import Prior
from metakel.space.text import quantity
from metakel.tuner import JournalReader, JournalTrial

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
    recorded : list of JournalTrial
    empty : list of int
        Numbers of the suggestions that wait for a result.
    differing : dict of str
        How rows differ from what the journal has of them, by number.
    problems : list of InputError
        What is wrong with the rows that could not be read.
    """

    recorded: list[JournalTrial] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    differing: dict[int, str] = field(default_factory=dict)
    problems: list[InputError] = field(default_factory=list)


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
    columns = table_columns(path, sheet=sheet)
    output, before = str(record.header["output"]), record.trials
    for name in (SUGGESTION, output, *record.other_outputs):
        if name not in columns:
            raise InputError(
                f"{path.name} has no column {name!r}; found {', '.join(columns)}. "
                "`metakel suggest --append` writes suggestions to a table"
            )
    trials = {_label(journal, trial.number): trial for trial in before.all}
    found = FilledIn()
    for i, label in enumerate(columns[SUGGESTION]):
        trial = trials.get(str(label))
        if trial is None:
            continue
        cells = {name: column[i] for name, column in columns.items()}
        try:
            if cells[output] is not None:
                _record(record, trial.number, cells, found, correct=correct)
            elif trial.state == "pending":
                found.empty.append(trial.number)
            elif trial.value is not None:
                lost = f"no {output} in the table, and {trial.value:g} in the journal"
                found.differing[trial.number] = lost
        except InputError as error:
            found.problems.append(error.at(f"{path.name}, {SUGGESTION} {label!r}"))
    return found


def _record(
    record: JournalReader, number: int, cells: Mapping[str, Any], found: FilledIn, *, correct: bool
) -> None:
    """Record a row with a result, or note how it differs from what is recorded of it."""
    value = _result(cells[record.header["output"]])
    outputs = {name: _result(cells[name]) for name in record.other_outputs if cells[name]}
    lacking = [name for name in record.other_outputs if name not in outputs]
    if lacking and value is not None:
        raise InputError(f"found no {', '.join(lacking)}, which is limited; expected a number")
    given = {name: cells[name] for name in record.space.names if cells.get(name) is not None}
    settings = {name: record.space.parse(name, cell) for name, cell in given.items()}
    trial = record.trials.all[number]
    used = {**trial.configuration, **settings}
    reason = "" if value is not None else "failed, by the table"
    if trial.state == "pending":
        found.recorded.append(record.tell(used, value, number, reason, outputs))
    elif difference := _difference(trial, used, value):
        if correct:
            found.recorded.append(record.correct(number, value, used, reason, outputs))
        else:
            found.differing[number] = difference


def _label(journal: Path, number: int) -> str:
    """One table may hold the suggestions of several journals."""
    return f"{journal.name} {number}"


def task_column(columns: Mapping[str, list[Any]], prior: Prior) -> str | None:
    """The column that names past tasks of the prior, if the table has one."""
    known = set(prior.info.tasks)
    return next((name for name, v in columns.items() if known & set(map(str, v))), None)


def _result(value: Any) -> float | None:
    """A number, or None for a word such as failed."""
    if isinstance(value, str) and normalised(value) in FAILED:
        return None
    number = quantity(value)
    if number is None:
        raise InputError(f"the result is {value!r}; expected a number or 'failed'")
    return number


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
