"""One optimizer: a record of trials, a model of the objective, an acquisition and a domain."""

from metakel.optimize.acquisition import ACQUISITIONS, Acquisition
from metakel.optimize.certificate import Best, Certificate
from metakel.optimize.certified import GPUCB, CertifiedModel, FixedWidth
from metakel.optimize.explain import Expected, Neighbor, Reasons
from metakel.optimize.mixture import Mixture
from metakel.optimize.model import Model, Score
from metakel.optimize.optimizer import Optimizer
from metakel.optimize.outcomes import Outcomes, outcomes
from metakel.optimize.record import Record, Trial
from metakel.optimize.state import State

__all__ = [
    "ACQUISITIONS",
    "GPUCB",
    "Acquisition",
    "Best",
    "Certificate",
    "CertifiedModel",
    "Expected",
    "FixedWidth",
    "Mixture",
    "Model",
    "Neighbor",
    "Optimizer",
    "Outcomes",
    "Reasons",
    "Record",
    "Score",
    "State",
    "Trial",
    "outcomes",
]
