"""Learn a sparse sum of base kernels from past tasks (Section 4)."""

from metakel.learn.kernel import LearnedKernel, learn_kernel
from metakel.learn.problem import (
    EtaWeights,
    LearnOptions,
    Loss,
    Scale,
    Weights,
    as_problem,
)

__all__ = [
    "EtaWeights",
    "LearnOptions",
    "LearnedKernel",
    "Loss",
    "Scale",
    "Weights",
    "as_problem",
    "learn_kernel",
]
