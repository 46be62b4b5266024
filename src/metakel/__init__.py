"""metakel: learn which functions are plausible from past tasks, then decide with confidence."""

from importlib import import_module
from typing import TYPE_CHECKING

from metakel import datasets, regret
from metakel.confidence import Alarm, ConfidenceSequence
from metakel.domains import box, grid, points
from metakel.errors import InputError, MetaKelError, NotConverged, ShapeError
from metakel.gp import Posterior, posterior
from metakel.kernels import (
    Dictionary,
    KernelSum,
    fourier,
    from_features,
    from_gram,
    legendre,
    legendre_2d,
    matern,
    squared_exponential,
    tensor,
)
from metakel.learn import Learned, learn_kernel
from metakel.prior import Prior, learn_prior
from metakel.space import Space
from metakel.tasks import History, Task
from metakel.tuner import Tuner
from metakel.ucb import GPUCB

if TYPE_CHECKING:
    from metakel import plots as plots
else:  # hidden from type checkers, to whom it would say that every name exists

    def __getattr__(name):
        """Pictures are loaded when they are first asked for."""
        if name == "plots":
            return import_module("metakel.plots")
        raise AttributeError(f"module 'metakel' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), "plots"})


__version__ = "0.1.0"

__all__ = [
    "GPUCB",
    "Alarm",
    "ConfidenceSequence",
    "Dictionary",
    "History",
    "InputError",
    "KernelSum",
    "Learned",
    "MetaKelError",
    "NotConverged",
    "Posterior",
    "Prior",
    "ShapeError",
    "Space",
    "Task",
    "Tuner",
    "box",
    "datasets",
    "fourier",
    "from_features",
    "from_gram",
    "grid",
    "learn_kernel",
    "learn_prior",
    "legendre",
    "legendre_2d",
    "matern",
    "points",
    "posterior",
    "regret",
    "squared_exponential",
    "tensor",
]
