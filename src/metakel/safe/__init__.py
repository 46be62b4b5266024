"""Limits that are kept while searching: only points that respect them are ever asked for."""

from metakel.safe.limits import Limit, PastFunction, PastScore, Range, SafeStart
from metakel.safe.model import Limited, NoSafePoint, SafeModel

__all__ = [
    "Limit",
    "Limited",
    "NoSafePoint",
    "PastFunction",
    "PastScore",
    "Range",
    "SafeModel",
    "SafeStart",
]
