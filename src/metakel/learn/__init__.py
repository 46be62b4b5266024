"""Learning the kernel from past tasks (Section 4): history and base kernels in, `Learned` out."""

from metakel.learn.how import How, Loss, Scale, Weights
from metakel.learn.learned import Learned
from metakel.learn.learning import learn_kernel
from metakel.learn.problems import Elsewhere, Scanned, as_problem

__all__ = [
    "Elsewhere",
    "How",
    "Learned",
    "Loss",
    "Scale",
    "Scanned",
    "Weights",
    "as_problem",
    "learn_kernel",
]
