"""Tune named parameters: ask, tell, and a journal on disk that survives anything."""

from metakel.tuner.journal import Journal, JournalError
from metakel.tuner.trials import AlarmRaised, Trial, Trials
from metakel.tuner.tuner import Best, Tuner

__all__ = ["AlarmRaised", "Best", "Journal", "JournalError", "Trial", "Trials", "Tuner"]
