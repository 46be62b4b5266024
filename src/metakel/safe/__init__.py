"""Limits that are kept while searching: only points that respect them are ever asked for."""

from metakel.safe.limits import Limit, PastFunction, PastScore, Range, SafeStart
from metakel.safe.model import Limited, NoSafePoint, SafeModel
from metakel.safe.start import LimitHistory, SafePrior, safe_start

__all__ = [
    "Limit",
    "LimitHistory",
    "Limited",
    "NoSafePoint",
    "PastFunction",
    "PastScore",
    "Range",
    "SafeModel",
    "SafePrior",
    "SafeStart",
    "safe_start",
]
