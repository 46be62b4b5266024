"""Tasks that come one after the other, each solved with what the ones before have taught."""

from metakel.lifelong.finished import FinishedTask
from metakel.lifelong.lifelong import Lifelong

__all__ = ["FinishedTask", "Lifelong"]
