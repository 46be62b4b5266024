"""What a reader found, what callers say about it, and the report on both.

Tables that other tools export are known by their columns, and lose prefixes and bookkeeping.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from metakel._arrays import shown
from metakel.errors import Hint, InputError
from metakel.io.cleaning import Meaning, Place, normalized
from metakel.io.columns import Column, Columns, Mask
from metakel.io.words import DONE, says_no_direction, small_is_good, words_of
from metakel.space import Space, Sum
from metakel.space.configurations import is_numeric

SHOWN = 6
C = TypeVar("C", Column, list[Any])


@dataclass(frozen=True, eq=False)
class Table:
    """What a reader returns: the columns of all tasks together, and what is known of them.

    Parameters
    ----------
    name : str
        What reports call it.
    columns : dict of Column
    task, output : str
        Columns that name the task and hold what was measured.
    space : Space, optional
        The parameters, where the source knows them.
    minimize : bool, optional
        Where the source knows it.
    failed : int
        Runs that the reader left out because they have no output.
    notes : tuple of str
        What else the report should say.
    place : callable
        Where the row with an index is found, for messages.
    conflicts : dict of str
        Parameters that are not in the space, though there is a column of them, and why.
    noise : str, optional
        Column with the standard deviation of each output.
    curves : dict
        By task: values by step of the runs that were made to their end, where they are known.
    """

    name: str
    columns: Columns
    task: str
    output: str
    space: Space | None = None
    minimize: bool | None = None
    failed: int = 0
    notes: tuple[str, ...] = ()
    place: Place = "row {}".format
    conflicts: Mapping[str, str] = field(default_factory=dict)
    noise: str | None = None
    curves: Mapping[str, Sequence[Mapping[int, float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Roles:
    """Columns that are something else than a parameter.

    ``noise`` holds the standard deviation of each output, ``status`` says which runs failed, and
    ``step`` counts the steps of a run, of which each has a row.
    """

    task: str
    output: str
    status: str | None = None
    noise: str | None = None
    step: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Those that there are."""
        return tuple(name for name in (self.task, self.output, self.status, self.noise) if name)


@dataclass(frozen=True)
class Schema:
    """What the columns of a table are; `History.from_frame` explains the options.

    A caller says some of it, and `propose` the rest, with ``notes`` on what it guessed, and with
    the ``doubtful`` columns that may be inputs after all.
    """

    roles: Roles
    inputs: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    minimize: bool = False
    log: Collection[str] | None = None
    space: Space | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    categories: Sequence[str] = ()
    extrapolate: bool = False
    sums: Sequence[str | Sum] | None = None
    notes: tuple[str, ...] = ()
    doubtful: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option in ("inputs", "exclude", "categories", "sums"):
            names = getattr(self, option)
            if isinstance(names, str):
                raise InputError(
                    f"{option} is the text {names!r}; expected names in a list: [{names!r}]"
                )
        both = [name for name in self.exclude if name in (self.inputs or ())]
        if both:
            raise InputError(f"column {both[0]!r} is both an input and excluded")
        if self.space is not None and self.categories:
            raise InputError("categories beside a space: the space says which columns hold choices")

    @classmethod
    def of(cls, source: Table, **options: Any) -> Schema:
        """The options of a caller, and what the source says where they are silent."""
        own = ("roles", "notes", "doubtful")
        known = [name for name in cls.__dataclass_fields__ if name not in own]
        known += ["status", "noise"]
        for name in options:
            if name not in known:
                raise InputError(
                    f"History.from_frame and the other readers have no option {name!r}; "
                    f"expected {', '.join(known)}"
                )
        for name in ("inputs", "exclude", "categories", "log"):  # the names of columns are text
            columns = options.get(name)
            if columns is None or isinstance(columns, str):
                continue
            if isinstance(columns, Collection) and getattr(columns, "ndim", 1) == 1:
                options[name] = [str(column) for column in columns]
            else:
                raise InputError(f"{name} is {shown(columns)}; expected a list of columns")
        space, minimize = options.get("space"), options.get("minimize")
        minimize = source.minimize if minimize is None else minimize
        less = small_is_good(source.output)
        if minimize is None and (less or says_no_direction(source.output)):
            looks = "looks like something of which less is better" if less else "may be either"
            raise InputError(
                f"output {source.output!r} {looks}; larger is taken as better unless it is said",
                Hint("say that smaller is better", "minimize=True", "--minimize"),
                Hint("that larger is", "minimize=False", "--maximize"),
            )
        options |= {"minimize": bool(minimize), "space": source.space if space is None else space}
        status, noise = (options.pop(name, None) for name in ("status", "noise"))
        found = cls(Roles(source.task, source.output, status, noise or source.noise), **options)
        named = (*(found.inputs or ()), *found.exclude, *found.categories, *found.defaults)
        for name in (*found.roles.names, *named):
            if name not in source.columns:
                raise InputError(
                    f"no column {name!r}{meant(name, source.columns)}; found "
                    f"{', '.join(source.columns)}"
                )
        return found

    def meaning(self, name: str) -> Meaning:
        """What the caller says that a column holds."""
        if name in self.categories:
            return "choices"
        if self.space is None or name not in self.space.names:
            return "unknown"
        return "numbers" if all(map(is_numeric, self.space[name].choices)) else "choices"

    def gap(self, name: str, column: Column) -> Mask:
        """(n,) rows without a value; None is one where it is one of the choices of the space."""
        if self.space is None or name not in self.space.names or column.levels is None:
            return column.missing
        none = None in self.space[name].choices
        is_value = np.array([none and level is None for level in column.levels], dtype=bool)
        return np.asarray(column.missing & ~is_value[column.values])


def meant(name: str, columns: Collection[str]) -> str:
    """A question that names the column with the same words, as ``Yield [%]`` for ``yield``."""
    wanted = words_of(name)
    alike = [column for column in columns if words_of(column)[: len(wanted)] == wanted]
    return f" (did you mean {alike[0]!r}?)" if wanted and len(alike) == 1 else ""


LEFT_OUT = {
    "failed": "failed or without a finite output",
    "missing_inputs": "with a missing input",
    "missing_tasks": "without a task",
    "duplicates": "exact copies of another row",
}


@dataclass(frozen=True)
class Report:
    """What was read and what was left out, so that nothing is dropped in silence.

    ``left_out`` has how many rows were not kept, by why. ``doubtful`` are columns that were not
    taken as inputs though they may be, each with the reason.
    """

    source: str
    task: str
    output: str
    minimize: bool
    rows: int
    kept: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    doubtful: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Rows that failed, or have no finite output."""
        return self.left_out.get("failed", 0)

    @property
    def missing_inputs(self) -> int:
        """Rows with a missing input."""
        return self.left_out.get("missing_inputs", 0)

    @property
    def missing_tasks(self) -> int:
        """Rows without a task."""
        return self.left_out.get("missing_tasks", 0)

    @property
    def duplicates(self) -> int:
        """Exact copies of another row."""
        return self.left_out.get("duplicates", 0)

    def __str__(self) -> str:
        verb = "minimise" if self.minimize else "maximise"
        counted = ((self.left_out.get(why, 0), what) for why, what in LEFT_OUT.items())
        left_out = ", ".join(f"{count} {what}" for count, what in counted if count)
        head = f"read {self.kept} of {self.rows} rows from {self.source} ({verb} {self.output})"
        lines = [head + (f"; left out: {left_out}" if left_out else "")]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


# Tables that other tools export


@dataclass(frozen=True)
class Export:
    """What a tool writes."""

    tool: str
    marks: tuple[str, ...]  # columns that only this export has together, as regular expressions
    parameter: str  # prefix of parameters
    metric: str  # prefix of measured values
    bookkeeping: str  # regular expression of columns that say nothing of a configuration
    state: str = ""  # the column that says whether a run is done


EXPORTS = (
    Export(
        *("Optuna", ("number", "state", "params_.+"), "params_", ""),
        "number|(datetime_|user_attrs_|system_attrs_|intermediate_).*|duration",
        "state",
    ),
    Export(
        *("MLflow", ("run_id", "experiment_id", r"params\..+"), "params.", "metrics."),
        r"run_id|experiment_id|artifact_uri|start_time|end_time|tags\..*|metrics\..*",
        "status",
    ),
    Export(
        *("MLflow", ("Run ID", "Start Time", "Source Type"), "", ""),
        "Run ID|Name|Start Time|Duration|User|Source (Type|Name)|Version",
        "Status",
    ),
    Export(
        *("scikit-learn", ("params", "param_.+", "mean_fit_time"), "param_", ""),
        r"params|(mean|std)_(fit|score)_time|(mean|std|rank|split\d+)_(test|train)_.*",
    ),
    Export(
        *("Weights & Biases", ("Name", "State", "Created", "Runtime"), "", ""),
        "ID|Name|Notes|User|Tags|Created|Runtime|Sweep|GPU.*|Hostname|_.*",
        "State",
    ),
)


def known_export(source: Table, asked: Collection[str] = ()) -> Table:
    """A table under the names of its parameters, with a note, where a tool has exported it."""
    if source.space is not None:
        return source
    columns, note = without_prefixes(source.columns, {source.task, source.output, *asked})
    return replace(source, columns=columns, notes=(*source.notes, *note)) if note else source


def without_prefixes(
    columns: Mapping[str, C], asked: Collection[str]
) -> tuple[dict[str, C], tuple[str, ...]]:
    """The columns of an export as those who ran it call them, and a note of what was done.

    Columns that are asked for stay; a table of no known tool stays as it is.
    """
    for export in EXPORTS:
        if all(any(re.fullmatch(mark, name) for name in columns) for mark in export.marks):
            break
    else:
        return dict(columns), ()
    names = {name: name for name in columns}
    for name in columns.keys() - set(asked):
        metric = name.removeprefix(export.metric)
        names[name] = metric if metric in asked else name.removeprefix(export.parameter)
    parameters = {new for name, new in names.items() if new != name}  # one may be called number
    kept = {old for old, new in names.items() if new in asked and old not in parameters}
    own = {name for name in columns if re.fullmatch(export.bookkeeping, name)}
    if export.state in columns:
        state = columns[export.state]
        words = state if isinstance(state, list) else state.tolist()
        own |= {export.state} if {normalized(str(word)) for word in words} <= DONE else set()
    gone = [name for name in columns if name in own - kept]
    found = {new: columns[name] for name, new in names.items() if name not in gone}
    if len(found) < len(columns) - len(gone):  # a parameter has the name of another column
        return dict(columns), ()
    prefix = f"{export.parameter} is taken off the names; " if export.parameter else ""
    shown = ", ".join(gone[:SHOWN]) + (f" and {len(gone) - SHOWN} more" if gone[SHOWN:] else "")
    return found, (f"an export of {export.tool}: {prefix}left out: {shown}",)
