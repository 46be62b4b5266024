"""Learning from more tasks than fit in memory, on one machine or on many."""

from metakel.scale.blocks import Rows
from metakel.scale.evaluator import TaskSums
from metakel.scale.executors import SerialExecutor
from metakel.scale.history import ShardedHistory, distribute, scan
from metakel.scale.problem import Progress, ShardedProblem
from metakel.scale.shard import Shard

__all__ = [
    "Progress",
    "Rows",
    "SerialExecutor",
    "Shard",
    "ShardedHistory",
    "ShardedProblem",
    "TaskSums",
    "distribute",
    "scan",
]
