"""Earlier searches on other data sets, what they measured, and what they teach."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer

from metakel.data import History
from metakel.errors import InputError
from metakel.integrations.sklearn.search_space import Choice
from metakel.library import Entry
from metakel.priors import Prior, learn_prior
from metakel.space import Space
from metakel.space.configurations import to_python

LOGGER = logging.getLogger("metakel")
FEWEST_TASKS, FEWEST_RUNS = 3, 5  # of an own history that is learned from


def past_runs(history: Any, task: str, estimator: str, score: str) -> list[dict[str, Any]]:
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
        return found
    alone = not isinstance(history, Sequence)
    return [
        {"task": f"search {number}", "parameters": parameters, "score": float(value)}
        for number, search in enumerate([history] if alone else history, 1)
        for parameters, value in _results(search, number, score)
        if np.isfinite(value)
    ]


def _results(search: Any, number: int, score: str) -> Iterator[tuple[dict[str, Any], float]]:
    """Parameters and scores of a search of others, or of its ``cv_results_``."""
    results = getattr(search, "cv_results_", search)
    names = [*results] if hasattr(results, "keys") else []
    measured = score_name(search) if hasattr(search, "scoring") else score
    columns = (f"mean_test_{score}", "mean_test_score" if measured == score else None)
    column = next((c for c in columns if c in names), None)
    if column is None or "params" not in names:
        has = (
            ", ".join(n for n in names if str(n).startswith("mean_test_")) or type(search).__name__
        )
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
        row = {
            name: labels[name].get(repr(run["parameters"].get(name)), run["parameters"].get(name))
            for name in given
        }
        if all(row[name] is not None for name in given):
            rows.append({"task": run["task"], **row, measure.metric: measure.of(run["score"])})
    counts = [sum(row["task"] == task for row in rows) for task in {row["task"] for row in rows}]
    if sum(count >= FEWEST_RUNS for count in counts) < FEWEST_TASKS:
        return None
    space = Space(tuple(choice.parameter for choice in given.values()))
    return _taught(json.dumps(rows), space, measure, None)


def joined_with(prior: Prior, past: list[dict[str, Any]], entry: Entry, measure: Measure) -> Prior:
    """The library's prior beside searches of one's own, as far as it knows their parameters."""
    rows = []
    for run in past:
        found = run.get("configuration") or _spelled(run["parameters"], prior, entry)
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
    own = {entry.spelled(n): "none" if v is None else to_python(v) for n, v in parameters.items()}
    full = {n: v for n, v in {**entry.defaults, **own}.items() if n in prior.space.names}
    if set(own) - set(full):
        return None
    with contextlib.suppress(InputError):
        return prior.space.decode(prior.space.settled(prior.space.encode([full])))[0]
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


@dataclass(frozen=True)
class Measure:
    """What a scorer says, as an output of a prior: ``of(score)`` is in units of ``metric``."""

    metric: str
    of: Callable[[float], float]

    @property
    def minimize(self) -> bool:
        """Whether smaller is better."""
        return self.metric in ("log_loss", "rmse", "mae")


def _as_it_is(score: float) -> float:
    return score


def _negative(score: float) -> float:
    return -score


MEASURES = {
    "neg_log_loss": Measure("log_loss", _negative),
    "roc_auc": Measure("auc", _as_it_is),
    "roc_auc_ovr": Measure("auc", _as_it_is),
    "roc_auc_ovo": Measure("auc", _as_it_is),
    "roc_auc_ovr_weighted": Measure("auc", _as_it_is),
    "roc_auc_ovo_weighted": Measure("auc", _as_it_is),
    "average_precision": Measure("auc", _as_it_is),
    "accuracy": Measure("accuracy", _as_it_is),
    "balanced_accuracy": Measure("balanced_accuracy", _as_it_is),
    "f1": Measure("balanced_accuracy", _as_it_is),
    "f1_macro": Measure("balanced_accuracy", _as_it_is),
    "f1_micro": Measure("accuracy", _as_it_is),
    "f1_weighted": Measure("accuracy", _as_it_is),
    "neg_root_mean_squared_error": Measure("rmse", _negative),
    "neg_mean_squared_error": Measure("rmse", lambda score: sqrt(max(-score, 0.0))),
    "neg_mean_absolute_error": Measure("mae", _negative),
    "r2": Measure("r2", _as_it_is),
}


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
