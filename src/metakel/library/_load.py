"""Priors of the library as `Prior`, and the one place that turns a name or a path into a prior."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from metakel._codec import decode
from metakel.curves import FORMAT as CURVES
from metakel.curves import CurveModel
from metakel.errors import InputError
from metakel.library._cards import card
from metakel.library._entries import ENTRIES
from metakel.priors import Prior
from metakel.priors.prior import FORMAT

PREFIX = "library:"


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
            known = ", ".join(ENTRIES)
            raise InputError(f"there is no file {str(source)!r}; library:NAME has {known}")
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
