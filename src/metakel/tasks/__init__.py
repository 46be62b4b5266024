"""The offline data (Eq. 4): past tasks, each a set of points and the values seen there."""

from metakel.tasks.arrays import Array, as_points, as_values
from metakel.tasks.history import History
from metakel.tasks.task import Task

__all__ = ["Array", "History", "Task", "as_points", "as_values"]
