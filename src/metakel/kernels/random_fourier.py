"""Random Fourier features: stationary kernels as averages of cosines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_numbers, check_choice, check_count, check_generator
from metakel.errors import InputError
from metakel.kernels.base import FeatureFamily, KernelDictionary

Spectrum = Literal["se", "matern12", "matern32", "matern52"]

# Twice the smoothness nu: the degrees of freedom of the Student t spectrum.
DEGREES_OF_FREEDOM = {"matern12": 1, "matern32": 3, "matern52": 5}

BLOCK_ENTRIES = 1 << 16


def random_fourier(
    p: int,
    d0: int,
    *,
    lengthscales: ArrayLike,
    spectrum: Spectrum = "se",
    rng: np.random.Generator,
) -> KernelDictionary:
    r"""Kernels :math:`k_j(x, z) = \cos(w_j^\top (x - z))` with random frequencies w_j.

    The features of kernel j are the pair (cos w'x, sin w'x), so that k_j(x, x) = 1. The mean of
    many such kernels tends to the squared exponential or Matern kernel of the spectrum.

    Parameters
    ----------
    p : int
        How many base kernels, that is, frequencies.
    d0 : int
        How many inputs a point has.
    lengthscales : float or sequence of float
        The frequencies are divided evenly among them, in this order.
    spectrum : "se", "matern12", "matern32" or "matern52"
        Normal frequencies of standard deviation 1 / lengthscale, or multivariate Student t of
        1, 3 or 5 degrees of freedom over the lengthscale.
    rng : numpy.random.Generator
    """
    check_count("p", p)
    check_count("d0", d0)
    check_generator(rng)
    scales = np.atleast_1d(as_numbers("lengthscales", lengthscales))
    if scales.ndim != 1 or not len(scales) or not (scales > 0).all():
        raise InputError(f"lengthscales are {lengthscales!r}; expected positive numbers")
    if len(scales) > p:
        raise InputError(f"{p} frequencies cannot be divided among {len(scales)} lengthscales")
    check_choice("spectrum", spectrum, get_args(Spectrum))
    frequencies = rng.standard_normal((p, d0))
    if spectrum != "se":
        df = DEGREES_OF_FREEDOM[spectrum]
        frequencies *= np.sqrt(df / rng.chisquare(df, size=(p, 1)))
    shares = [len(share) for share in np.array_split(np.arange(p), len(scales))]
    lengthscale = np.repeat(scales, shares)  # (p,)
    return KernelDictionary((Fourier(frequencies / lengthscale[:, None], lengthscale),))


@dataclass(frozen=True, eq=False)
class Fourier(FeatureFamily):
    """Base kernels cos(w_j'(x - z)), each with the two features cos w_j'x and sin w_j'x."""

    frequencies: Array  # (p, d0)
    lengthscales: Array  # (p,) for which each frequency was drawn; shown in the names only

    kind: ClassVar[str] = "fourier"
    smooth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("frequencies", "lengthscales"):
            values = np.array(getattr(self, name), dtype=np.float64)
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The wave vector and its lengthscale."""
        waves = (", ".join(f"{w:.3g}" for w in row) for row in self.frequencies)
        pairs = zip(waves, self.lengthscales, strict=True)
        return tuple(f"wave({wave}; l={scale:.3g})" for wave, scale in pairs)

    @property
    def p(self) -> int:
        return len(self.frequencies)

    @property
    def dims(self) -> tuple[int | None, ...]:
        return (2,) * self.p

    @property
    def d0(self) -> int:
        return int(self.frequencies.shape[1])

    @property
    def sup(self) -> Array:
        """k_j(x, x) = 1 everywhere."""
        return np.ones(self.p)

    def write_features(self, X: Array, out: Array) -> None:
        """Write the (2p, n) features: cosine and sine of the first frequency, and so on."""
        size = max(256, BLOCK_ENTRIES // self.p)
        for start in range(0, len(X), size):
            block = slice(start, start + size)
            phase = self.frequencies @ X[block].T  # (p, n)
            np.cos(phase, out=out[0::2, block])
            np.sin(phase, out=out[1::2, block])

    def write_jacobian(self, X: Array, out: Array) -> None:
        phase = self.frequencies @ X.T
        np.multiply(-np.sin(phase)[:, None], self.frequencies[:, :, None], out=out[0::2])
        np.multiply(np.cos(phase)[:, None], self.frequencies[:, :, None], out=out[1::2])

    def select(self, indices: Sequence[int]) -> Self:
        return type(self)(self.frequencies[list(indices)], self.lengthscales[list(indices)])
