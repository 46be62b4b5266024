"""Past tasks (Eq. 4): points and the values observed there."""

from metakel.data.history import History, Task

__all__ = ["History", "Task"]
