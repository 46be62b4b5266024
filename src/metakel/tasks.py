"""The offline data (Eq. 4): past tasks, each a set of points and the values seen there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel import readers
from metakel.errors import InputError, ShapeError
from metakel.readers import Intake, Report, Wanted
from metakel.space import Space

Array = NDArray[np.float64]


def as_points(X: ArrayLike, where: str) -> Array:
    """Points as a finite ``(n, d0)`` array; a vector is n points of one input each."""
    points = _as_floats(X, f"{where}: X")
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] == 0:
        raise ShapeError(f"{where}: X has shape {points.shape}; expected (n, d0) with d0 >= 1")
    _check_finite(points, f"{where}: X")
    return points


def as_values(y: ArrayLike, n: int, where: str) -> Array:
    """Observed values as a finite ``(n,)`` array."""
    values = _as_floats(y, f"{where}: y")
    if values.shape != (n,):
        raise ShapeError(
            f"{where}: X has {n} rows but y has shape {values.shape}; "
            "a task pairs X of shape (n, d0) with y of shape (n,)"
        )
    _check_finite(values, f"{where}: y")
    return values


def _as_floats(values: ArrayLike, what: str) -> Array:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} cannot be read as an array of numbers: {error}") from None


def _check_finite(values: Array, what: str) -> None:
    if not np.isfinite(values).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise InputError(
            f"{what} holds {values[first]} at index {first if len(first) > 1 else first[0]}; "
            "expected finite numbers (drop or impute the row first)"
        )


@dataclass(frozen=True, eq=False)
class Task:
    """One past task: where it was observed and what was seen there.

    Parameters
    ----------
    X : (n, d0) array
        A vector is read as n points of one input.
    y : (n,) array
    name : str
        How messages and reports call it.
    """

    X: Array
    y: Array
    name: str = "task"

    def __post_init__(self) -> None:
        X = as_points(self.X, self.name)
        if X.shape[0] == 0:
            raise InputError(f"{self.name} is empty; expected at least one observation")
        y = as_values(self.y, X.shape[0], self.name)
        X.setflags(write=False)
        y.setflags(write=False)
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)

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


@dataclass(frozen=True, eq=False)
class History:
    """Past tasks over the same inputs; their sizes may differ.

    Make one with `from_pairs` or `from_arrays`, or from a table of named parameters with
    `from_frame`, `from_csv`, `from_parquet`, `from_optuna`, `from_mlflow` or `from_ax`. Those turn
    parameters into numbers in [-1, 1] by their ``space``, flip the sign of an output that is
    minimised, and keep a ``report`` of the rows that could not be used.
    """

    tasks: tuple[Task, ...]
    space: Space | None = None
    report: Report | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", tuple(self.tasks))
        if not self.tasks:
            raise InputError("a history needs at least one task; found none")
        for task in self.tasks[1:]:
            if task.d0 != self.d0:
                raise ShapeError(
                    f"{task.name} has {task.d0} inputs but {self.tasks[0].name} has {self.d0}; "
                    "all tasks of a history share their inputs"
                )

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[ArrayLike, ArrayLike]]) -> History:
        """One ``(X, y)`` pair per task."""
        tasks = []
        for s, pair in enumerate(pairs):
            try:
                X, y = pair
            except (TypeError, ValueError):
                raise InputError(f"task {s}: expected a pair (X, y)") from None
            tasks.append(Task(X, y, name=f"task {s}"))  # type: ignore[arg-type]
        return cls(tuple(tasks))

    @classmethod
    def from_arrays(cls, X: ArrayLike, y: ArrayLike, task: Sequence[Any] | ArrayLike) -> History:
        """Rows of all tasks in one table, with a label per row saying whose it is.

        Tasks come in the order in which their labels first appear.
        """
        points = as_points(X, "history")
        values = as_values(y, points.shape[0], "history")
        labels = list(np.asarray(task, dtype=object))
        if len(labels) != len(points):
            raise ShapeError(f"history: X has {len(points)} rows but task has {len(labels)} labels")
        rows: dict[Any, list[int]] = {}
        for i, label in enumerate(labels):
            if label is None or label != label:
                raise InputError(f"history: row {i} has no task label (found {label})")
            rows.setdefault(label, []).append(i)
        return cls(tuple(Task(points[i], values[i], name=str(label)) for label, i in rows.items()))

    @classmethod
    def from_frame(cls, frame: Any, *, task: str, output: str, **options: Any) -> History:
        """Rows of a pandas or Polars frame, an Arrow table or a dict of columns.

        Parameters
        ----------
        frame : table
        task, output : str
            Columns that name the past task and hold what was measured.
        **options
            ``inputs``: columns of the parameters, by default all others that vary within a task.
            ``minimize``: whether smaller outputs are better. ``log``: parameters on a log scale; by
            default the data decide, and the report says so. ``space``: the parameters, if they are
            not to be found out from the table. ``defaults``: what tasks that do not record a
            parameter used for it.
        """
        wanted = Wanted(task, output, **options)
        return cls._from_intake(
            readers.assemble(readers.frame_columns(frame), wanted, source="a table")
        )

    @classmethod
    def from_csv(cls, path: str | Path, *, task: str, output: str, **options: Any) -> History:
        """Rows of a CSV file with a header, plain or gzipped; options as for `from_frame`."""
        columns = readers.csv_columns(path)
        wanted = Wanted(task, output, **options)
        return cls._from_intake(readers.assemble(columns, wanted, source=Path(path).name))

    @classmethod
    def from_parquet(cls, path: str | Path, *, task: str, output: str, **options: Any) -> History:
        """Rows of a Parquet file (needs pyarrow); options as for `from_frame`."""
        columns = readers.parquet_columns(path)
        wanted = Wanted(task, output, **options)
        return cls._from_intake(readers.assemble(columns, wanted, source=Path(path).name))

    @classmethod
    def from_optuna(cls, source: Any, **options: Any) -> History:
        """Completed trials of Optuna studies, each a task: a storage, a study or several.

        The space and the direction are those of the studies; options as for `from_frame`.
        """
        found = readers.read_studies(source)
        settings = {"space": found.space, "minimize": found.minimize, **options}
        wanted = Wanted(readers.TASK, readers.OUTPUT, **settings)
        return cls._from_intake(
            readers.assemble(found.columns, wanted, source="Optuna", failed=found.failed)
        )

    @classmethod
    def from_mlflow(
        cls,
        experiments: Any,
        *,
        output: str,
        task: str | None = None,
        tracking_uri: str | None = None,
        filter_string: str = "",
        **options: Any,
    ) -> History:
        """Finished runs of MLflow experiments, each a task.

        Parameters
        ----------
        experiments : str or sequence of str
            Names of the experiments.
        output : str
            The metric; of several values logged in a run, the last.
        task : str, optional
            A tag or parameter whose values are the tasks, instead of the experiments.
        tracking_uri : str, optional
            Where the runs are; by default where MLflow itself looks.
        filter_string : str
            Which runs to read, in MLflow's own words: ``"tags.kind = 'trial'"``.
        **options
            As for `from_frame`; MLflow knows no direction, so say ``minimize=True`` for a loss.
        """
        found = readers.read_runs(
            experiments,
            output=output,
            task=task,
            tracking_uri=tracking_uri,
            filter_string=filter_string,
        )
        wanted = Wanted(found.task, output, **options)
        return cls._from_intake(
            readers.assemble(
                found.columns, wanted, source="MLflow", failed=found.failed, notes=found.notes
            )
        )

    @classmethod
    def from_ax(
        cls, source: Any, *, output: str | None = None, minimize: bool | None = None, **options: Any
    ) -> History:
        """Completed trials of Ax experiments, each a task: one or several clients or experiments.

        Space, metric and direction are those of the experiments. ``output`` and ``minimize`` name
        another metric; other options as for `from_frame`.
        """
        found = readers.read_experiments(source, output=output, minimize=minimize)
        settings = {"space": found.space, "minimize": found.minimize, **options}
        wanted = Wanted(found.task, found.output, **settings)
        return cls._from_intake(
            readers.assemble(
                found.columns, wanted, source="Ax", failed=found.failed, notes=found.notes
            )
        )

    @staticmethod
    def scan(path: Any, *, task: str = "task", output: str = "y", **options: Any) -> Any:
        """More tasks than fit in memory: Parquet files, read piece by piece.

        What comes back is a `metakel.distributed.Scan`, which `learn_kernel` takes like a history.
        Options (``inputs``, ``memory``, ``workers``, ``client``, ``journal``, ...) are those of
        `metakel.distributed.scan`. Outputs are maximised and inputs are used as they are.
        """
        # The scan stands above this layer: it knows kernels and the solver.
        distributed = import_module("metakel.distributed")
        return distributed.scan(path, task=task, output=output, **options)

    @classmethod
    def _from_intake(cls, intake: Intake) -> History:
        plain = cls.from_arrays(intake.X, intake.y, intake.labels)
        return cls(plain.tasks, intake.space, intake.report)

    def split(self, rng: np.random.Generator, *, fraction: float = 0.5) -> tuple[History, History]:
        """Two histories of whole tasks: a random share ``fraction``, and the rest.

        Each part keeps at least one task, so one task alone cannot be split.
        """
        if not 0 < fraction < 1:
            raise InputError(f"fraction is {fraction}; expected a number between 0 and 1")
        if self.m < 2:
            raise InputError("a history of one task cannot be split by task")
        size = min(max(round(fraction * self.m), 1), self.m - 1)
        chosen = set(rng.permutation(self.m)[:size].tolist())
        first = tuple(task for s, task in enumerate(self.tasks) if s in chosen)
        second = tuple(task for s, task in enumerate(self.tasks) if s not in chosen)
        return replace(self, tasks=first), replace(self, tasks=second)

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

    def __getitem__(self, s: int) -> Task:
        return self.tasks[s]

    def __repr__(self) -> str:
        return f"History(m={self.m}, n={_span(self.sizes, 'd')}, d0={self.d0})"

    def __str__(self) -> str:
        X = np.concatenate([task.X for task in self.tasks])
        ranges = "\n".join(f"  x{i}: {_span(column, '.4g')}" for i, column in enumerate(X.T))
        means = np.array([task.y.mean() for task in self.tasks])
        spreads = np.array([task.y.std() for task in self.tasks])
        head = (
            f"history of {self.m} task{'s' if self.m > 1 else ''}, {self.total} observations "
            f"({_span(self.sizes, 'd')} each), {self.d0} input{'s' if self.d0 > 1 else ''}"
        )
        lines = [
            head,
            ranges if self.space is None else str(self.space),
            f"  task means {_span(means, '.4g')}, task standard deviations {_span(spreads, '.4g')}",
        ]
        constant = [t.name for t in self.tasks if np.ptp(t.y) == 0]
        if constant:
            lines.append(
                f"  constant values in: {', '.join(constant[:5])}"
                + (f" and {len(constant) - 5} more" if len(constant) > 5 else "")
            )
        if self.report is not None:
            lines.append(str(self.report))
        return "\n".join(lines)


def _span(values: NDArray[Any], form: str) -> str:
    low, high = values.min(), values.max()
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"
