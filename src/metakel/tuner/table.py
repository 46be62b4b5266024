"""The table is the record: results and open rows are read from a file, the next rows added to it.

A person keeps one CSV file or workbook. Every row is what was done, or is to be done; nothing else
is remembered. A row with a result is a value of this task, one without is a suggestion that is
still open, whoever wrote it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel._files import as_path, write_atomically, writing
from metakel.errors import CannotWrite, Hint, InputError, first_of
from metakel.io import Column
from metakel.io.cleaning import normalized
from metakel.io.outputs import is_status, settled, without_bounds
from metakel.io.schema import meant
from metakel.io.tables import TableFile, empty_table, open_table
from metakel.io.words import LEFT_OUT, NOT_DONE, NOT_YET, UNFINISHED, UNSURE
from metakel.learn import LearnedKernel
from metakel.optimize import Reasons, Trial
from metakel.priors import Prior
from metakel.space.configurations import as_float, is_empty, quantity, split_unit
from metakel.tuner.fold import Configuration
from metakel.tuner.journal import Event
from metakel.tuner.lock import reserved
from metakel.tuner.source import Source
from metakel.tuner.store import result
from metakel.tuner.tuner import Tuner

# By these files Excel and LibreOffice say that they have a table open.
OPEN_ELSEWHERE = ("~${}", ".~lock.{}#")
TRIES = 3  # how often to decide again because the file was saved meanwhile
COUNTS_TWICE = "the prior was learned from {}, too, so its runs count twice: learn without it"
DROPPED = "dropped"  # in place of a reason of a failure


@dataclass(frozen=True)
class NextRow:
    """A suggestion: where it stands in the file, what it is, and why."""

    place: str
    trial: Trial
    why: Reasons


@dataclass(frozen=True, eq=False)
class NextRows:
    """What was added to a table.

    Parameters
    ----------
    tuner : Tuner
        It knows the results and open rows of the table, and the new ones.
    rows : tuple of NextRow
    open : tuple of str
        Where rows were found that have no result yet.
    notes : tuple of str
        What else was found in the table.
    """

    tuner: Tuner
    rows: tuple[NextRow, ...]
    open: tuple[str, ...]
    notes: tuple[str, ...]


def suggest_rows(
    prior: Prior | LearnedKernel | Source,
    path: str | Path,
    n: int = 1,
    *,
    sheet: str | None = None,
    task: str = "",
    given: Mapping[str, Any] | None = None,
    confirmed: bool = False,
    **options: Any,
) -> NextRows:
    """Add the next rows to fill in to a table, a CSV file or a workbook.

    What the table says is all that counts: rows may be in any order, and a value that was changed
    is what was done. Formats, formulas and other sheets stay as they are. The file is replaced as
    a whole or not at all, and other processes that add to it wait.

    Parameters
    ----------
    prior : Prior, LearnedKernel or Source
    path : path
        A file that is not there is begun, with a column for every parameter and the output.
    n : int
        How many rows to add.
    sheet : str, optional
        Of a workbook; by default the first with the columns.
    task : str
        Name of this task, where a column of the table names several.
    given : dict, optional
        Parameters that are given for these rows, not chosen.
    confirmed : bool
        Whether results far beyond the range of the output are right; else they are refused.
    **options
        Those of `Tuner`, except for its journal.
    """
    file = as_path(path)

    def tuner() -> Tuner:
        return Tuner(prior, None, adopt_after="never", task=task, **options)

    with reserved(file, wait=True):
        _refuse_open_elsewhere(Path(os.path.realpath(file)))
        if not file.exists():
            begun = tuner()
            shares = (begun.output,) if begun.source.scale.shares else ()
            write_atomically(file, empty_table(file, columns_of(begun), sheet, shares))
        for _ in range(TRIES):
            before = file.read_bytes()
            asking = tuner()
            table = _opened(file, asking, sheet)
            found = _Reading(asking, table, confirmed=confirmed)
            found.check_writing()
            trials = found.tuner.ask_trials(n, given)
            content = found.with_rows(trials)
            found.verify(content, trials, sheet)
            _refuse_open_elsewhere(file)
            if file.read_bytes() == before:
                write_atomically(file, content)
                return found.next_rows(trials, given)
    raise CannotWrite(
        f"{file} was saved {TRIES} times by another program while the next rows were chosen; "
        "nothing was added"
    )


def columns_of(tuner: Tuner) -> list[str]:
    """Names of what a table of runs needs: parameters, the output, and others with rules."""
    return [*tuner.space.free, tuner.output, *tuner.source.others]


def _opened(path: Path, tuner: Tuner, sheet: str | None) -> TableFile:
    """The table, with the sign in the output's cells where past tasks decide what it means."""
    signed = () if tuner.source.scale.usual is None else (tuner.output,)
    return open_table(path, sheet, having=columns_of(tuner), signed=signed)


class _Reading:
    """A table as a record: a tuner that knows its rows, and the file that gets more."""

    def __init__(self, tuner: Tuner, table: TableFile, *, confirmed: bool) -> None:
        self.tuner, self.table, self.confirmed = tuner, table, confirmed
        self.columns = table.columns
        needed, known = columns_of(tuner), tuner.space.names
        self.names = matched(self.columns, needed, known, "the table")
        self.notes = list(table.notes)
        table.refuse_uncalculated(list(self.names.values()))
        column, task, rows = rows_of_task(self.columns, tuner, "the table")
        self.label = {column: task} if column else {}
        if task in tuner.source.tasks:
            self.notes.append(COUNTS_TWICE.format(task))
        self.open: list[str] = []
        self.events = list(self._events(rows))
        tuner._turn(lambda: tuner._store.append(self.events))

    def _events(self, rows: Sequence[int]) -> Iterator[Event]:
        """The rows as events, in the order of the file."""
        values, failed, waiting = self._results(rows)
        left_out: dict[str, list[str]] = {}
        others = {n: self._numbers(n, rows) for n in self.tuner.source.others}
        trials = 0
        for k, i in enumerate(rows):
            cells = {name: self.columns[c][i] for name, c in self.names.items()}
            filled = [v for v in cells.values() if not is_empty(v)]
            if not filled:
                continue
            if len(filled) == 1 < len(self.tuner.space.free) and isinstance(filled[0], str):
                self.notes.append(f"left out: {self.table.place(i)}, a remark ({filled[0]!r})")
                continue
            row = self._configuration(cells, i)
            lacking = self.tuner.space.missing(row)
            if lacking:
                left_out.setdefault(", ".join(lacking), []).append(self.table.place(i))
                continue
            outputs = {name: found[k] for name, found in others.items()}
            trials += 1
            if waiting[k] or failed[k] == DROPPED:
                yield {"event": "asked", "configuration": row, "by": None, "queued": False}
            if waiting[k]:
                self.open.append(self.table.place(i))
            elif failed[k] == DROPPED:
                yield {"event": "dropped", "number": trials - 1, "again": False}
            else:
                value = None if failed[k] else values[k]
                yield result(row, value, failed[k], {} if failed[k] else outputs)
        for what, places in left_out.items():
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            self.notes.append(f"left out: {places[0]}{more}, without {what}")

    def _note(self, i: int, text: str) -> None:
        self.notes.append(f"{self.table.place(i)}: {text}")

    @contextmanager
    def _at(self, i: int, column: str = "") -> Iterator[None]:
        """Errors name the row, and the column."""
        try:
            yield
        except InputError as error:
            raise error.at(self.table.place(i) + (column and f", {column}")) from None

    def _configuration(self, cells: Mapping[str, Any], i: int) -> Configuration:
        with self._at(i):
            row = self.tuner.space.parse_row(cells)
            if self.tuner.space.missing(row):
                return row
            checked = self.tuner._checked(row)
        for name in row.keys() & cells.keys():
            if isinstance(row[name], str) and str(cells[name]).strip() != row[name]:
                self._note(i, f"{name} {cells[name]!r} is taken for {row[name]!r}")
        for text in self.tuner.space.unlike(checked):
            self._note(i, f"{text}; recorded as it was done")
        return checked

    def _results(self, rows: Sequence[int]) -> tuple[list[float], list[str], list[bool]]:
        """Values, why runs failed (empty where they did not), and which rows are open."""
        name = self.tuner.output
        said = [self.columns[self.names[name]][i] for i in rows]
        column, signs = without_bounds(Column.of(said))
        cells = [column[k] for k in range(len(column))]
        words = self._statuses(rows)
        failed, waiting, values = list[str](), list[bool](), np.full(len(cells), nan)
        for k, cell in enumerate(cells):
            word = normalized(cell) if isinstance(cell, str) else ""
            number = as_float(cell) if not isinstance(cell, str) and not is_empty(cell) else None
            empty = is_empty(cell) or word in UNFINISHED | NOT_YET
            known = word in NOT_DONE - UNSURE
            remark = bool(word) and not known and not any(map(str.isdigit, word))
            stopped = words[k] in NOT_DONE or ((known or remark) and not empty)
            if remark and stopped:
                what = "left out" if word in LEFT_OUT else "taken for a run that failed"
                doubt = "; if it does not count, write 'not done'" if word in UNSURE else ""
                self._note(rows[k], f"{str(cell).strip()!r} is {what}{doubt}")
            if number is None and not empty and not stopped:
                number = self._quantity(name, cell, rows[k])
            if number is not None and not isfinite(number):
                stopped = True
            why = DROPPED if word in LEFT_OUT else str(cell if word else words[k]) or "no value"
            failed.append(why if stopped else "")
            waiting.append(not stopped and (empty or words[k] in UNFINISHED))
            if number is not None and not failed[k] and not waiting[k]:
                values[k] = self._on_scale(number, cell, rows[k])
        self._ask_about_shares(values, rows)
        beyond = settled(values, np.asarray(signs), np.zeros(len(cells), dtype=np.intp))
        return beyond.tolist(), failed, waiting

    def _on_scale(self, number: float, cell: Any, i: int) -> float:
        """The value that a cell means on the scale of past tasks."""
        scale = self.tuner.source.scale
        with self._at(i):
            value = scale.read(number, cell, confirmed=self.confirmed)
        if value != number:
            self._note(i, scale.as_read(cell, value))
        return value

    def _ask_about_shares(self, values: Array, rows: Sequence[int]) -> None:
        """Note a result such as 0.705 among 62 to 72, which may be meant in per cent."""
        measured = values[np.isfinite(values)]
        if len(measured) < 3 or (middle := float(np.median(measured))) <= 1:
            return
        for k in np.flatnonzero((values > 0) & (values < 1)).tolist():
            if middle / 2 <= 100 * values[k] <= 2 * middle:
                self._note(
                    rows[k],
                    f"{self.tuner.output} is {values[k]:g}, about a hundredth of the others; if "
                    f"per cent are meant, write {100 * values[k]:g}",
                )

    def _statuses(self, rows: Sequence[int]) -> list[str]:
        """What a column of statuses says, where there is one."""
        for name, cells in self.columns.items():
            if name not in self.names.values() and is_status(name, Column.of(cells)):
                return ["" if is_empty(cells[i]) else normalized(str(cells[i])) for i in rows]
        return [""] * len(rows)

    def _numbers(self, name: str, rows: Sequence[int]) -> list[float | None]:
        cells = [self.columns[self.names[name]][i] for i in rows]
        found = zip(cells, rows, strict=True)
        return [None if is_empty(v) else self._quantity(name, v, i) for v, i in found]

    def _quantity(self, name: str, cell: Any, i: int) -> float:
        with self._at(i, name):
            number = quantity(cell)
        if number is None:
            raise InputError(
                f"{self.table.place(i)}: {name} is {cell!r}; expected a number, nothing while the "
                "run is open, or a word such as 'failed'"
            )
        found = split_unit(cell) if isinstance(cell, str) else None
        if found and found[1] not in name and found[1] != "%":
            self._note(i, f"{name} {cell!r} is read as {number:g}")
        return number

    # Writing

    def check_writing(self) -> None:
        """Find out whether rows can be added before anything is decided."""
        self.table.with_rows([dict.fromkeys(self.names.values())])

    def _row(self, trial: Trial) -> dict[str, Any]:
        """The cells of a new row."""
        point = trial.point.items()
        cells = dict.fromkeys(self.names[n] for n in columns_of(self.tuner))
        return cells | self.label | {self.names[n]: v for n, v in point if n in self.names}

    def with_rows(self, trials: Sequence[Trial]) -> bytes:
        """The file with the suggestions below its rows."""
        return self.table.with_rows([self._row(trial) for trial in trials])

    def verify(self, content: bytes, trials: Sequence[Trial], sheet: str | None) -> None:
        """Read what is about to be written: all that was there, and all suggestions."""
        n = len(next(iter(self.columns.values()), ()))
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / self.table.path.name
            copy.write_bytes(content)
            after = _opened(copy, self.tuner, sheet).columns
        same = all(_alike(after.get(k, ())[:n], cells) for k, cells in self.columns.items())
        rows = zip(*(after[column][n:] for column in self.names.values()), strict=True)
        found = [self._key(dict(zip(self.names, row, strict=True))) for row in rows]
        if not same or found != [self._key(trial.point) for trial in trials]:
            raise CannotWrite(
                f"{self.table.path} cannot be added to without changing what it says; it was left "
                "as it is"
            )

    def _key(self, cells: Mapping[str, Any]) -> str:
        space = self.tuner.space
        return space.key(space.parse_row({k: v for k, v in cells.items() if k in self.names}))

    def next_rows(self, trials: Sequence[Trial], given: Mapping[str, Any] | None) -> NextRows:
        """What was added, and why."""
        rows = tuple(
            NextRow(self.table.next_place(i), trial, self.tuner.explain(trial.point, given))
            for i, trial in enumerate(trials)
        )
        return NextRows(self.tuner, rows, tuple(self.open), tuple(self.notes))


def rows_of_task(
    columns: Mapping[str, Sequence[Any]], tuner: Tuner, where: str
) -> tuple[str, str, list[int]]:
    """The column that names tasks, this task in it, and its rows; all, where no column does."""
    past, task = set(tuner.source.tasks), tuner.options.task.name
    rows = list(range(len(next(iter(columns.values()), ()))))
    column = next((name for name, v in columns.items() if past & set(map(str, v))), None)
    if column is None:
        return "", "", rows
    labels, above = list[str](), ""
    for cell in columns[column]:  # a task may be named in the first row of its block
        above = above if is_empty(cell) else str(cell)
        labels.append(above)
    names = list(dict.fromkeys(filter(None, labels)))
    new = [name for name in names if name not in past]
    if not task and len(new) != 1 and len(names) > 1:
        raise InputError(
            f"{where} holds runs of {len(names)} tasks ({column}: {first_of(names, 3)}), of which "
            f"{len(new)} are not known to the prior; expected runs of this task only",
            Hint("name the task to take", "task=NAME", "--task NAME"),
        )
    task = task or (new or names)[0]
    return column, task, [i for i in rows if labels[i] == task]


def matched(
    columns: Mapping[str, Any], needed: Sequence[str], known: Sequence[str], where: str
) -> dict[str, str]:
    """The column of every name; case and spaces may differ."""
    found: dict[str, str] = {}
    for name in dict.fromkeys((*needed, *known)):
        alike = [c for c in columns if " ".join(c.split()).casefold() == name.casefold()]
        if name in columns or len(alike) == 1:
            found[name] = name if name in columns else alike[0]
    lacking = [name for name in needed if name not in found]
    if lacking:
        raise InputError(
            f"{where} has no column {', '.join(repr(n) + meant(n, columns) for n in lacking)}; "
            f"found {', '.join(columns)}, expected one for each of {', '.join(needed)}"
        )
    return found


def _alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether cells say the same; whole numbers may have become others."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(a == b or str(a) == str(b) for a, b in pairs)


def _refuse_open_elsewhere(file: Path) -> None:
    """Refuse a file that may not be written, or that a spreadsheet has open."""
    if not file.exists():
        return
    if not os.access(file, os.W_OK):
        raise CannotWrite(f"{file} cannot be written: it is protected; nothing was chosen")
    for pattern in OPEN_ELSEWHERE:
        mark = file.with_name(pattern.format(file.name))
        if mark.exists():
            raise CannotWrite(
                f"{file} is open in another program, which would overwrite what is added; save and "
                f"close it there (if it is closed, remove {mark.name})"
            )
    with writing(file), file.open("r+b"):  # refused by Windows where another program has it open
        pass
