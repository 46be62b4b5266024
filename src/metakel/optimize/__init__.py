"""GP-UCB: which point to try next, what is best so far, and how far from optimal it can be."""

from metakel.optimize.events import Best, Event
from metakel.optimize.gpucb import GPUCB

__all__ = ["GPUCB", "Best", "Event"]
