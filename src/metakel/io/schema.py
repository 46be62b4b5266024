"""What a reader found, what the caller says about it, and which columns are inputs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel.errors import InputError
from metakel.io.cleaning import Place
from metakel.io.columns import Column, Columns, Mask
from metakel.io.names import check_direction
from metakel.space import Categorical, Fixed, Space

# How pandas calls a column without a name, such as an index that was saved.
_UNNAMED = re.compile(r"\s*|Unnamed: \d+")
# Fewer rows than that may hold 1, 2, 3, ... on purpose.
MIN_RUNNING_NUMBERS = 10


@dataclass(frozen=True, eq=False)
class Source:
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


@dataclass(frozen=True)
class Schema:
    """What the caller says about the columns; `History.from_frame` explains the options."""

    task: str
    output: str
    inputs: Sequence[str] | None = None
    minimize: bool = False
    log: Collection[str] | None = None
    space: Space | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    categories: Sequence[str] = ()
    extrapolate: bool = False

    def __post_init__(self) -> None:
        for option in ("inputs", "categories"):
            names = getattr(self, option)
            if isinstance(names, str):
                raise InputError(
                    f"{option} is the text {names!r}; expected names in a list: [{names!r}]"
                )
        if self.space is not None and self.categories:
            raise InputError("categories beside a space: the space says which columns hold choices")

    @classmethod
    def of(cls, source: Source, **options: Any) -> Schema:
        """The options of a caller, and what the source says where they are silent."""
        known = [name for name in cls.__dataclass_fields__ if name not in ("task", "output")]
        unknown = [name for name in options if name not in known]
        if unknown:
            raise InputError(
                f"History.from_frame and the other readers have no option {unknown[0]!r}; "
                f"expected {', '.join(known)}"
            )
        said = options.get("minimize")
        stated = source.minimize if said is None else said
        minimize = check_direction(source.output, stated)
        return cls(source.task, source.output, **{**options, "minimize": minimize})

    def check(self, columns: Columns) -> None:
        """Refuse names that no column has."""
        inputs, choices = self.inputs or (), self.categories
        for name in (self.task, self.output, *inputs, *choices, *self.defaults):
            if name not in columns:
                raise InputError(f"no column {name!r}; found {', '.join(columns)}")


@dataclass(frozen=True)
class Report:
    """What was read and what was left out, so that nothing is dropped in silence."""

    source: str
    task: str
    output: str
    minimize: bool
    rows: int
    kept: int
    failed: int = 0
    missing_inputs: int = 0
    missing_tasks: int = 0
    duplicates: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "minimise" if self.minimize else "maximise"
        counted = {
            "failed or without a finite output": self.failed,
            "with a missing input": self.missing_inputs,
            "without a task": self.missing_tasks,
            "exact copies of another row": self.duplicates,
        }
        left_out = ", ".join(f"{count} {what}" for what, count in counted.items() if count)
        head = f"read {self.kept} of {self.rows} rows from {self.source} ({verb} {self.output})"
        lines = [head + (f"; left out: {left_out}" if left_out else "")]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True, eq=False)
class TaskLabels:
    """Which task each row belongs to: ``codes`` (n,) into ``names``; -1 without a task."""

    codes: NDArray[np.intp]
    names: tuple[str, ...]

    @classmethod
    def of(cls, column: Column) -> TaskLabels:
        """1 and "1" in one column may be one task or two, and are refused."""
        if column.levels is None:
            found, where = np.unique(column.values[~column.missing], return_inverse=True)
            levels: list[Any] = found.tolist()
            codes = np.full(len(column), -1, dtype=np.intp)
            codes[~column.missing] = where
        else:
            levels, codes = column.levels, np.where(column.missing, -1, column.values)
        present = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(levels)))
        labels: dict[str, Any] = {}
        for label in (levels[i] for i in present):
            other = labels.setdefault(str(label), label)
            if other != label:
                raise InputError(
                    f"task labels {other!r} and {label!r} are written alike; expected labels of "
                    "one type, or two that differ as text"
                )
        index = {name: i for i, name in enumerate(labels)}
        # The last entry is for the code -1.
        table = np.full(len(levels) + 1, -1, dtype=np.intp)
        table[present] = [index[str(levels[i])] for i in present]
        return cls(table[codes], tuple(labels))


def input_names(
    columns: Columns, schema: Schema, labels: TaskLabels
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the inputs, and notes on the columns that are none."""
    names, notes = _inputs(columns, schema, labels)
    roles: dict[str, str] = {}
    asked = [("the task", schema.task), ("the output", schema.output)]
    for role, name in (*asked, *(("an input", name) for name in names)):
        if name in roles:
            raise InputError(
                f"column {name!r} is named as {roles[name]} and as {role}; expected one of them"
            )
        roles[name] = role
    return names, notes


def absent(column: Column, name: str, space: Space | None) -> Mask:
    """(n,) rows without a value of a parameter; None is a value where it is one of the choices."""
    if space is None or name not in space.names or column.levels is None:
        return column.missing
    parameter = space[name]
    values = (parameter.value,) if isinstance(parameter, Fixed) else ()
    choices = parameter.values if isinstance(parameter, Categorical) else values
    if None not in choices:
        return column.missing
    is_none = np.array([level is None for level in column.levels])
    return np.asarray(column.missing & ~is_none[column.values])


def _inputs(
    columns: Columns, schema: Schema, labels: TaskLabels
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """As given, by the space, or all columns that do not merely describe the task."""
    if schema.inputs is not None:
        return tuple(schema.inputs), ()
    if schema.space is not None:
        return tuple(name for name in schema.space.names if name in columns), ()
    others = [name for name in columns if name not in (schema.task, schema.output)]
    notes = {name: "has no name of its own" for name in others if _UNNAMED.fullmatch(name)}
    tasks = len(labels.names) + bool((labels.codes < 0).any())
    if tasks > 1:
        notes |= {n: "is a running number" for n in others if _counts_rows(columns[n])}
    if tasks < len(labels.codes):  # with one row per task every column describes the task
        describing = [name for name in others if _constant_in_tasks(columns[name], labels)]
        notes |= dict.fromkeys(describing, "has one value in every task")
    kept = tuple(name for name in others if name not in notes)
    if not kept:
        raise InputError(f"no column varies within a task; found {', '.join(columns)}")
    return kept, tuple(
        f"{name} {why} and is not taken as an input, unless it is named as one"
        for name, why in notes.items()
    )


def _counts_rows(column: Column) -> bool:
    """Whether its whole numbers are first, first + 1, ..., each in one row of the table."""
    n, values = len(column), column.values
    whole = column.levels is None and values.dtype.kind in "iu" and not column.missing.any()
    if not whole or n < MIN_RUNNING_NUMBERS or int(values.max()) - int(values.min()) != n - 1:
        return False
    return len(np.unique(values)) == n


def _constant_in_tasks(column: Column, labels: TaskLabels) -> bool:
    """Whether it has one value in every task, and several in all."""
    present = ~column.missing
    keys, tasks = column.keys()[present], labels.codes[present]
    if not len(keys) or (keys == keys[0]).all():
        return False
    first = np.empty(len(labels.names) + 1, dtype=keys.dtype)
    for rows in (slice(1000), slice(None)):  # most columns vary within a task early on
        first[tasks[rows][::-1]] = keys[rows][::-1]  # what is written last is of the first row
        if (first[tasks[rows]] != keys[rows]).any():
            return False
    return True
