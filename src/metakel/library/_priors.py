"""Priors of the library: by name or path, in words, and beside a history of one's own."""

from __future__ import annotations

import gzip
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel._files import decode
from metakel.charts import card as html_card
from metakel.charts import paragraph
from metakel.curves import FORMAT as CURVES
from metakel.curves import CurveModel
from metakel.data import History
from metakel.errors import InputError
from metakel.library._entries import ENTRIES
from metakel.priors import Prior
from metakel.priors.prior import FORMAT
from metakel.space import Fixed

LOGGER = logging.getLogger("metakel")
PREFIX = "library:"
METRICS = dict.fromkeys(("log_loss", "auc", "balanced_accuracy", "accuracy"), "classification")
METRICS |= dict.fromkeys(("rmse", "mae", "r2"), "regression")
MINIMIZED = ("log_loss", "rmse", "mae")


def load(name: str, metric: str | None = None, names: Mapping[str, str] | None = None) -> Prior:
    """A prior of the library.

    Parameters
    ----------
    name : str
        Of the model, such as "lightgbm" (`metakel.library.list`).
    metric : str, optional
        What you measure: log_loss, auc, balanced_accuracy or accuracy; rmse, mae or r2. By default
        log_loss; rmse of a model that is for regression only.
    names : dict of str, optional
        How you spell parameters, by their name in the library: ``{"learning_rate": "eta"}``.

    Examples
    --------
    >>> from metakel import library
    >>> prior = library.load("knn", "accuracy")
    >>> sorted(prior.optimizer().ask())
    ['n_neighbors', 'p', 'weights']
    """
    found = card(name, metric)
    prior = _read(found.name, found.metric)
    return prior.renamed(names) if names else prior


@lru_cache(maxsize=8)
def _read(name: str, metric: str) -> Prior:
    file = files("metakel.library") / "priors" / f"{name}-{metric}.json.gz"
    with FORMAT.load(json.loads(gzip.decompress(file.read_bytes()))) as content:
        return decode(Prior, content, file.name)


def curves(name: str) -> CurveModel:
    """How learning curves of a model of the library go on, in shares of its rounds or epochs."""
    file = files("metakel.library") / "priors" / f"{name}-curves.json"
    if not file.is_file():
        raise InputError(
            f"the library has no curves of {name!r}; it has those of boosting, perceptrons and SGD"
        )
    with CURVES.load(json.loads(file.read_text(encoding="utf-8"))) as content:
        return decode(CurveModel, content, file.name)


def as_curves(source: Any) -> CurveModel:
    """A model of curves by its path or by the name of a model in the library."""
    name = str(source).removeprefix(PREFIX).partition(":")[0]
    return curves(name) if name in ENTRIES else CurveModel.load(source)


def as_prior(source: Any) -> Prior:
    """A prior as it is, the path of one, or ``library:name`` or ``library:name:metric``."""
    if isinstance(source, Prior):
        return source
    if not isinstance(source, str | Path):
        raise InputError(
            f"prior is a {type(source).__name__}; expected a Prior, the path of one, or a name of "
            "the library such as 'library:lightgbm'"
        )
    if not str(source).startswith(PREFIX):
        path = Path(source)
        if not path.suffix and not path.exists():
            raise InputError(f"there is no file {str(source)!r}; library:NAME has {_names()}")
        return Prior.load(source)
    name, _, metric = str(source).removeprefix(PREFIX).partition(":")
    return load(name, metric or None)


def spelled(prior: Prior, names: tuple[str, ...]) -> Prior:
    """A prior of the library with its parameters spelled as in ``names``, where they are known."""
    entry = ENTRIES.get(prior.info.model)
    if entry is None:
        return prior
    known = {entry.spelled(name): name for name in names if name not in prior.space.names}
    wanted = {own: name for own, name in known.items() if own in prior.space.names and own != name}
    return prior.renamed(wanted) if wanted else prior


# In words


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
    def _said(self) -> tuple[str, ...]:
        return self.purpose, self.origin, f"Tried first: {'; then '.join(self.tried_first)}"

    def __str__(self) -> str:
        width = max(map(len, self.ranges))
        ranges = (f"  {name:{width}}  {text}" for name, text in self.ranges.items())
        return "\n".join([f"{self.name}, {self.metric}: {self.title}", *self._said, *ranges])

    def _repr_html_(self) -> str:
        ranges = "; ".join(f"{name}: {text}" for name, text in self.ranges.items())
        return html_card(f"{self.title}, {self.metric}", *map(paragraph, (*self._said, ranges)))


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
        raise InputError(f"the library has no prior for {name!r} yet; it has {_names()}")
    by_metric = {entry.metric: entry for entry in found}
    wanted = metric or next(m for m in ("log_loss", "auc", "rmse", *by_metric) if m in by_metric)
    if wanted not in by_metric:
        known = ", ".join(by_metric)
        raise InputError(f"the library has no {name!r} for the metric {metric!r}; it has {known}")
    return by_metric[wanted]


def _model(name: str) -> str:
    if name in ENTRIES:
        return name
    bare = _bare(name)
    for entry in ENTRIES.values():
        if bare in map(_bare, (entry.name, entry.title, *entry.names, *entry.estimators)):
            return entry.name
    raise InputError(f"the library has no model {name!r}; it has {_names()}")


def _names() -> str:
    return ", ".join(dict.fromkeys(entry.name for entry in list_cards()))


def _bare(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


# Beside a history of one's own


def beside(library: Any, history: History) -> tuple[Prior, History]:
    """A prior of the library with the names of a history, and the history in its space.

    Parameters that the history lacks are at the defaults of the package. A parameter that the
    library lacks is refused, unless it never varied.
    """
    if history.space is None or history.report is None:
        raise InputError(
            "library= needs a history with named parameters; expected one of History.from_frame, "
            "from_csv or the like"
        )
    given = history.space
    output, minimize = history.report.output, bool(history.report.minimize)
    prior = spelled(_of_metric(library, output, minimize), given.names)
    entry = ENTRIES.get(prior.info.model)
    if entry is None or prior.info.minimize != minimize:
        aim = "minimised" if prior.info.minimize else "maximised"
        raise InputError(
            f"library is a prior of {prior.info.output!r}, which is {aim}; the history has "
            f"{output!r}, which is {'minimised' if minimize else 'maximised'}. Expected a prior of "
            "metakel.library of the same direction, such as 'lightgbm:auc'"
        )
    known, d0 = prior.space.names, prior.space.d0
    varying = [n for n in given.names if n not in known and not isinstance(given[n], Fixed)]
    if varying:
        raise InputError(
            f"the history has {', '.join(varying)}, which the library's prior of {entry.name} does "
            f"not know; it has {', '.join(known)}. Leave the column out, or learn "
            "without library="
        )
    missing = [name for name in known if name not in given.names]
    filled = {name: entry.defaults[entry.spelled(name)] for name in missing}

    def moved(X: Array | None) -> Array:
        rows = [] if X is None else given.decode(X)
        full = [{n: v for n, v in {**filled, **row}.items() if n in known} for row in rows]
        return prior.space.settled(prior.space.place(full)) if full else np.empty((0, d0))

    tasks = tuple(replace(t, X=moved(t.X), failed=moved(t.failed)) for t in history)
    note = f"{', '.join(missing)} at the defaults of {entry.title} in all past runs"
    notes = (*history.report.notes, note) if missing else history.report.notes
    return prior, History(tasks, prior.space, replace(history.report, notes=notes))


def _of_metric(library: Any, output: str, minimize: bool) -> Prior:
    """By its name and that of the output; else the first metric of the same direction, and so said.

    The negative of a loss is refused: it would not be in units of the library.
    """
    if not isinstance(library, str):
        return as_prior(library)
    name, _, metric = library.removeprefix(PREFIX).partition(":")
    if metric:
        return load(name, metric)
    of_model = [found for found in list_cards() if found.name == card(name).name]
    known = [found.metric for found in of_model]
    said = metric_called(output)
    if said in MINIMIZED and said in known and not minimize:
        raise InputError(
            f"{output!r} is maximised, and the library has {said} of {name}, which is minimised; "
            "expected the loss itself and not its negative, with minimize=True or --minimize"
        )
    if said not in known:
        fitting = [m for m in known if (m in MINIMIZED) == minimize]
        said = next(iter(fitting), None)
        others = ", ".join(f"{name}:{m}" for m in known)
        LOGGER.warning(
            "the library does not know the metric %r: it takes that of %s; library= one of %s says "
            "otherwise", output, said or known[0], others,
        )  # fmt: skip
    return load(name, said)


# Of packages and of people; without "neg_", capitals and signs between words.
CALLED = {
    "log_loss": "logloss crossentropy binarylogloss multilogloss mlogloss nll",
    "auc": "auc rocauc aucroc auroc",
    "balanced_accuracy": "balancedaccuracy bacc",
    "accuracy": "accuracy acc",
    "rmse": "rmse rootmeansquarederror",
    "mae": "mae meanabsoluteerror l1",
    "r2": "r2 r2score rsquared",
}


def metric_called(name: str) -> str | None:
    """The metric of the library that people call so; None for another one."""
    bare = _bare(name.lower().removeprefix("neg_"))
    return next((metric for metric, names in CALLED.items() if bare in names.split()), None)
