"""Limits that are kept while searching: only points that respect them are ever asked for."""

from metakel.safe.limits import Limit, PastFunction, PastScore, Range, SafeStart
from metakel.safe.model import Limited, NoSafePoint, SafeModel
from metakel.safe.start import LimitHistory, PastOutputs, safe_start

__all__ = [
    "Limit",
    "LimitHistory",
    "Limited",
    "NoSafePoint",
    "PastFunction",
    "PastOutputs",
    "PastScore",
    "Range",
    "SafeModel",
    "SafeStart",
    "safe_start",
]
