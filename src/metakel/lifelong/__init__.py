"""Tasks that come one after the other, each solved with what the ones before have taught."""

from metakel.lifelong.lifelong import FinishedTask, Lifelong, replay_alarms

__all__ = ["FinishedTask", "Lifelong", "replay_alarms"]
