"""A prior from past tasks: learn it, look at it, decide with it."""

from metakel.prior.band import ConfidenceBand
from metakel.prior.effects import effect_kernels, learn_effects
from metakel.prior.explain import Explanation
from metakel.prior.learning import learn_prior
from metakel.prior.optimizer import SpaceOptimizer, TableOptimizer
from metakel.prior.prior import Prior

__all__ = [
    "ConfidenceBand",
    "Explanation",
    "Prior",
    "SpaceOptimizer",
    "TableOptimizer",
    "effect_kernels",
    "learn_effects",
    "learn_prior",
]
