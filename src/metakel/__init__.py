"""metakel: learn which functions are plausible from past tasks, then decide with confidence."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metakel import datasets as datasets
    from metakel import plots as plots
    from metakel.confidence import Alarm as Alarm
    from metakel.confidence import ConfidenceSequence as ConfidenceSequence
    from metakel.data import History as History
    from metakel.data import Task as Task
    from metakel.errors import InputError as InputError
    from metakel.errors import MetaKelError as MetaKelError
    from metakel.errors import NotConverged as NotConverged
    from metakel.errors import ShapeError as ShapeError
    from metakel.gp import Posterior as Posterior
    from metakel.gp import posterior as posterior
    from metakel.kernels import KernelDictionary as KernelDictionary
    from metakel.kernels import KernelSum as KernelSum
    from metakel.kernels import from_features as from_features
    from metakel.kernels import from_gram as from_gram
    from metakel.kernels import legendre as legendre
    from metakel.kernels import legendre_2d as legendre_2d
    from metakel.kernels import matern as matern
    from metakel.kernels import random_fourier as random_fourier
    from metakel.kernels import squared_exponential as squared_exponential
    from metakel.kernels import tensor_product as tensor_product
    from metakel.learn import LearnedKernel as LearnedKernel
    from metakel.learn import learn_kernel as learn_kernel
    from metakel.optimize import GPUCB as GPUCB
    from metakel.optimize import Limit as Limit
    from metakel.optimize import NoSafePoint as NoSafePoint
    from metakel.priors import PastOutput as PastOutput
    from metakel.priors import Prior as Prior
    from metakel.priors import learn_prior as learn_prior
    from metakel.priors import safe_start as safe_start
    from metakel.search import box as box
    from metakel.search import candidates as candidates
    from metakel.search import grid as grid
    from metakel.space import Space as Space
    from metakel.theory import regret as regret
    from metakel.tuner import Tuner as Tuner

__version__ = "0.1.0"

if not TYPE_CHECKING:  # a type checker would conclude that every name exists
    # Where the names above are defined: a package is loaded when one of its names is first used.
    _HOMES = {
        "confidence": ("Alarm", "ConfidenceSequence"),
        "data": ("History", "Task"),
        "errors": ("InputError", "MetaKelError", "NotConverged", "ShapeError"),
        "gp": ("Posterior", "posterior"),
        "kernels": (
            *("KernelDictionary", "KernelSum", "from_features", "from_gram", "legendre"),
            *("legendre_2d", "matern", "random_fourier", "squared_exponential", "tensor_product"),
        ),
        "learn": ("LearnedKernel", "learn_kernel"),
        "optimize": ("GPUCB", "Limit", "NoSafePoint"),
        "priors": ("PastOutput", "Prior", "learn_prior", "safe_start"),
        "search": ("box", "candidates", "grid"),
        "space": ("Space",),
        "tuner": ("Tuner",),
    }
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
    _MODULES = {name: f"metakel.{name}" for name in ("datasets", "plots")}
    _MODULES["regret"] = "metakel.theory.regret"
    __all__ = sorted({*_HOME_OF, *_MODULES} - {"plots"})  # which needs matplotlib

    def __getattr__(name):
        """Load a public name when it is first asked for."""
        if name in _HOME_OF:
            value = getattr(import_module(f"metakel.{_HOME_OF[name]}"), name)
        elif name in _MODULES:
            value = import_module(_MODULES[name])
        else:
            raise AttributeError(f"module 'metakel' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__, *_MODULES})
