"""Learning from more tasks than fit in memory, on one machine or on many."""

from metakel.distributed.problem import Progress, ShardedProblem
from metakel.distributed.scan import Scan, scan, spread

__all__ = ["Progress", "Scan", "ShardedProblem", "scan", "spread"]
