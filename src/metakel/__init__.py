"""metakel: learn which functions are plausible from past tasks, then decide with confidence."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metakel import datasets as datasets
    from metakel import kernels as kernels
    from metakel import plots as plots
    from metakel.confidence import Alarm as Alarm
    from metakel.confidence import ConfidenceSequence as ConfidenceSequence
    from metakel.data import History as History
    from metakel.data import Task as Task
    from metakel.errors import InputError as InputError
    from metakel.errors import MetaKelError as MetaKelError
    from metakel.gp import posterior as posterior
    from metakel.kernels import KernelSum as KernelSum
    from metakel.learn import LearnedKernel as LearnedKernel
    from metakel.learn import learn_kernel as learn_kernel
    from metakel.optimize import GPUCB as GPUCB
    from metakel.optimize import FixedWidth as FixedWidth
    from metakel.optimize import Optimizer as Optimizer
    from metakel.priors import Prior as Prior
    from metakel.priors import learn_prior as learn_prior
    from metakel.search import box as box
    from metakel.search import candidates as candidates
    from metakel.search import grid as grid
    from metakel.space import Space as Space
    from metakel.tuner import Tuner as Tuner

__version__ = "0.2.0.dev0"

if not TYPE_CHECKING:  # a type checker would conclude that every name exists
    # Where the names above are defined: a package is loaded when one of its names is first used.
    _HOMES = {
        "confidence": ("Alarm", "ConfidenceSequence"),
        "data": ("History", "Task"),
        "errors": ("InputError", "MetaKelError"),
        "gp": ("posterior",),
        "kernels": ("KernelSum",),
        "learn": ("LearnedKernel", "learn_kernel"),
        "optimize": ("GPUCB", "FixedWidth", "Optimizer"),
        "priors": ("Prior", "learn_prior"),
        "search": ("box", "candidates", "grid"),
        "space": ("Space",),
        "tuner": ("Tuner",),
    }
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
    _MODULES = {name: f"metakel.{name}" for name in ("datasets", "kernels", "plots")}
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
