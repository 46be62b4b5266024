"""metakel: learn which functions are plausible from past tasks, then decide with confidence."""

from importlib import import_module
from typing import TYPE_CHECKING

from metakel import datasets
from metakel.confidence import Alarm, ConfidenceSequence
from metakel.data import History, Task
from metakel.errors import InputError, MetaKelError, NotConverged, ShapeError
from metakel.gp import Posterior, posterior
from metakel.kernels import (
    KernelDictionary,
    KernelSum,
    from_features,
    from_gram,
    legendre,
    legendre_2d,
    matern,
    random_fourier,
    squared_exponential,
    tensor_product,
)
from metakel.learn import LearnedKernel, learn_kernel
from metakel.lifelong import Lifelong
from metakel.optimize import GPUCB
from metakel.priors import Prior, learn_prior
from metakel.search import box, candidates, grid
from metakel.space import Space
from metakel.theory import regret
from metakel.tuner import Tuner

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
    "History",
    "InputError",
    "KernelDictionary",
    "KernelSum",
    "LearnedKernel",
    "Lifelong",
    "MetaKelError",
    "NotConverged",
    "Posterior",
    "Prior",
    "ShapeError",
    "Space",
    "Task",
    "Tuner",
    "box",
    "candidates",
    "datasets",
    "from_features",
    "from_gram",
    "grid",
    "learn_kernel",
    "learn_prior",
    "legendre",
    "legendre_2d",
    "matern",
    "posterior",
    "random_fourier",
    "regret",
    "squared_exponential",
    "tensor_product",
]
