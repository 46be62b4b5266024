"""Past tasks (Eq. 4): each one, and all together, from arrays or from what other tools stored."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel import io
from metakel._arrays import Array, as_numbers, as_points, as_values, check_generator
from metakel.charts import text_card
from metakel.errors import InputError, ShapeError, first_of
from metakel.io.columns import grouped
from metakel.io.optuna import Studies
from metakel.io.propose import proposal
from metakel.space import Categorical, Condition, Parameter, Space
from metakel.space.configurations import Row, distinct, is_missing
from metakel.space.infer import merge_spaces

Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, eq=False)
class Task:
    """One past task: where it was observed and what was seen there.

    Parameters
    ----------
    X : (n, d0) array
        A vector is read as n points of one input.
    y : (n,) array
        Or a column (n, 1).
    name : str
        How messages and reports call it.
    noise_std : (n,) array, optional
        Standard deviation of the noise of each value, nan where it is not known.
    failed : (k, d0) array, optional
        Where it was tried and no value came out.
    """

    X: Array
    y: Array
    name: str = "task"
    failed: Array | None = None
    noise_std: Array | None = None

    def __post_init__(self) -> None:
        X = as_points(self.X, self.name)
        if X.shape[0] == 0:
            raise InputError(f"{self.name} is empty; expected at least one observation")
        y = as_values(self.y, X.shape[0], self.name)
        failed = np.empty((0, X.shape[1])) if self.failed is None else self.failed
        failed = as_numbers(f"{self.name}: failed", failed, (None, X.shape[1]))
        arrays = {"X": X, "y": y, "failed": failed}
        if self.noise_std is not None:
            arrays["noise_std"] = _noise_levels(self.noise_std, y, self.name)
        for name, values in arrays.items():
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @property
    def n(self) -> int:
        """How many observations the task holds."""
        return len(self.X)

    @property
    def d0(self) -> int:
        """How many inputs a point has."""
        return int(self.X.shape[1])

    def __repr__(self) -> str:
        return f"Task({self.name!r}, n={self.n}, d0={self.d0})"


def _noise_levels(noise_std: Array, y: Array, name: str) -> Array:
    found = np.array(noise_std, dtype=np.float64)
    if found.shape != y.shape:
        raise ShapeError(f"{name}: noise_std has shape {found.shape}; expected {y.shape}")
    wrong = (found < 0) | np.isinf(found)
    if wrong.any():
        raise InputError(f"{name}: noise_std holds {found[wrong][0]}; expected numbers >= 0 or nan")
    return found


@dataclass(frozen=True, eq=False)
class History:
    """Past tasks over the same inputs; their sizes may differ.

    Make one with `from_pairs` or `from_arrays`, or from a table of named parameters with
    `from_frame`, `from_csv`, `from_excel`, `from_parquet` or `from_optuna`, or with
    `from_table` from what a reader of your own returns. Those turn parameters
    into numbers in [-1, 1] by their ``space``, flip the sign of an output that is minimised, and
    keep a ``report`` of the rows that could not be used.

    ``curves`` has, by the names of tasks, the learning curves of runs that were made to their end,
    where the source has them; `metakel.curves.CurveModel.learn` takes them.

    ``history[3]`` is a task and ``history[:10]`` a history; ``+`` joins two. Parameters that
    only one of them has are left out, with a note.
    """

    tasks: tuple[Task, ...]
    space: Space | None = None
    report: io.Report | None = None
    curves: Mapping[str, Sequence[Mapping[int, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given: Any = self.tasks
        entries = tuple(given) if isinstance(given, Iterable) else None
        odd = [given] if entries is None else [e for e in entries if not isinstance(e, Task)]
        if odd:
            raise InputError(
                f"found a {type(odd[0]).__name__}; History takes a tuple of Task objects, and "
                "History.from_pairs takes pairs (X, y)"
            )
        object.__setattr__(self, "tasks", entries)
        if not self.tasks:
            raise InputError("a history needs at least one task; found none")
        for task in self.tasks[1:]:
            if task.d0 != self.d0:
                raise ShapeError(
                    f"{task.name} has {task.d0} inputs but {self.tasks[0].name} has {self.d0}; "
                    "all tasks of a history share their inputs"
                )

    @classmethod
    def from_pairs(cls, pairs: Iterable[Task | tuple[ArrayLike, ArrayLike]]) -> History:
        """One ``(X, y)`` pair per task; a `Task` may stand for a pair and keeps its name."""
        tasks = []
        for s, pair in enumerate(pairs):
            if isinstance(pair, Task):
                tasks.append(pair)
                continue
            try:
                X, y = pair
            except (TypeError, ValueError):
                raise InputError(f"task {s}: expected a pair (X, y)") from None
            tasks.append(Task(X, y, name=f"task {s}"))  # type: ignore[arg-type]
        return cls(numbered(tasks))

    @classmethod
    def from_arrays(cls, X: ArrayLike, y: ArrayLike, task: Sequence[Any] | ArrayLike) -> History:
        """Rows of all tasks together, with the label of its task for each.

        Tasks come in the order in which their labels first appear.
        """
        points = as_points(X, "history")
        values = as_values(y, points.shape[0], "history")
        labels, codes = distinct(np.asarray(task, dtype=object))
        if len(codes) != len(points):
            raise ShapeError(f"history: X has {len(points)} rows but task has {len(codes)} labels")
        for i, label in enumerate(labels):
            if is_missing(label):
                row = int(np.argmax(codes == i))
                raise InputError(f"history: row {row} has no task label (found {label})")
        # Labels of two types that are equal, such as 1 and 1.0, name one task.
        first: dict[Any, int] = {}
        same = np.array([first.setdefault(v, i) for i, v in enumerate(labels)], dtype=np.intp)
        groups = grouped(same[codes])
        return cls(tuple(Task(points[r], values[r], str(labels[s])) for s, r in groups))

    @classmethod
    def from_frame(cls, frame: Any, *, task: str, output: str, **options: Any) -> History:
        """Rows of a pandas or Polars frame, an Arrow table or a dict of columns.

        Parameters
        ----------
        frame : table, or list of tables
            Several tables may have other columns.
        task, output : str
            Columns that name the past task and hold what was measured.
        **options
            ``inputs``: columns of the parameters, by default all others that look like one; the
            report names those that do not, and why. ``exclude``: columns that are none.
            ``minimize``: whether smaller outputs are better; to be said for an output that is
            called a loss, an error, a time or a cost. ``log``: parameters on a log scale; by
            default the data decide, and the report says so. ``space``: the parameters, if they are
            not to be found out from the table. ``defaults``: what runs that do not record a
            parameter used for it. Without one, a parameter that is empty in all runs of many
            tasks is left out, and so are rows with an empty cell. ``categories``: columns of
            choices, even where they look like numbers. ``status``: a column with words such as ok
            and failed; runs that failed have no output then, and say where not to look. ``noise``:
            a column with the standard deviation of each output, by which runs weigh.
            ``extrapolate``: whether rows may lie outside of the ranges of ``space``. ``sums``: what
            every suggestion keeps, as in ``["A + B + C = 100", "2 A + B <= 50"]``; by default the
            equations that hold in all rows, as of a blend, which the report names.
            ``step``: a column of steps, such as epochs, where a table has a row for every step of a
            run. A run counts by its last value, and one that made fewer steps than the longest of
            its task by the end that is expected of it, and weighs less.
            ``rename``: new names of columns by the old ones, where tables call a parameter
            differently; the other options use the new ones.
            ``given``: parameters that were given in each run, not chosen. They are inputs
            like the others; this checks that they vary within tasks, as what is given has to.
        """
        frames = frame if isinstance(frame, list | tuple) else [frame]
        found = [io.read_frame(part, task=task, output=output) for part in frames]
        return cls.from_table(found, **options)

    @classmethod
    def from_csv(
        cls,
        path: Paths,
        *,
        task: str,
        output: str,
        delimiter: str | None = None,
        **options: Any,
    ) -> History:
        """Rows of CSV files with a header, plain or gzipped; options as for `from_frame`.

        Without a ``delimiter``, the header says whether it is a comma, a semicolon or a tab.
        """
        names: dict[str, Any] = {"task": task, "output": output, "delimiter": delimiter}
        return cls.from_table([io.read_csv(file, **names) for file in _paths(path)], **options)

    @classmethod
    def from_excel(
        cls,
        path: Paths,
        *,
        task: str,
        output: str,
        sheet: str | Sequence[str] | None = None,
        **options: Any,
    ) -> History:
        """Rows of Excel workbooks (needs openpyxl); options as for `from_frame`.

        Without a ``sheet``, the first one with these columns is read, and the report names the
        others. Of several sheets, or ``"*"`` for all with the output, each without a column of
        tasks is one task.
        """
        sheets = [sheet] if isinstance(sheet, str) else sheet
        found = (
            [io.read_excel(file, task=task, output=output)]
            if sheets is None
            else io.read_sheets(file, task=task, output=output, sheets=sheets)
            for file in _paths(path)
        )
        return cls.from_table([table for several in found for table in several], **options)

    @classmethod
    def from_jsonl(cls, path: Paths, *, task: str, output: str, **options: Any) -> History:
        """Rows of JSON lines, one object per run; options as for `from_frame`."""
        found = [io.read_jsonl(file, task=task, output=output) for file in _paths(path)]
        return cls.from_table(found, **options)

    @classmethod
    def from_parquet(cls, path: Paths, *, task: str, output: str, **options: Any) -> History:
        """Rows of Parquet files (needs pyarrow); options as for `from_frame`."""
        found = [io.read_parquet(file, task=task, output=output) for file in _paths(path)]
        return cls.from_table(found, **options)

    @classmethod
    def from_optuna(
        cls, source: Any, *, rename: Mapping[str, str] | None = None, **options: Any
    ) -> History:
        """Completed trials of Optuna studies, each a task: a storage, a study or several.

        The direction is that of the studies, and the space theirs: of the parameters that all
        studies have. ``inputs`` and ``defaults`` say otherwise; a note names what is left out.
        ``rename`` makes one of parameters that studies call differently. Options as for
        `from_frame`.
        """
        if rename is not None:
            chosen = source if isinstance(source, Studies) else Studies(source)
            source = replace(chosen, rename={**chosen.rename, **rename})
        return cls.from_table(io.read_optuna(source), **options)

    @classmethod
    def from_table(
        cls,
        source: io.Table | Sequence[io.Table],
        *,
        given: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        step: str | None = None,
        **options: Any,
    ) -> History:
        """What a reader returns, also one of your own, or several; options as for `from_frame`."""
        sources = [source] if isinstance(source, io.Table) else list(source)
        sources = io.renamed(sources, rename or {})
        if step is not None:
            said = {name: options.get(name) for name in ("inputs", "minimize")}
            sources = [io.folded(part, step, **said) for part in sources]
        source = io.join_tables(sources)
        found, space, report = proposal(source, **options)[1].assembled()
        tasks = tuple(Task(**task) for task in found)
        history = cls(tasks, space, report, source.curves)
        check_given(history, given, source.columns)
        return history

    def folds(
        self, count: int, *, rng: np.random.Generator | None = None
    ) -> Iterator[tuple[History, History]]:
        """Pairs (teachers, held out), in which every task is held out once.

        Task s is held out in the fold s modulo ``count``; with ``rng``, tasks change places first.
        """
        if not isinstance(count, int | np.integer) or not 2 <= count <= self.m:
            raise InputError(f"{count} folds of {self.m} tasks; expected 2 folds to one per task")
        if rng is not None:
            check_generator(rng)
        places = np.arange(self.m) if rng is None else rng.permutation(self.m)

        def where(chosen: NDArray[np.bool_]) -> History:
            return replace(self, tasks=tuple(self.tasks[s] for s in np.flatnonzero(chosen)))

        folds = (places % count == fold for fold in range(count))
        return ((where(~held), where(held)) for held in folds)

    @property
    def m(self) -> int:
        """How many tasks there are."""
        return len(self.tasks)

    @property
    def d0(self) -> int:
        """How many inputs a point has."""
        return self.tasks[0].d0

    @property
    def sizes(self) -> NDArray[np.intp]:
        """(m,) observations of each task."""
        return np.array([task.n for task in self.tasks])

    @property
    def total(self) -> int:
        """How many observations there are in all tasks together."""
        return int(self.sizes.sum())

    def __len__(self) -> int:
        return self.m

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    @overload
    def __getitem__(self, s: int) -> Task: ...
    @overload
    def __getitem__(self, s: slice) -> History: ...
    def __getitem__(self, s: int | slice) -> Task | History:
        found = self.tasks[s]
        return found if isinstance(found, Task) else replace(self, tasks=found)

    def __add__(self, other: History) -> History:
        """The tasks of both, which must have the same direction, over the parameters of both."""
        if not isinstance(other, History):
            return NotImplemented
        return _joined(self, other)

    def __repr__(self) -> str:
        return f"History(m={self.m}, n={_span(self.sizes, 'd')}, d0={self.d0})"

    def _repr_html_(self) -> str:
        return text_card(str(self))

    def __str__(self) -> str:
        X = np.concatenate([task.X for task in self.tasks])
        ranges = "\n".join(f"  x{i}: {_span(column, '.4g')}" for i, column in enumerate(X.T))
        means, spreads = np.array([(task.y.mean(), task.y.std()) for task in self.tasks]).T
        count, noun = (
            (self.d0, "input") if self.space is None else (len(self.space.free), "parameter")
        )
        head = (
            f"history of {self.m} task{'s' if self.m > 1 else ''}, {self.total} observations "
            f"({_span(self.sizes, 'd')} each), {count} {noun}{'s' if count > 1 else ''}"
        )
        lines = [
            head,
            ranges if self.space is None else str(self.space),
            f"  task means {_span(means, '.4g')}, task standard deviations {_span(spreads, '.4g')}",
        ]
        if constant := [t.name for t in self.tasks if np.ptp(t.y) == 0]:
            lines.append(f"  constant values in: {first_of(constant)}")
        if self.report is not None:
            lines.append(str(self.report))
        return "\n".join(lines)


def _paths(path: Paths) -> Sequence[str | Path]:
    return [path] if isinstance(path, str | Path) else list(path)


def _span(values: NDArray[Any], form: str) -> str:
    """From the smallest to the largest of some numbers."""
    low, high = values.min(), values.max()
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def check_given(history: History, names: Sequence[str], columns: Container[str]) -> None:
    """Refuse given columns that are no parameters, and columns that are constant in every task.

    Such a column multiplies every kernel of a task by one number, which its coefficients
    absorb, so no history tells how it matters (Proposition 29).
    """
    if isinstance(names, str):
        raise InputError(f"given is {names!r}; expected a list of columns, [{names!r}]")
    space = history.space
    if not names or space is None:
        return
    for name in names:
        if name not in space.names and name not in columns:
            known = ", ".join(map(repr, space.names))
            raise InputError(f"there is no column {name!r} to be given; parameters are {known}")
        own = space.columns.get(name, slice(0))
        if not any(np.ptp(task.X[:, own], axis=0).any() for task in history):
            raise InputError(
                f"{name!r} is constant in every task, so it describes tasks and cannot be given: "
                "no history tells how it matters"
            )
    if set(space.names) <= set(names):
        raise InputError("every parameter is given; nothing is left to choose")


# Two histories as one, if their numbers mean the same


def _joined(a: History, b: History) -> History:
    """The tasks of both, over a space with ranges that are wide enough for both."""
    known = [history.report for history in (a, b) if history.report is not None]
    if len({report.minimize for report in known}) > 1:
        directions = " and ".join(
            f"{report.output!r} is {'minimised' if report.minimize else 'maximised'}"
            for report in known
        )
        raise InputError(
            f"in the histories to join {directions}; read both with the same minimize="
        )
    report, notes = _joined_report(*known) if known else None, list[str]()
    if a.space != b.space:
        if a.space is None or b.space is None:
            raise InputError(
                f"the histories to join are over {_listed(a.space)} and over {_listed(b.space)}, "
                "so that their numbers mean something else; read both with named parameters"
            )
        space, notes = _joined_space(a.space, b.space)
        a, b = _over(a, space), _over(b, space)
    if twice := repeated(a, b):  # it would weigh twice
        raise InputError(
            f"{len(twice)} of {b.m} tasks are in both histories to join, with the same name and "
            f"the same values, e.g. {twice[0]!r}; expected every task once"
        )
    if report is not None and notes:
        report = replace(report, notes=tuple(dict.fromkeys((*report.notes, *notes))))
    return History(numbered((*a.tasks, *b.tasks)), a.space, report)


def _joined_report(a: io.Report, b: io.Report | None = None) -> io.Report:
    """What was read for both; parts of one history have one report."""
    if b is None or a == b:
        return a
    return replace(
        a,
        source=f"{a.source} and {b.source}",
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
        rows=a.rows + b.rows,
        kept=a.kept + b.kept,
        left_out={name: a.left_out.get(name, 0) + n for name, n in b.left_out.items()},
    )


def _joined_space(a: Space, b: Space) -> tuple[Space, list[str]]:
    """The parameters that both have with the parents that they need, and notes."""
    shared = {*a.names} & {*b.names}
    while lost := {c.name for s in (a, b) for c in s.conditions if c.parent not in shared} & shared:
        shared -= lost
    if not shared & {*a.free, *b.free}:
        raise InputError(
            f"the histories to join share no parameter that varies: {_listed(a)} and {_listed(b)}; "
            "read them together with defaults={...}, or apart"
        )
    space, notes, conflicts = merge_spaces(
        (name, p)
        for name, part in (("the first history", a), ("the second", b))
        for p in part.parameters
        if p.name in shared
    )
    for problem in conflicts.values():
        raise InputError(problem)
    conditions = [c for c in _joined_conditions(a, b) if {c.name, c.parent} <= {*space.names}]
    alone = [name for part in (a, b) for name in part.free if name not in shared]
    notes += [f"left out: {name} is in one of the joined histories only" for name in alone]
    return space.conditioned(conditions), notes


def _joined_conditions(*spaces: Space) -> list[Condition]:
    """Those of parameters that depend on one other in all spaces that have a condition for them.

    Where a space has none, the parameter is there with all values that the other has in it.
    """
    found: dict[str, Condition] = {}
    known = [c for space in spaces for c in space.conditions]
    for c in known:
        if {other.parent for other in known if other.name == c.name} != {c.parent}:
            continue
        values = {v: None for other in known if other.name == c.name for v in other.values}
        for space in spaces:
            free = c.name in space.free and c.name not in {own.name for own in space.conditions}
            if free and c.parent in space.names:
                values |= dict.fromkeys(space[c.parent].choices)
        found[c.name] = Condition(c.name, c.parent, tuple(values))
    return list(found.values())


def _over(history: History, space: Space) -> History:
    """The history in the columns of a larger space."""
    own, tasks = history.space, list[Task]()
    assert own is not None
    for task in history:
        assert task.failed is not None
        runs = np.concatenate([task.X, task.failed])
        X, active = np.zeros((len(runs), space.d0)), own.active(runs)
        for p in (p for p in space.parameters if p.width):
            here = np.flatnonzero(active.get(p.name, np.ones(len(runs), dtype=bool)))
            values = own[p.name].decode(runs[here, own.columns[p.name]])
            X[here, space.columns[p.name]] = p.encode(values, extrapolate=True)
        X = space.settled(X)
        tasks.append(replace(task, X=X[: task.n], failed=X[task.n :]))
    return replace(history, tasks=tuple(tasks), space=space)


def with_choices(history: History, used: Iterable[Row]) -> History:
    """The history over a space that has all choices of configurations that were used, too."""
    assert history.space is not None
    rows, found = list(used), list[Parameter]()
    for p in history.space.parameters:
        if isinstance(p, Categorical):
            new = [row[p.name] for row in rows if p.name in row]
            p = replace(p, values=tuple(dict.fromkeys((*p.values, *new))))
        found.append(p)
    space = replace(history.space, parameters=tuple(found))
    return history if space == history.space else _over(history, space)


def repeated(a: History, b: History) -> list[str]:
    """Names of the tasks of ``b`` that ``a`` has too, name and values alike."""
    first, second = ([(t.name, t.X.tobytes(), t.y.tobytes()) for t in h] for h in (a, b))
    known = set(first)
    return [task[0] for task in second if task in known]


def numbered(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """The tasks, with a number where another before it has the same name.

    The first keeps its name, unlike in `metakel.io.columns.numbered`: a history that grows must not
    rename the tasks that were learned from before.
    """
    found: dict[str, Task] = {}
    for task in tasks:
        name = task.name
        if name in found:
            name = next(new for i in count(2) if (new := f"{task.name} ({i})") not in found)
        found[name] = task if name == task.name else replace(task, name=name)
    return tuple(found.values())


def _listed(space: Space | None) -> str:
    if space is None:
        return "plain numbers"
    return "; ".join(f"{p.name} ({p.describe()})" for p in space.parameters)
