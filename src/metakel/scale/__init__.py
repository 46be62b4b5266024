"""Learning from more tasks than fit in memory, on one machine or on many."""

from metakel.scale.problem import Progress, ShardedProblem
from metakel.scale.scan import Scan, scan, spread

__all__ = ["Progress", "Scan", "ShardedProblem", "scan", "spread"]
