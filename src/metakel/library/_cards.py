"""What a prior of the library was learned from, and what it is for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from metakel.charts import card as html_card
from metakel.charts import paragraph
from metakel.errors import InputError
from metakel.library._entries import ENTRIES

METRICS = {
    "log_loss": "classification",
    "auc": "classification",
    "balanced_accuracy": "classification",
    "accuracy": "classification",
    "rmse": "regression",
    "mae": "regression",
    "r2": "regression",
}
MINIMIZED = ("log_loss", "rmse", "mae")


@dataclass(frozen=True)
class Card:
    """A prior of the library in words.

    Parameters
    ----------
    name, title, metric, kind : str
        Of the model, and of what was measured: "classification" or "regression".
    data_sets, runs, failed : int
        How many it was learned from, and how many runs failed.
    ranges : dict of str
        Of every parameter, in words.
    gain : float
        By which held-out data sets are predicted better with the others than as white noise, in
        nats per run.
    better : str
        On how many held-out data sets that is better than a cold start.
    vouching : int
        How many replayed data sets certificates rest on.
    tried_first : list of str
        Configurations that a search begins with.
    versions : str
        Of the packages that were run.
    """

    name: str
    title: str
    metric: str
    kind: str
    data_sets: int
    runs: int
    failed: int
    ranges: dict[str, str]
    gain: float
    better: str
    vouching: int
    tried_first: list[str]
    versions: str

    @property
    def purpose(self) -> str:
        """What it is for, and what it is not for."""
        scaled = "features scaled to mean 0 and variance 1, " if ENTRIES[self.name].scaled else ""
        return (
            f"For {self.title} in {self.kind} on tables of some hundred to some thousand rows "
            f"({scaled}3-fold cross-validation). Not for images, text or time series, nor for "
            "millions of rows: the search notices a task unlike the past ones and goes on as a "
            "cold start, but nothing is gained."
        )

    @property
    def origin(self) -> str:
        """What it was learned from."""
        return (
            f"Learned from {self.runs:,} runs on {self.data_sets} public data sets"
            f"{f' ({self.failed} runs failed)' if self.failed else ''}, with {self.versions}. "
            f"Held-out data sets are predicted by {self.gain:.2f} nats per run better than as "
            f"white noise, and better than by a cold start on {self.better}. Certificates rest on "
            f"replays of {self.vouching} of them."
        )

    @property
    def _beginning(self) -> str:
        return f"Tried first: {'; then '.join(self.tried_first)}"

    def __str__(self) -> str:
        width = max(map(len, self.ranges))
        lines = [f"  {name:{width}}  {text}" for name, text in self.ranges.items()]
        return "\n".join(
            [
                f"{self.name}, {self.metric}: {self.title}",
                self.purpose,
                self.origin,
                self._beginning,
                *lines,
            ]
        )

    def _repr_html_(self) -> str:
        ranges = "; ".join(f"{name}: {text}" for name, text in self.ranges.items())
        parts = (self.purpose, self.origin, self._beginning, ranges)
        return html_card(f"{self.title}, {self.metric}", *map(paragraph, parts))


@cache
def _index() -> dict[str, dict[str, Any]]:
    text = files("metakel.library").joinpath("index.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def list_cards() -> tuple[Card, ...]:
    """All priors of the library."""
    return tuple(Card(**entry) for entry in _index().values())


def card(name: str, metric: str | None = None) -> Card:
    """What a prior of the library was learned from, and what it is for.

    Parameters
    ----------
    name : str
        Of the model, such as "lightgbm", or of its class in scikit-learn's interface.
    metric : str, optional
        By default log_loss of a classifier; rmse of a model that is for regression only.
    """
    found = [entry for entry in list_cards() if entry.name == _model(name)]
    if not found:
        known = ", ".join(dict.fromkeys(entry.name for entry in list_cards()))
        raise InputError(f"the library has no prior for {name!r} yet; it has {known}")
    wanted = metric or min(entry.metric for entry in found if _is_default(entry, found))
    for entry in found:
        if entry.metric == wanted:
            return entry
    known = ", ".join(entry.metric for entry in found)
    raise InputError(f"the library has no {name!r} for the metric {metric!r}; it has {known}")


def _is_default(entry: Card, others: list[Card]) -> bool:
    metrics = [other.metric for other in others]
    first = next((m for m in ("log_loss", "auc", "rmse") if m in metrics), metrics[0])
    return entry.metric == first


def _model(name: str) -> str:
    if name in ENTRIES:
        return name
    for entry in ENTRIES.values():
        if name in entry.estimators:
            return entry.name
    raise InputError(f"the library has no model {name!r}; it has {', '.join(ENTRIES)}")
