"""Past runs: tables, Optuna storages and journals as one history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from metakel.data import History, Task
from metakel.data.history import with_choices
from metakel.errors import InputError
from metakel.io import (
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
LISTS = ("inputs", "exclude")  # options of which one text may name several columns


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
class PastRuns:
    """Where past runs are and how they are read, as they were typed.

    ``recorded`` are outputs of which records are kept; ``options`` are those of
    `History.from_frame`, with a TOML file for the space.
    """

    sources: Sequence[str]
    task: str = ""
    output: str = ""
    recorded: Sequence[str] = ()
    step: str | None = None
    delimiter: str | None = None
    sheets: Sequence[str] = ()
    rename: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Options that do not go together are refused."""
        said = self.options.get
        storage = next((source for source in self.sources if is_storage(source)), "")
        if storage and len(self.sources) > 1:
            raise typer.BadParameter(
                f"{storage} beside other files; expected files, or one storage"
            )
        typed = {
            "--task": self.task,
            "--output": self.output,
            "--limit-output": self.recorded,
            "--log": said("log"),
            "--space": said("space"),
            "--category": said("categories"),
            "--status": said("status"),
            "--noise-column": said("noise"),
            "--delimiter": self.delimiter,
            "--sheet": self.sheets,
            "--step": self.step,
            "--minimize": said("minimize") is True,
            "--maximize": said("minimize") is False,
        }
        given = ", ".join(name for name, value in typed.items() if value)
        if storage and given:
            raise typer.BadParameter(f"{given} beside {storage}: the studies themselves say this")
        space = said("space")
        if space is not None and said("log"):
            raise typer.BadParameter(
                f"--log beside --space: {space} says which scales are log scales"
            )
        if space is not None and said("categories"):
            raise typer.BadParameter(f"--category beside --space: {space} says what columns hold")
        if space is None and said("extrapolate"):
            raise typer.BadParameter(
                "--extrapolate without --space: there are no ranges to go beyond"
            )

    @property
    def others(self) -> list[str]:
        """Recorded outputs beside the one that is optimised."""
        return [name for name in self.recorded if name != self.output]

    def read(self) -> History:
        """The history in files or in an Optuna storage."""
        if is_storage(self.sources[0]):
            said = {name: value for name, value in self.options.items() if value}
            return History.from_optuna(Studies(self.sources[0], rename=self._renames), **said)
        sources, options = self._tables()
        return History.from_table(sources, step=self.step, **options)

    def propose(self) -> Schema:
        """What the files say, with what is guessed of it."""
        sources, options = self._tables()
        return propose(join_tables(sources), **options)

    def read_other(self, output: str, space: Space | None) -> History:
        """The same runs with another output, at the parameters that were found."""
        options = {name: self.options.get(name) for name in ("defaults", "extrapolate")}
        options |= {"minimize": False, "space": space}
        return replace(self, output=output, recorded=(), options=options).read()

    def _tables(self) -> tuple[list[Table], dict[str, Any]]:
        """The files, and options with one name in every text."""
        options = {**self.options, "exclude": [*self.options.get("exclude", ()), *self.others]}
        if isinstance(options.get("space"), Path):
            options["space"] = Space.from_toml(options["space"])
        several = any("," in name for key in LISTS for name in options.get(key) or ())
        task = self.task or ("sheet" if self._several_sheets and self.output else "")
        if several or not task or not self.output:
            named = (task, self.output, options.get("status"), options.get("noise"))
            having = [name for name in named if name]
            columns = {
                self._renames.get(name, name): None
                for source in self.sources
                for name in table_columns(source, self.delimiter, self._first_sheet, having)
            }
            if not task or not self.output:
                asked = {
                    "--task COLUMN (which names the past task)": task,
                    "--output COLUMN (which was measured)": self.output,
                }
                lacking = " and ".join(option for option, given in asked.items() if not given)
                raise typer.BadParameter(f"say {lacking}; the columns are: {', '.join(columns)}")
            for key in LISTS:
                if options.get(key):  # a column may have a comma in its name
                    options[key] = [
                        name.strip()
                        for text in options[key]
                        for name in ([text] if text in columns else text.split(","))
                    ]
        found = [part for source in self.sources for part in self._read_file(source, task)]
        return renamed(found, self._renames), options

    @property
    def _renames(self) -> dict[str, str]:
        pairs = [text.partition("=") for text in self.rename]
        for old, equals, new in pairs:
            if not old or not equals or not new:
                raise InputError(f"--rename {old}{equals}{new}; expected old=new")
        return {old: new for old, _, new in pairs}

    @property
    def _several_sheets(self) -> bool:
        return len(self.sheets) > 1 or "*" in self.sheets

    @property
    def _first_sheet(self) -> str | None:
        one = self.sheets[0] if self.sheets else None
        return None if one == "*" else one

    def _read_file(self, source: str, task: str) -> list[Table]:
        """A table, or several sheets of a workbook."""
        columns, kind = {"task": task, "output": self.output}, kind_of(source)
        if kind != "text" and self.delimiter is not None:
            raise typer.BadParameter(f"--delimiter beside {source}: only text has one")
        if kind != "workbook" and self._first_sheet is not None:
            raise typer.BadParameter(f"--sheet beside {source}: only workbooks (.xlsx) have sheets")
        if kind == "workbook" and self._several_sheets:
            return read_sheets(source, sheets=self.sheets, **columns)
        if kind == "workbook":
            return [read_excel(source, sheet=self._first_sheet, **columns)]
        if kind == "text":
            return [read_csv(source, delimiter=self.delimiter, **columns)]
        return [(read_jsonl if kind == "JSON" else read_parquet)(source, **columns)]


def is_storage(source: str) -> bool:
    """Whether it is the URL of a storage, not a file."""
    return "://" in source


def read_default(text: str) -> tuple[str, Any]:
    """The name and the value of ``name=value``, a number where it is one."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--default {text!r}; expected name=value")
    for kind in (int, float):
        with suppress(ValueError):
            return name, kind(value)
    return name, value


# Journals


def with_journals(past: History, paths: Sequence[Path]) -> tuple[History, str]:
    """The history with one task more for every journal that has values, and what was added."""
    files = dict.fromkeys(file.resolve() for path in paths for file in _files(path))
    journals = {file: Store.open(file) for file in files}
    records = {file: journal.run.record for file, journal in journals.items()}
    past = with_choices(past, [trial.point for r in records.values() for trial in r.observed])
    ends = dict(zip(journals, _ends(list(records.values()), past), strict=True))
    found = {file: _task(file, journal, past, ends[file]) for file, journal in journals.items()}
    new = [task for task in found.values() if task is not None]
    times = Counter(task.name for task in (*past, *new))
    if twice := [task.name for task in new if times[task.name] > 1]:
        raise InputError(
            f"there are two tasks named {twice[0]!r}; expected another name in the table, or "
            "another name of the journal"
        )
    parts = [f"{len(new)} tasks with {sum(task.n for task in new)} runs added from journals"]
    if early := sum(end is not None for of in ends.values() for end in of.stopped):
        parts.append(f"{early} of the runs were stopped early and count by their expected ends")
    if empty := [file.name for file, task in found.items() if task is None]:
        parts.append(f"without a value: {', '.join(empty)}")
    if waiting := [file.name for file, record in records.items() if record.pending]:
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
    tasks = [TaskCurves.of(curves, (), (), minimize) for curves in past.curves.values()]
    for record in records:
        whole = [t.note.curve for t in record if t.state == "complete" and t.note.curve]
        early = [t.note.curve for t in record.stopped]
        values = [trial.value for trial in record.observed if trial.value is not None]
        tasks.append(TaskCurves.of(whole, early, values, minimize))
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
    record = journal.run.record
    done = [(trial.point, trial.value) for trial in record.observed if trial.value is not None]
    if not done:
        return None
    runs = ends.of_runs(done, [trial.point for trial in record.stopped])
    X = past.space.place([point for point, *_ in runs])
    y, noise_std = np.array([values for _, *values in runs], dtype=float).T
    name = str(journal.header.get("task") or file.stem)
    known = None if np.isnan(noise_std).all() else noise_std
    return Task(X, -y if minimize else y, name=name, noise_std=known)


def _aim(output: str, minimize: bool) -> str:
    return f"{'minimises' if minimize else 'maximises'} {output!r}"
