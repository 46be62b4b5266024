"""Priors for ordinary models, learned from runs on public data sets: for whoever has no history.

>>> from metakel import library
>>> library.load("random_forest", metric="log_loss").info.minimize
True

`list` says which there are, `card` what one was learned from and what it is for. Every place that
takes a prior takes its name as well: ``MetaKelSampler(prior="lightgbm")``,
``Tuner("library:svm")``, ``metakel tune library:xgboost -- ...``.
"""

from metakel.library._entries import ENTRIES, Entry
from metakel.library._priors import Card, as_curves, as_prior, beside, card, curves, load, spelled
from metakel.library._priors import list_cards as list

__all__ = [
    "ENTRIES",
    "Card",
    "Entry",
    "as_curves",
    "as_prior",
    "beside",
    "card",
    "curves",
    "list",
    "load",
    "spelled",
]
