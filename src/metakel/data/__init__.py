"""Past tasks (Eq. 4): points and the values observed there."""

from metakel.data.history import History
from metakel.data.task import Task

__all__ = ["History", "Task"]
