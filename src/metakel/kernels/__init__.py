"""Base kernels and their sums (Eqs. 5, 9, 10)."""

from metakel.kernels.base import Dictionary, Kernel
from metakel.kernels.custom import from_features, from_gram
from metakel.kernels.family import Family
from metakel.kernels.fourier import fourier
from metakel.kernels.legendre import legendre, legendre_2d
from metakel.kernels.stationary import matern, squared_exponential
from metakel.kernels.sum import KernelSum
from metakel.kernels.tensor import tensor

__all__ = [
    "Dictionary",
    "Family",
    "Kernel",
    "KernelSum",
    "fourier",
    "from_features",
    "from_gram",
    "legendre",
    "legendre_2d",
    "matern",
    "squared_exponential",
    "tensor",
]
