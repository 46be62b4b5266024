"""What an experiment depends on: the numbers of Section 6, a reading of them, random streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from metakel.kernels.products import Scaling
from metakel.learn import Scale

Signs = Literal["positive", "both"]


@dataclass(frozen=True)
class Reading:
    """One way to read what Section 6 leaves open (``docs/reading-the-paper.md``, Experiments).

    Attributes
    ----------
    scaling : "sup" or "l2"
        Of the Legendre polynomials: P_j as printed, or orthonormal as claimed.
    signs : "positive" or "both"
        Of the coefficients of a task: uniform on (0, 1) as printed, or on (-1, 1).
    goal : "maximise" or "minimise"
        The text maximises, the caption of Figure 9 minimises.
    scale : "c1", "sum" or "raw"
        Of the learned kernel: divided by c_1 (Eq. 9), or to weights of sum 1 like k* and k_full.
    output_scale : "unit" or "norm"
        Of the Gaussian processes in Figure 3: GP(0, k) as printed, or GP(0, B^2 k).
    centered : bool
        GLMNET: AUC as it is, or minus its mean over the past tasks and in units of its spread.
    """

    name: str
    scaling: Scaling
    signs: Signs
    goal: Literal["maximise", "minimise"]
    scale: Scale
    output_scale: Literal["unit", "norm"]
    centered: bool

    @property
    def sign(self) -> float:
        """What GP-UCB maximises is f times this."""
        return -1.0 if self.goal == "minimise" else 1.0


LITERAL = Reading("literal", "sup", "positive", "maximise", "c1", "unit", False)
RESOLVED = Reading("resolved", "l2", "positive", "minimise", "sum", "norm", True)
SIGNED = Reading("signed", "l2", "both", "maximise", "sum", "norm", True)

READINGS = {reading.name: reading for reading in (RESOLVED, LITERAL, SIGNED)}


@dataclass(frozen=True)
class ExperimentSettings:
    """The numbers of Section 6, the same for all figures unless one changes them.

    Attributes
    ----------
    sparsity : int
        Size of the support of k*.
    norm : float
        B, the norm of every task in the space of k*.
    smallest : float
        Weights of k* are redrawn until all of them reach it; 0 takes the first draw.
    grid : int
        Points of the grid on [-1, 1], per input.
    draws : int
        How many k*, each held fixed over all runs (for GLMNET: test tasks).
    fresh : bool
        Whether every run draws a k* of its own instead.
    runs : int
        Instances of meta-data and objective for each draw.
    """

    runs: int
    draws: int = 1
    fresh: bool = False
    p: int = 20
    sparsity: int = 5
    smallest: float = 0.0
    m: int = 50
    n: int = 50
    norm: float = 10.0
    noise_std: float = 0.01
    lam: float = 0.03
    delta: float = 0.1
    horizon: int = 100
    grid: int = 501
    reading: Reading = RESOLVED


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
