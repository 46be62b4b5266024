"""What a search of scikit-learn measures, in terms of the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from sklearn.base import is_classifier
from sklearn.metrics import get_scorer


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
