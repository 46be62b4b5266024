"""Anytime confidence sequences for functions in the space of a kernel (Section 5)."""

from metakel.confidence.fallback import Alarm, AlarmEvent
from metakel.confidence.methods import DMM, ClosedForm
from metakel.confidence.sequence import ConfidenceSequence
from metakel.confidence.set import ConfidenceSet

__all__ = ["DMM", "Alarm", "AlarmEvent", "ClosedForm", "ConfidenceSequence", "ConfidenceSet"]
