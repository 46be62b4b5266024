"""Earlier searches on other data sets, what they measured, and what they teach."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, sqrt
from operator import neg
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer

from metakel.data import History
from metakel.errors import InputError
from metakel.integrations.sklearn.search_space import Choice, changed_on
from metakel.library import Entry
from metakel.priors import Prior, learn_prior
from metakel.space import Space
from metakel.space.configurations import to_python

LOGGER = logging.getLogger("metakel")
FEWEST_TASKS, FEWEST_RUNS = 3, 5  # of an own history that is learned from
SKETCH, COLUMNS = 64, 32  # hashes of rows that are kept, and columns that they are made of
SHARED = 1 / 8  # of the hashes, from which on two data sets share rows


def rows_of(X: Any, y: Any) -> list[int]:
    """The smallest hashes of rows, by which two data sets are seen to share some.

    None where that cannot be seen: X is not a table, or most of its rows are alike.
    """
    try:
        hashes = np.uint64(np.shape(X)[-1])
        for column in (*_columns(X), *_columns(y)):
            hashes = (hashes ^ _bits(column)) * np.uint64(0x9E3779B97F4A7C15)
            hashes ^= hashes >> np.uint64(29)
    except (TypeError, ValueError, IndexError):
        return []
    distinct = np.unique(hashes >> np.uint64(32))
    return distinct[:SKETCH].tolist() if 2 * len(distinct) > hashes.size else []


def _columns(values: Any) -> list[Any]:
    if values is None:
        return []
    if hasattr(values, "tocsc"):
        return list(values.tocsc()[:, :COLUMNS].toarray().T)
    frame = hasattr(values, "iloc") and np.ndim(values) == 2
    found = np.asarray(values.iloc[:, :COLUMNS] if frame else values)
    return [found] if found.ndim == 1 else list(found.reshape(len(found), -1)[:, :COLUMNS].T)


def _bits(column: Any) -> Any:
    try:
        return np.ascontiguousarray(column, dtype=np.float64).view(np.uint64)
    except (TypeError, ValueError):
        texts, places = np.unique(column.astype(str), return_inverse=True)
        return np.array([crc32(text.encode()) for text in texts], dtype=np.uint64)[places]


def _share(rows: Sequence[int], others: Sequence[int]) -> bool:
    common = len({*rows} & {*others})
    return common > 0 and common >= SHARED * min(len(rows), len(others))


def _goes_on(rows: Sequence[int], earlier: Sequence[int]) -> bool:
    """Whether all rows of an earlier data set are among these."""
    most = rows[-1] if len(rows) == SKETCH else inf
    return set(rows).issuperset(row for row in earlier if row <= most)


def _of_other_data(runs: list[dict[str, Any]], rows: Sequence[int]) -> list[dict[str, Any]]:
    """Without those that saw a part of these rows beside others, as folds of one data set do.

    Searches that share rows are one task.
    """
    tasks: dict[str, tuple[str, Sequence[int]]] = {}
    for run in runs:
        seen = run.get("rows", ())
        if run["task"] not in tasks:
            same = (name for name, known in tasks.values() if _share(known, seen))
            tasks[run["task"]] = next(same, run["task"]), seen
    apart = {
        task for task, (_, seen) in tasks.items() if not _share(seen, rows) or _goes_on(rows, seen)
    }
    if len(apart) < len(tasks):
        LOGGER.warning(
            "%d of %d searches in the history are not used: they saw some of these rows, as other "
            "folds of one data set do", len(tasks) - len(apart), len(tasks),
        )  # fmt: skip
    return [{**run, "task": tasks[run["task"]][0]} for run in runs if run["task"] in apart]


def past_runs(
    history: Any, task: str, rows: Sequence[int], estimator: str, score: str
) -> list[dict[str, Any]]:
    """Runs of other data sets: of a file, of fitted searches, or of ``cv_results_``."""
    if history is None:
        return []
    if isinstance(history, str | Path):
        path = Path(history)
        if not path.exists():
            if not path.parent.is_dir():
                raise InputError(f"history is {str(path)!r}; there is no folder {path.parent}")
            return []
        found = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                same = (row["estimator"], row["score_name"]) == (estimator, score)
            except (ValueError, KeyError, TypeError):
                raise InputError(
                    f"{path}, line {number}: {line[:60]!r}; expected a line that a search with "
                    "history= has written"
                ) from None
            if same and row["task"] != task and row["score"] is not None:
                found.append(row)
        return _of_other_data(found, rows)
    alone = not isinstance(history, Sequence)
    return [
        {
            "task": f"search {number}",
            "parameters": parameters,
            "fixed": _set_on(getattr(search, "estimator", None)),
            "score": float(value),
        }
        for number, search in enumerate([history] if alone else history, 1)
        for parameters, value in _results(search, number, score)
        if np.isfinite(value)
    ]


def _set_on(estimator: Any) -> dict[str, Any]:
    return {} if estimator is None else dict(changed_on(estimator, estimator.get_params()))


def _results(search: Any, number: int, score: str) -> Iterator[tuple[dict[str, Any], float]]:
    """Parameters and scores of a search of others, or of its ``cv_results_``."""
    results = getattr(search, "cv_results_", search)
    names = [str(name) for name in results] if hasattr(results, "keys") else []
    measured = score_name(search) if hasattr(search, "scoring") else score
    columns = (f"mean_test_{score}", "mean_test_score" if measured == score else None)
    column = next((c for c in columns if c in names), None)
    if column is None or "params" not in names:
        means = ", ".join(name for name in names if name.startswith("mean_test_"))
        has = means or type(search).__name__
        raise InputError(
            f"history, search {number}: {has} by {measured!r}; expected a file, or fitted searches "
            f"or cv_results_ that measured {score!r}, which is searched for here"
        )
    return zip(results["params"], results[column], strict=True)


def learned_from(
    past: list[dict[str, Any]], given: Mapping[str, Choice], measure: Measure
) -> Prior | None:
    """A prior from one's own searches; None where they say too little."""
    rows: list[dict[str, Any]] = []
    labels = {name: {repr(v): k for k, v in c.values.items()} for name, c in given.items()}
    for run in past:
        known = {**run.get("fixed", {}), **run["parameters"]}
        row = {name: labels[name].get(repr(known.get(name)), known.get(name)) for name in given}
        if all(row[name] is not None for name in given):
            rows.append({"task": run["task"], **row, measure.metric: measure.of(run["score"])})
    counts = [sum(row["task"] == task for row in rows) for task in {row["task"] for row in rows}]
    if sum(count >= FEWEST_RUNS for count in counts) < FEWEST_TASKS:
        return None
    space = Space(tuple(choice.parameter for choice in given.values()))
    return _taught(json.dumps(rows), space, measure, None)


def joined_with(prior: Prior, past: list[dict[str, Any]], entry: Entry, measure: Measure) -> Prior:
    """The library's prior beside searches of one's own, as far as it knows their parameters."""
    rows, names = [], prior.space.names
    for run in past:
        found = run.get("configuration")
        if found is None:
            fixed = {n: v for n, v in run.get("fixed", {}).items() if entry.spelled(n) in names}
            found = _spelled({**fixed, **run["parameters"]}, prior, entry)
        if found is not None:
            rows.append({"task": run["task"], **found, measure.metric: measure.of(run["score"])})
    if len(rows) < len(past):
        LOGGER.warning(
            "%d of %d past runs are not used: they vary what the library's prior of %s does not "
            "know", len(past) - len(rows), len(past), entry.name,
        )  # fmt: skip
    return _taught(json.dumps(rows), prior.space, measure, prior) if rows else prior


def _spelled(parameters: Mapping[str, Any], prior: Prior, entry: Entry) -> dict[str, Any] | None:
    """A run of others as a configuration of the library, with the defaults of the package."""
    beside = {n for needed in entry.constants.values() for n in needed}
    own = {
        entry.spelled(n): "none" if v is None else to_python(v)
        for n, v in parameters.items()
        if n.rpartition("__")[2] not in beside
    }
    full = {n: v for n, v in {**entry.defaults, **own}.items() if n in prior.space.names}
    if set(own) - set(full):
        return None
    with contextlib.suppress(InputError):
        return prior.space.decode(prior.space.settled(prior.space.place([full])))[0]
    return None


@lru_cache(maxsize=8)  # the folds of an outer cross-validation learn from the same runs
def _taught(rows: str, space: Space, measure: Measure, beside: Prior | None) -> Prior:
    runs, names = json.loads(rows), ("task", *space.names, measure.metric)
    history = History.from_frame(
        {name: [run.get(name) for run in runs] for name in names},
        task="task",
        output=measure.metric,
        minimize=measure.minimize,
        space=space,
        extrapolate=True,
    )
    return learn_prior(history, library=beside)


# What a search measures, in terms of the library


@dataclass(frozen=True)
class Measure:
    """What a scorer says, as an output of a prior: ``of(score)`` is in units of ``metric``."""

    metric: str
    of: Callable[[float], float]

    @property
    def minimize(self) -> bool:
        """Whether smaller is better."""
        return self.metric in ("log_loss", "rmse", "mae")


# Scorers that say the same as an output of the library, and those that say its negative.
_ALIKE = {
    "auc": "roc_auc roc_auc_ovr roc_auc_ovo roc_auc_ovr_weighted roc_auc_ovo_weighted "
    "average_precision",
    "balanced_accuracy": "balanced_accuracy f1 f1_macro",
    "accuracy": "accuracy f1_micro f1_weighted",
    "r2": "r2",
}
_NEGATIVE = {
    "log_loss": "neg_log_loss",
    "rmse": "neg_root_mean_squared_error",
    "mae": "neg_mean_absolute_error",
}
MEASURES = {
    name: Measure(metric, of)
    for of, scorers in ((float, _ALIKE), (neg, _NEGATIVE))
    for metric, names in scorers.items()
    for name in names.split()
} | {"neg_mean_squared_error": Measure("rmse", lambda score: sqrt(max(-score, 0.0)))}


def score_name(search: Any) -> str:
    """Of the scorer that is searched for."""
    scoring, name = search.scoring, search.refit if isinstance(search.refit, str) else None
    if isinstance(scoring, Mapping):
        name = name if name in scoring else next(iter(scoring))
        scoring = scoring[name]
    elif isinstance(scoring, Sequence) and not isinstance(scoring, str):
        scoring = name or scoring[0]
    if scoring is None:
        return "accuracy" if is_classifier(search.estimator) else "r2"
    return scoring if isinstance(scoring, str) else _named(scoring) or str(name or scoring)


def _named(scorer: Any) -> str | None:
    """What scikit-learn calls a scorer; the name of its function where it has none."""
    function = getattr(scorer, "_score_func", None)
    for name in MEASURES:
        known = get_scorer(name)
        if function is known._score_func and getattr(scorer, "_sign", None) == known._sign:
            return name
    return getattr(scorer if function is None else function, "__name__", None)


def measure_of(search: Any) -> Measure:
    name = score_name(search)
    return MEASURES.get(name, Measure(name, float))
