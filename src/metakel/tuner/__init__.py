"""Tune named parameters: an optimizer over a journal on disk that survives crashes."""

from metakel.tuner.journal import Journal, JournalError
from metakel.tuner.session import Finished, JournalReader
from metakel.tuner.trials import JournalTrial, Trials
from metakel.tuner.tuner import Tuner

__all__ = [
    "Finished",
    "Journal",
    "JournalError",
    "JournalReader",
    "JournalTrial",
    "Trials",
    "Tuner",
]
