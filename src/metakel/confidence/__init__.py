"""Anytime confidence sequences for functions in the space of a kernel (Section 5)."""

from metakel.confidence.fallback import Alarm, AlarmEvent
from metakel.confidence.sequence import ConfidenceSequence
from metakel.confidence.set import ConfidenceSet

__all__ = ["Alarm", "AlarmEvent", "ConfidenceSequence", "ConfidenceSet"]
