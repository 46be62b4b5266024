"""Squared exponential and Matern kernels: exact, without finite features, or by random features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from numbers import Real
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import (
    TINY,
    Array,
    as_numbers,
    check_choice,
    check_count,
    check_generator,
    is_integer,
)
from metakel.errors import InputError, ShapeError
from metakel.kernels.base import FeatureFamily, GramFamily, KernelDictionary

Lengthscale = float | tuple[float, ...]
Columns = tuple[int, ...] | None

MATERN = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}


def squared_exponential(
    lengthscales: float | Sequence[float | Sequence[float]],
    *,
    columns: Literal["each"] | Sequence[int] | Sequence[Sequence[int]] | None = None,
    d0: int | None = None,
) -> KernelDictionary:
    r"""Kernels :math:`k(x, z) = \exp(-r^2 / 2)`, :math:`r = \|(x - z) / \ell\|`.

    Parameters
    ----------
    lengthscales : float, or sequence with one entry per kernel
        An entry is a number, or a vector with one lengthscale per input that it depends on.
    columns : optional
        Which inputs a kernel depends on: all of them (None), a tuple such as ``(0, 2)``, a list of
        such tuples for one kernel per tuple and lengthscale, or "each" for one kernel per input
        and lengthscale (needs ``d0``).
    d0 : int, optional
        How many inputs a point has; by default any number that the columns allow.
    """
    return _dictionary("se", lengthscales, columns, d0)


def matern(
    nu: float,
    lengthscales: float | Sequence[float | Sequence[float]],
    *,
    columns: Literal["each"] | Sequence[int] | Sequence[Sequence[int]] | None = None,
    d0: int | None = None,
) -> KernelDictionary:
    r"""Matern kernels of smoothness nu, :math:`r = \|(x - z) / \ell\|`.

    .. math:: e^{-r}, \quad (1 + \sqrt3 r) e^{-\sqrt3 r}, \quad
              (1 + \sqrt5 r + \tfrac53 r^2) e^{-\sqrt5 r}

    for nu = 1/2, 3/2 and 5/2.

    Parameters
    ----------
    nu : 0.5, 1.5 or 2.5
    lengthscales, columns, d0
        As for `squared_exponential`.
    """
    return _dictionary(_matern_shape(nu), lengthscales, columns, d0)


def _matern_shape(nu: Any) -> str:
    if not isinstance(nu, Real) or nu not in MATERN:
        raise InputError(
            f"nu is {nu!r}; exact Matern kernels exist for 0.5, 1.5 and 2.5, and nu comes before "
            "the lengthscales"
        )
    return MATERN[float(nu)]


def _dictionary(shape: str, lengthscales: Any, columns: Any, d0: int | None) -> KernelDictionary:
    if d0 is not None:
        check_count("d0", d0)
    several = isinstance(lengthscales, Iterable) and getattr(lengthscales, "ndim", 1) > 0
    entries = list(lengthscales) if several else [lengthscales]
    scales = [_as_lengthscale(entry) for entry in entries]
    if not scales:
        raise InputError("lengthscales are empty; expected at least one")
    pairs = [(scale, subset) for subset in _as_subsets(columns, d0) for scale in scales]
    return KernelDictionary(
        (Stationary(shape, tuple(s for s, _ in pairs), tuple(c for _, c in pairs), d0),)
    )


def _as_lengthscale(entry: Any) -> Lengthscale:
    try:
        values = as_numbers("lengthscale", entry, low=TINY)
    except InputError:
        values = np.empty(0)
    if values.ndim > 1 or not values.size:
        raise InputError(f"a lengthscale is {entry!r}; expected a positive number or a vector")
    return float(values) if values.ndim == 0 else tuple(values.tolist())


def _as_subsets(columns: Any, d0: int | None) -> list[Columns]:
    if columns is None:
        return [None]
    if isinstance(columns, str):
        if columns != "each":
            raise InputError(f"columns are {columns!r}; expected 'each', a tuple or tuples")
        if d0 is None:
            raise InputError("columns='each' needs d0, the number of inputs of a point")
        return [(i,) for i in range(d0)]
    try:
        one_subset = len(columns) == 0 or np.ndim(columns[0]) == 0
        subsets = [tuple(subset) for subset in ([columns] if one_subset else columns)]
    except TypeError:
        raise InputError(f"columns are {columns!r}; expected 'each', a tuple or tuples") from None
    for subset in subsets:
        whole = all(is_integer(i) for i in subset) and len(set(subset)) == len(subset) > 0
        if not whole or min(subset) < 0 or (d0 is not None and max(subset) >= d0):
            bound = "" if d0 is None else f" below d0 = {d0}"
            raise InputError(f"columns are {subset}; expected distinct indices >= 0{bound}")
    return [tuple(int(i) for i in subset) for subset in subsets]


@dataclass(frozen=True, eq=False)
class Stationary(GramFamily):
    """Base kernels that depend on the distance over a lengthscale."""

    shape: str  # "se", "matern12", "matern32" or "matern52"
    # For each kernel a number, or a tuple with one number per input that it depends on.
    lengthscales: tuple[Lengthscale, ...]
    columns: tuple[Columns, ...]  # the inputs that each kernel depends on; None is all of them
    inputs: int | None = None  # how many inputs a point has, where it is known

    kind: ClassVar[str] = "stationary"

    def __post_init__(self) -> None:
        check_choice("shape", self.shape, ("se", *MATERN.values()))
        for scale, columns in zip(self.lengthscales, self.columns, strict=True):
            looked_at = self.d0 if columns is None else len(columns)
            if isinstance(scale, tuple) and len(scale) != looked_at:
                raise ShapeError(
                    f"a lengthscale vector has {len(scale)} entries for {looked_at} inputs"
                )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """For example ``se(x0; l=0.1)``."""
        return tuple(
            f"{self.shape}({_inputs_text(columns)}l={_lengthscale_text(scale)})"
            for scale, columns in zip(self.lengthscales, self.columns, strict=True)
        )

    @property
    def p(self) -> int:
        return len(self.lengthscales)

    @property
    def d0(self) -> int | None:
        """As given, or the length of a lengthscale vector over all inputs."""
        if self.inputs is not None:
            return self.inputs
        for scale, columns in zip(self.lengthscales, self.columns, strict=True):
            if columns is None and isinstance(scale, tuple):
                return len(scale)
        return None

    @property
    def sup(self) -> Array:
        """k_j(x, x) = 1 everywhere."""
        return np.ones(self.p)

    @property
    def smooth(self) -> bool:
        """Matern 1/2 has no derivative where x = z (zero is given there)."""
        return self.shape != "matern12"

    def diags(self, X: Array) -> Array:
        return np.ones((self.p, len(X)))

    def each_gram(self, X: Array, Z: Array) -> Iterator[Array]:
        for _, _, distance in self._each_distance(X, Z):
            yield _profile(self.shape, distance)

    def each_gradient(self, X: Array, Z: Array) -> Iterator[Array]:
        for scale, columns, distance in self._each_distance(X, Z):
            gradient = np.zeros((len(X), len(Z), X.shape[1]))
            slope = _slope(self.shape, distance)
            scales = np.broadcast_to(scale, len(columns))
            for i, lengthscale in zip(columns, scales, strict=True):
                gradient[:, :, i] = np.subtract.outer(Z[:, i], X[:, i]).T * slope / lengthscale**2
            yield gradient

    def _each_distance(
        self, X: Array, Z: Array
    ) -> Iterator[tuple[Lengthscale, tuple[int, ...], Array]]:
        """Lengthscale, inputs and (n, k) distance r of each kernel.

        Neighbours that look at the same inputs share the distance before it is divided.
        """
        shared: tuple[tuple[int, ...], Array] | None = None
        for scale, chosen in zip(self.lengthscales, self.columns, strict=True):
            columns = tuple(range(X.shape[1])) if chosen is None else chosen
            if max(columns) >= X.shape[1]:
                raise ShapeError(
                    f"kernel {self.names[0]} depends on input x{max(columns)}, but X has "
                    f"{X.shape[1]} inputs"
                )
            if isinstance(scale, tuple):
                yield scale, columns, _distance(X[:, columns] / scale, Z[:, columns] / scale)
                continue
            if shared is None or shared[0] != columns:
                shared = (columns, _distance(X[:, columns], Z[:, columns]))
            yield scale, columns, shared[1] / scale

    def select(self, indices: Sequence[int]) -> Self:
        scales = tuple(self.lengthscales[j] for j in indices)
        return type(self)(self.shape, scales, tuple(self.columns[j] for j in indices), self.d0)


def _distance(X: Array, Z: Array) -> Array:
    """(n, k) Euclidean distances, from differences so that close points keep their digits."""
    squares = np.zeros((len(X), len(Z)))
    for x, z in zip(X.T, Z.T, strict=True):
        difference = np.subtract.outer(x, z)
        if X.shape[1] == 1:
            return np.asarray(np.abs(difference, out=difference))
        difference *= difference
        squares += difference
    return np.asarray(np.sqrt(squares, out=squares))


def _profile(shape: str, r: Array) -> Array:
    """k as a function of the distance over the lengthscale."""
    if shape == "se":
        return np.asarray(np.exp(-0.5 * r * r))
    if shape == "matern12":
        return np.asarray(np.exp(-r))
    if shape == "matern32":
        s = np.sqrt(3) * r
        return np.asarray((1 + s) * np.exp(-s))
    s = np.sqrt(5) * r
    return np.asarray((1 + s + s * s / 3) * np.exp(-s))


def _slope(shape: str, r: Array) -> Array:
    """-k'(r) / r, so that the derivative in x is -(x - z) / lengthscale**2 times it."""
    if shape == "se":
        return np.asarray(np.exp(-0.5 * r * r))
    if shape == "matern12":
        return np.asarray(np.divide(np.exp(-r), r, out=np.zeros_like(r), where=r > 0))
    if shape == "matern32":
        return np.asarray(3 * np.exp(-np.sqrt(3) * r))
    s = np.sqrt(5) * r
    return np.asarray(5 / 3 * (1 + s) * np.exp(-s))


def _inputs_text(columns: Columns) -> str:
    return "" if columns is None else ",".join(f"x{i}" for i in columns) + "; "


def _lengthscale_text(scale: Lengthscale) -> str:
    return ",".join(f"{s:.3g}" for s in (scale if isinstance(scale, tuple) else (scale,)))


TYPICAL_NOISE = 1e-3  # of the variance of standardised values


def typical_lengthscale(d0: int) -> float:
    """Lengthscale on [-1, 1]^d0 when nothing is known; distances grow like the root of d0."""
    return 0.5 * sqrt(d0)


@dataclass(frozen=True, eq=False)
class Matern52ARD:
    r"""Matern-5/2 kernel :math:`s^2 (1 + \sqrt5 r + \tfrac53 r^2) e^{-\sqrt5 r}` and its noise."""

    lengthscales: Array  # (d0,)
    signal: float  # variance s^2 of the standardised values of a task
    noise: float  # variance of what the kernel does not explain, in the same units

    def __post_init__(self) -> None:
        if not (self.signal >= TINY and self.noise >= TINY and (self.lengthscales >= TINY).all()):
            raise InputError(
                f"a kernel has length scales {self.lengthscales}, signal {self.signal} and noise "
                f"{self.noise}; expected positive numbers"
            )

    @classmethod
    def typical(cls, d0: int) -> Matern52ARD:
        """The kernel of a cold start: nothing learned."""
        return cls(np.full(d0, typical_lengthscale(d0)), 1.0, TYPICAL_NOISE)

    def __call__(self, X: Array, Z: Array) -> Array:
        """(n, k) values k(x, z)."""
        return self.of_scaled(*self.scale(X), *self.scale(Z))

    def scale(self, X: Array) -> tuple[Array, Array]:
        """(n, d0) points in units of the lengthscales, and their (n,) squared norms."""
        scaled = X / self.lengthscales
        return scaled, np.einsum("nd,nd->n", scaled, scaled)

    def of_scaled(self, left: Array, left_norms: Array, right: Array, right_norms: Array) -> Array:
        """(n, k) values k(x, z) of points that were scaled before."""
        squares = (-2 * left) @ right.T
        squares += left_norms[:, None]
        squares += right_norms
        K = _matern52_profile(squares)
        K *= self.signal
        return K

    def slopes_of_scaled(self, left: Array, right: Array) -> Array:
        """(n, k, d0) derivatives of k(x, z) in z, of points in units of the lengthscales."""
        gaps = right[None, :, :] - left[:, None, :]
        r = np.sqrt(5 * np.einsum("nkd,nkd->nk", gaps, gaps))
        fall = (self.signal * 5 / 3) * (1 + r) * np.exp(-r)
        gaps *= -fall[:, :, None]
        gaps /= self.lengthscales
        return gaps


def _matern52_profile(squares: Array) -> Array:
    """Matern-5/2 of squared scaled distances, which it overwrites."""
    np.maximum(squares, 0, out=squares)
    squares *= 5
    r = np.sqrt(squares)
    squares /= 3
    squares += r
    squares += 1
    np.negative(r, out=r)
    squares *= np.exp(r, out=r)
    return squares


Spectrum = Literal["se", "matern12", "matern32", "matern52"]

# Twice the smoothness nu: the degrees of freedom of the Student t spectrum.
DEGREES_OF_FREEDOM = {"matern12": 1, "matern32": 3, "matern52": 5}

BLOCK_ENTRIES = 1 << 16


def random_fourier(
    p: int, d0: int, *, lengthscales: ArrayLike, spectrum: Spectrum = "se", rng: np.random.Generator
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
