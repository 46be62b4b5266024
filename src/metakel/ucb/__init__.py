"""GP-UCB: which point to try next, what is best so far, and how far from optimal it can be."""

from metakel.ucb.events import Best, Event
from metakel.ucb.optimizer import GPUCB

__all__ = ["GPUCB", "Best", "Event"]
