"""Base kernels and their sums (Eqs. 5, 9, 10)."""

from metakel.kernels.base import Family, Kernel, KernelDictionary
from metakel.kernels.custom import from_features, from_gram
from metakel.kernels.products import legendre, legendre_2d, tensor_product
from metakel.kernels.stationary import matern, random_fourier, squared_exponential
from metakel.kernels.sum import KernelSum

__all__ = [
    "Family",
    "Kernel",
    "KernelDictionary",
    "KernelSum",
    "from_features",
    "from_gram",
    "legendre",
    "legendre_2d",
    "matern",
    "random_fourier",
    "squared_exponential",
    "tensor_product",
]
