"""Random streams: every run, and every role in a run, has one of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Role = Literal["kernel", "history", "objective", "points", "noise", "ties", "features", "split"]
ROLES: tuple[Role, ...] = (
    "kernel",
    "history",
    "objective",
    "points",
    "noise",
    "ties",
    "features",
    "split",
)


@dataclass(frozen=True)
class Streams:
    """The streams of one run: the same alone, in a pool, or after somebody adds more runs.

    Parameters
    ----------
    seed : int
    draw : int
        Which k* (or test task).
    run : int
        Which instance for this k*.
    fresh : bool
        Whether the run has a k* of its own.
    """

    seed: int
    draw: int
    run: int
    fresh: bool = False

    def rng(self, role: Role) -> np.random.Generator:
        """A new generator at the start of the stream; two calls give the same numbers."""
        shared = role == "kernel" and not self.fresh
        run = () if shared else (self.run,)
        key = (ROLES.index(role), self.draw, *run)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))
