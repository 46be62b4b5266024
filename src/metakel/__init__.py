"""metakel: learn which functions are plausible from past tasks, then decide with confidence."""

from metakel.errors import InputError, MetaKelError, NotConverged, ShapeError
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
from metakel.tasks import History, Task

__version__ = "0.1.0"

__all__ = [
    "Dictionary",
    "History",
    "InputError",
    "KernelSum",
    "Learned",
    "MetaKelError",
    "NotConverged",
    "ShapeError",
    "Task",
    "fourier",
    "from_features",
    "from_gram",
    "learn_kernel",
    "legendre",
    "legendre_2d",
    "matern",
    "squared_exponential",
    "tensor",
]
