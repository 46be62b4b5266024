"""Tune named parameters: an optimizer over a journal on disk that survives crashes."""

from metakel.tuner.fold import Run
from metakel.tuner.journal import Journal, JournalError
from metakel.tuner.source import KernelSource, RunTask, Source
from metakel.tuner.store import Store
from metakel.tuner.table import NextRow, NextRows, suggest_rows
from metakel.tuner.tuner import Finished, Tuner

__all__ = [
    "Finished",
    "Journal",
    "JournalError",
    "KernelSource",
    "NextRow",
    "NextRows",
    "Run",
    "RunTask",
    "Source",
    "Store",
    "Tuner",
    "suggest_rows",
]
