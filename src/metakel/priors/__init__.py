"""A prior from past tasks: learn it, look at it, decide with it."""

from metakel.priors.confidence import ConfidenceBand, PastOutput, PastOutputs
from metakel.priors.learn import cold_prior, learn_outputs, learn_prior
from metakel.priors.prior import Prior
from metakel.priors.regret_calibration import Replays
from metakel.priors.summary import Explanation

__all__ = [
    "ConfidenceBand",
    "Explanation",
    "PastOutput",
    "PastOutputs",
    "Prior",
    "Replays",
    "cold_prior",
    "learn_outputs",
    "learn_prior",
]
