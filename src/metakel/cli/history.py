"""Past runs: tables, Optuna storages and journals as one history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import typer

from metakel.data import History, Task
from metakel.data.history import with_choices
from metakel.errors import InputError, MetaKelError
from metakel.io import (
    Roles,
    Schema,
    Table,
    csv_columns,
    excel_columns,
    join_tables,
    propose,
    read_csv,
    read_excel,
    read_jsonl,
    read_parquet,
    read_sheets,
    renamed,
)
from metakel.io.optuna import Studies
from metakel.io.schema import without_prefixes
from metakel.io.stopped import Ends, TaskCurves, expected_ends
from metakel.io.tables import kind_of
from metakel.optimize.record import Record
from metakel.space import Space
from metakel.tuner import Store

ENDINGS = (".jsonl", ".journal")


def table_columns(
    path: str | Path,
    delimiter: str | None = None,
    sheet: str | None = None,
    having: Collection[str] = (),
    signed: Collection[str] = (),
) -> dict[str, list[Any]]:
    """The columns of a file as lists, under the names that `learn` reads them by.

    Cells of the ``signed`` columns that a workbook shows as per cent are texts, such as "70 %".
    """
    kind = kind_of(path)
    if kind == "workbook":
        found = excel_columns(path, sheet=sheet, having=having, signed=signed)
    elif kind == "text":
        found = csv_columns(path, delimiter=delimiter)
    else:
        table = (read_jsonl if kind == "JSON" else read_parquet)(path, task="", output="")
        found = {name: column.tolist() for name, column in table.columns.items()}
    return without_prefixes(found, having)[0]


@dataclass(frozen=True)
class HistoryOptions:
    """Where past runs are and how they are read, as they were typed.

    ``recorded`` are outputs of which records are kept; ``space`` is a TOML file, or the space.
    """

    sources: Sequence[str]
    roles: Roles
    recorded: Sequence[str] = ()
    minimize: bool | None = None
    inputs: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    log: Sequence[str] | None = None
    defaults: Sequence[str] = ()
    categories: Sequence[str] = ()
    space: Path | Space | None = None
    extrapolate: bool = False
    delimiter: str | None = None
    sheets: Sequence[str] | None = None
    sums: Sequence[str] | None = None
    rename: Sequence[str] | None = None

    @property
    def others(self) -> list[str]:
        """Recorded outputs beside the one that is optimised."""
        return [name for name in self.recorded if name != self.roles.output]

    def check(self) -> None:
        """Refuse options that do not go together."""
        storage = next((source for source in self.sources if is_storage(source)), "")
        if storage and len(self.sources) > 1:
            raise typer.BadParameter(
                f"{storage} beside other files; expected files, or one storage"
            )
        said = {
            "--task": self.roles.task,
            "--output": self.roles.output,
            "--limit-output": self.recorded,
            "--log": self.log,
            "--space": self.space,
            "--category": self.categories,
            "--status": self.roles.status,
            "--noise-column": self.roles.noise,
            "--delimiter": self.delimiter,
            "--sheet": self.sheets,
            "--step": self.roles.step,
            "--minimize": self.minimize is True,
            "--maximize": self.minimize is False,
        }
        given = ", ".join(name for name, value in said.items() if value)
        if storage and given:
            raise typer.BadParameter(f"{given} beside {storage}: the studies themselves say this")
        space = self.space
        if space is not None and self.log:
            raise typer.BadParameter(
                f"--log beside --space: {space} says which scales are log scales"
            )
        if space is not None and self.categories:
            raise typer.BadParameter(f"--category beside --space: {space} says what columns hold")
        if self.extrapolate and space is None:
            raise typer.BadParameter(
                "--extrapolate without --space: there are no ranges to go beyond"
            )

    def read(self) -> History:
        """The history in files or in an Optuna storage."""
        options = self._options()
        if is_storage(self.sources[0]):
            said = {k: v for k, v in options.items() if v}
            return _read_storage(self.sources[0], self._renames, said)
        sources, options = self._files({"minimize": self.minimize, **options})
        return History.from_table(sources, step=self.roles.step, **options)

    def propose(self) -> Schema:
        """What the files say, with what is guessed of it."""
        sources, options = self._files({"minimize": self.minimize, **self._options()})
        return propose(join_tables(sources), **options)

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "inputs": self.inputs,
            "exclude": [*self.exclude, *self.others],
            "log": self.log,
            "categories": self.categories,
            "status": self.roles.status,
            "noise": self.roles.noise,
            "extrapolate": self.extrapolate,
            "defaults": dict(_default(text) for text in self.defaults),
        }
        if self.sums:
            options["sums"] = [] if list(self.sums) == ["none"] else self.sums
        if self.space is not None:
            given = self.space
            options["space"] = Space.from_toml(given) if isinstance(given, Path) else given
        return options

    def read_other(self, output: str, space: Space | None) -> History:
        """The same runs with another output, at the parameters that were found."""
        roles = replace(self.roles, output=output, status=None, noise=None)
        return HistoryOptions(
            self.sources, roles, minimize=False, defaults=self.defaults, space=space,
            extrapolate=self.extrapolate, delimiter=self.delimiter, sheets=self.sheets,
            rename=self.rename,
        ).read()  # fmt: skip

    def _files(self, options: dict[str, Any]) -> tuple[list[Table], dict[str, Any]]:
        lists = ("inputs", "exclude")
        several = any("," in name for key in lists for name in options[key] or ())
        columns: dict[str, Any] = {}
        lacking = several or not (self.roles.task and self.roles.output)
        for source in self.sources if lacking else ():
            columns |= table_columns(source, self.delimiter, self._first_sheet, self.roles.names)
        columns = {self._renames.get(name, name): cells for name, cells in columns.items()}
        if self._several_sheets and self.roles.output and not self.roles.task:
            return replace(self, roles=replace(self.roles, task="sheet"))._files(options)
        if not self.roles.task or not self.roles.output:
            raise typer.BadParameter(_which(columns, self.roles.task, self.roles.output))
        if several:
            for key in lists:
                if options[key]:
                    options[key] = [name for text in options[key] for name in _names(text, columns)]
        found = [part for source in self.sources for part in self._read_file(source)]
        return renamed(found, self._renames), options

    @property
    def _renames(self) -> dict[str, str]:
        pairs = [text.partition("=") for text in self.rename or ()]
        for old, equals, new in pairs:
            if not old or not equals or not new:
                raise InputError(f"--rename {old}{equals}{new}; expected old=new")
        return {old: new for old, _, new in pairs}

    @property
    def _several_sheets(self) -> bool:
        sheets = self.sheets or ()
        return len(sheets) > 1 or "*" in sheets

    @property
    def _first_sheet(self) -> str | None:
        one = self.sheets[0] if self.sheets else None
        return None if one == "*" else one

    def _read_file(self, source: str) -> list[Table]:
        """A table, or several sheets of a workbook."""
        columns, kind = {"task": self.roles.task, "output": self.roles.output}, kind_of(source)
        if kind != "text" and self.delimiter is not None:
            raise typer.BadParameter(f"--delimiter beside {source}: only text has one")
        if kind != "workbook" and self._first_sheet is not None:
            raise typer.BadParameter(f"--sheet beside {source}: only workbooks (.xlsx) have sheets")
        if kind == "workbook" and self._several_sheets:
            return read_sheets(source, sheets=self.sheets or (), **columns)
        if kind == "workbook":
            return [read_excel(source, sheet=self._first_sheet, **columns)]
        if kind == "text":
            return [read_csv(source, delimiter=self.delimiter, **columns)]
        return [(read_jsonl if kind == "JSON" else read_parquet)(source, **columns)]


def is_storage(source: str) -> bool:
    """Whether it is the URL of a storage, not a file."""
    return "://" in source


def _read_storage(url: str, rename: dict[str, str], options: dict[str, Any]) -> History:
    try:
        return History.from_optuna(Studies(url, rename=rename), **options)
    except (MetaKelError, ImportError):
        raise
    except Exception as error:  # of SQLAlchemy, a driver, or Optuna: whatever they raise
        reason = str(error).partition("\n")[0]
        raise InputError(f"{url} cannot be read as a storage of Optuna: {reason}") from error


def _names(text: str, columns: Collection[str]) -> list[str]:
    """The columns that ``a,b`` names, unless one has that very name."""
    return [text] if text in columns else [name.strip() for name in text.split(",")]


def _which(columns: Collection[str], task: str, output: str) -> str:
    options = {
        "--task COLUMN (which names the past task)": task,
        "--output COLUMN (which was measured)": output,
    }
    lacking = " and ".join(option for option, given in options.items() if not given)
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


# Journals


def with_journals(past: History, paths: Sequence[Path]) -> tuple[History, str]:
    """The history with one task more for every journal that has values, and what was added."""
    files = list(dict.fromkeys(file.resolve() for path in paths for file in _files(path)))
    journals = {file: Store.open(file) for file in files}
    used = [trial.point for journal in journals.values() for trial in journal.run.record.observed]
    past = with_choices(past, used)
    ends = _ends([journal.run.record for journal in journals.values()], past)
    found = [
        (file, _task(file, journal, past, of))
        for (file, journal), of in zip(journals.items(), ends, strict=True)
    ]
    new = tuple(task for _, task in found if task is not None)
    known = {task.name for task in past}
    for task in new:
        if task.name in known:
            raise InputError(
                f"there are two tasks named {task.name!r}; expected another name in the table, or "
                "another name of the journal"
            )
        known.add(task.name)
    runs = sum(task.n for task in new)
    empty = [file.name for file, task in found if task is None]
    parts = [f"{len(new)} tasks with {runs} runs added from journals"]
    early = sum(end is not None for of in ends for end in of.stopped)
    if early:
        parts.append(f"{early} of the runs were stopped early and count by their expected ends")
    if empty:
        parts.append(f"without a value: {', '.join(empty)}")
    waiting = [file.name for file, journal in journals.items() if journal.run.record.pending]
    if waiting:
        parts.append(
            f"with results still to come: {', '.join(waiting)} (to go on with these runs, keep the "
            "prior that they began with)"
        )
    return replace(past, tasks=(*past.tasks, *new)), "; ".join(parts)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in ENDINGS)
    if not files:
        raise InputError(f"{path} holds no journal; expected files *{', *'.join(ENDINGS)}")
    return files


def _ends(records: Sequence[Record], past: History) -> list[Ends]:
    """What is to be expected of the runs that were stopped early, in each journal."""
    assert past.report is not None
    minimize = past.report.minimize
    tasks = [TaskCurves(tuple(curves), (), nan) for curves in past.curves.values()]
    for record in records:
        values = [trial.value for trial in record.observed if trial.value is not None]
        whole = tuple(t.note.curve for t in record if t.state == "complete" and t.note.curve)
        early = tuple(t.note.curve for t in record.stopped)
        tasks.append(TaskCurves(whole, early, (min if minimize else max)(values, default=nan)))
    return expected_ends(tasks, minimize=minimize)[len(past.curves) :]


def _task(file: Path, journal: Store, past: History, ends: Ends) -> Task | None:
    """The finished runs of a journal in the units of a history; None where there are none."""
    assert past.space is not None  # a table has named parameters
    assert past.report is not None
    output, minimize = str(journal.header["output"]), bool(journal.header["minimize"])
    if (output, minimize) != (past.report.output, past.report.minimize):
        raise InputError(
            f"{file} {_aim(output, minimize)}, but the table "
            f"{_aim(past.report.output, past.report.minimize)}"
        )
    if set(journal.space.names) != set(past.space.names):
        raise InputError(
            f"{file} has the parameters {', '.join(journal.space.names)}; expected those of the "
            f"table, {', '.join(past.space.names)}"
        )
    done = [trial for trial in journal.run.record.observed if trial.value is not None]
    if not done:
        return None
    early = [
        (trial.point, *end)
        for trial, end in zip(journal.run.record.stopped, ends.stopped, strict=True)
        if end is not None
    ]
    points = [*(trial.point for trial in done), *(point for point, *_ in early)]
    X = past.space.place(points)
    y = np.array([*(trial.value for trial in done), *(end for _, end, _ in early)], dtype=float)
    noise = np.array([*(len(done) * [ends.noise_std]), *(noise for *_, noise in early)])
    name = str(journal.header.get("task") or file.stem)
    return Task(X, -y if minimize else y, name=name, noise_std=noise if early else None)


def _aim(output: str, minimize: bool) -> str:
    return f"{'minimises' if minimize else 'maximises'} {output!r}"
