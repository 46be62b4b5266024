"""Base kernels of one feature each: a Legendre polynomial or cosine, or a product of several.

Notation: x is an array of any shape, a table has one more axis in front, for the orders 0..top.
The function of order 0 is the constant 1. Recurrences are the fastest for many points; for a few
points, where an optimiser asks one at a time, the cost is in the number of array operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, pairwise
from typing import ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, check_choice, check_count, is_integer
from metakel.errors import InputError
from metakel.kernels.base import FeatureFamily, KernelDictionary

FEW_POINTS = 256
LARGEST_ORDER = 2000  # tables of polynomials grow with its square


def legendre_values(x: Array, top: int) -> Array:
    r"""Legendre polynomials P_0..P_top on [-1, 1] with P_k(1) = 1.

    .. math:: P_{k+1} = x P_k + \tfrac{k}{k+1} (x P_k - P_{k-1}),

    the three-term recurrence in the form that is exact at the ends of the interval.
    """
    if x.size <= FEW_POINTS:
        cosines = np.cos(np.multiply.outer(np.arange(top + 1), np.arccos(x)))
        table = _legendre_from_cosines(top) @ cosines.reshape(top + 1, -1)
        return np.asarray(table.reshape(cosines.shape))
    table = np.empty((top + 1, *x.shape))
    table[0] = 1.0
    table[1:2] = x
    rows = list(table)
    step = np.empty_like(x)
    for k in range(1, top):
        np.multiply(x, rows[k], out=step)
        following = np.subtract(step, rows[k - 1], out=rows[k + 1])
        following *= k / (k + 1)
        following += step
    return table


@lru_cache(maxsize=64)
def _legendre_from_cosines(top: int) -> Array:
    r"""Coefficients in :math:`P_j(\cos\theta) = \sum_i g_i g_{j-i} \cos((j - 2i) \theta)`.

    With :math:`g_i = \binom{2i}{i} 4^{-i}` all of them are positive and each row sums to 1, so
    that no digits are lost.
    """
    i = np.arange(1, top + 1)
    g = np.cumprod(np.concatenate([[1.0], (2 * i - 1) / (2 * i)]))
    coefficients = np.zeros((top + 1, top + 1))
    for j in range(top + 1):
        np.add.at(coefficients[j], abs(j - 2 * np.arange(j + 1)), g[: j + 1] * g[j::-1])
    coefficients.setflags(write=False)
    return coefficients


def legendre_derivatives(values: Array) -> Array:
    r"""Derivatives from the table of values: P'_{k+1} = P'_{k-1} + (2k + 1) P_k."""
    if values[0].size <= FEW_POINTS:
        table = _slopes_from_values(len(values) - 1) @ values.reshape(len(values), -1)
        return np.asarray(table.reshape(values.shape))
    slopes = np.zeros_like(values)
    orders = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    steps = (2 * orders + 1)[:-1] * values[:-1]
    for parity in (0, 1):
        np.cumsum(steps[parity::2], axis=0, out=slopes[parity + 1 :: 2])
    return slopes


@lru_cache(maxsize=64)
def _slopes_from_values(top: int) -> Array:
    """The recurrence of `legendre_derivatives` as a matrix: P'_k sums every other P_j below it."""
    k, j = np.ogrid[: top + 1, : top + 1]
    matrix = np.where((j < k) & ((k - j) % 2 == 1), 2.0 * j + 1, 0.0)
    matrix.setflags(write=False)
    return matrix


def cosine_values(x: Array, top: int) -> Array:
    r"""Cosines :math:`\cos(\pi k x)`, k = 0..top, on [0, 1].

    The recurrence keeps the differences of neighbours, :math:`c_{k+1} - c_k = c_k - c_{k-1} -
    4 \sin^2(\theta / 2) c_k`, which loses no digits for angles up to a right one; the others
    are reflected.
    """
    if x.size <= FEW_POINTS:
        return np.asarray(np.cos(np.multiply.outer(np.pi * np.arange(top + 1), x)))
    folded = np.abs(x - 2 * np.round(x / 2))  # cosines are even, of period 2
    reflected = folded > 0.5
    angle = np.pi * np.where(reflected, 1 - folded, folded)
    bend = 4 * np.sin(angle / 2) ** 2
    table = np.empty((top + 1, *x.shape))
    table[0] = 1.0
    rows = list(table)
    difference = -bend / 2
    step = np.empty_like(bend)
    for k in range(top):
        if k:
            difference -= np.multiply(bend, rows[k], out=step)
        np.add(rows[k], difference, out=rows[k + 1])
    table[1::2] *= np.where(reflected, -1.0, 1.0)
    return table


def cosine_derivatives(x: Array, top: int) -> Array:
    r"""Derivatives :math:`-\pi k \sin(\pi k x)`."""
    rates = np.pi * np.arange(top + 1)
    slopes = np.sin(np.multiply.outer(rates, x))
    return np.asarray(slopes * -rates.reshape(-1, *[1] * x.ndim))


Basis = Literal["legendre", "cosine"]
Scaling = Literal["sup", "l2"]

# Points are worked on in blocks whose tables (4 MB) stay in the cache of the processor.
BLOCK_ENTRIES = 1 << 19


def legendre(p: int, *, scaling: Scaling, degrees: Sequence[int] | None = None) -> KernelDictionary:
    r"""Kernels :math:`k_j(x, z) = \phi_j(x) \phi_j(z)` on [-1, 1], one Legendre polynomial each.

    Parameters
    ----------
    p : int
        How many base kernels.
    scaling : "sup" or "l2"
        "sup" is P_j itself, so that k_j <= 1 as the paper assumes. "l2" is sqrt(2j + 1) P_j, of
        unit second moment under the uniform distribution; the paper's experiments need it
        (its lambda = 0.03 does not recover the kernel with "sup").
    degrees : sequence of p distinct int, optional
        By default 1..p, without the constant P_0.
    """
    check_count("p", p)
    chosen = list(range(1, p + 1)) if degrees is None else list(degrees)
    whole = all(is_integer(degree) and degree >= 0 for degree in chosen)
    if not whole or len(chosen) != p or len(set(chosen)) != p:
        raise InputError(f"degrees are {chosen}; expected p = {p} distinct integers >= 0")
    return KernelDictionary((Products("legendre", scaling, np.array(chosen)[:, None]),))


def legendre_2d(p: int, *, scaling: Scaling) -> KernelDictionary:
    r"""The paper's p + 1 kernels on [-1, 1]^2: P_j(x_1) P_{p-j}(x_2) for j = 0..p.

    Parameters
    ----------
    p : int
        Total degree of every product.
    scaling : "sup" or "l2"
        "l2" multiplies with sqrt((2j + 1) (2(p - j) + 1)).
    """
    check_count("p", p)
    first = np.arange(p + 1)
    return KernelDictionary((Products("legendre", scaling, np.column_stack([first, p - first])),))


def tensor_product(
    d0: int,
    order: int,
    *,
    basis: Basis = "legendre",
    scaling: Scaling,
    include_constant: bool = False,
    max_interaction: int | None = None,
) -> KernelDictionary:
    r"""Products of functions of single inputs up to a total order, each its own base kernel.

    There are :math:`\binom{d_0 + o}{o} - 1` products of total order 1 to o, sorted by it.

    Parameters
    ----------
    d0 : int
        How many inputs a point has.
    order : int
        Largest sum of the orders of the factors.
    basis : "legendre" or "cosine"
        Legendre polynomials P_a on [-1, 1]^d0, or cos(pi a x) on [0, 1]^d0.
    scaling : "sup" or "l2"
        "sup": products of P_a or of cos(pi a x), so that k_j <= 1. "l2": unit second moment under
        the uniform distribution on the domain, with factors sqrt(2a + 1) P_a or
        sqrt(2) cos(pi a x).
    include_constant : bool
        Whether the constant 1 is a base kernel, too (the first).
    max_interaction : int, optional
        Largest number of inputs in one product; all of them by default.
    """
    widest = d0 if max_interaction is None else max_interaction
    for name, number in (("d0", d0), ("order", order), ("max_interaction", widest)):
        check_count(name, number)
    rows = [[0] * d0] if include_constant else []
    for total in range(1, order + 1):
        for width in range(1, min(widest, d0, total) + 1):
            for inputs in combinations(range(d0), width):
                for parts in _compositions(total, width):
                    row = [0] * d0
                    for i, part in zip(inputs, parts, strict=True):
                        row[i] = part
                    rows.append(row)
    return KernelDictionary((Products(basis, scaling, np.array(rows)),))


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write ``total`` as an ordered sum of ``parts`` positive integers."""
    for cuts in combinations(range(1, total), parts - 1):
        ends = (0, *cuts, total)
        yield tuple(stop - start for start, stop in pairwise(ends))


@dataclass(frozen=True, eq=False)
class Products(FeatureFamily):
    r"""Base kernels :math:`\phi_j(x) = c_j \prod_i u_{a_{ji}}(x_i)`, each of one feature."""

    basis: Basis  # u_a is the Legendre polynomial P_a on [-1, 1], or cos(pi a x) on [0, 1]
    # "sup": c_j = 1, so that abs(phi_j) <= 1. "l2": unit second moment under the uniform
    # distribution on the domain.
    scaling: Scaling
    orders: NDArray[np.intp]  # (p, d0) a_ji of kernel j in input i; 0 where it has none

    kind: ClassVar[str] = "products"
    smooth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("basis", self.basis, get_args(Basis))
        check_choice("scaling", self.scaling, get_args(Scaling))
        orders = np.array(self.orders, dtype=np.intp)
        if orders.size and orders.min() < 0:
            raise InputError(f"a basis function of order {orders.min()}; expected 0 or more")
        if orders.size and orders.max() > LARGEST_ORDER:
            raise InputError(
                f"a basis function of order {orders.max()}; expected at most {LARGEST_ORDER}"
            )
        orders.setflags(write=False)
        object.__setattr__(self, "orders", orders)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """For example ``P3`` for one input, ``P3(x0) P1(x2)`` for several."""
        letter = {"legendre": "P", "cosine": "cos"}[self.basis]
        if self.d0 == 1:
            return tuple(f"{letter}{a}" for (a,) in self.orders.tolist())
        parts = (
            " ".join(f"{letter}{a}(x{i})" for i, a in enumerate(row) if a)
            for row in self.orders.tolist()
        )
        return tuple(part or f"{letter}0" for part in parts)

    @property
    def p(self) -> int:
        return len(self.orders)

    @property
    def dims(self) -> tuple[int | None, ...]:
        return (1,) * len(self.orders)

    @property
    def d0(self) -> int:
        return int(self.orders.shape[1])

    @cached_property
    def _scales(self) -> Array:
        """(p,) factors c_j."""
        if self.scaling == "sup":
            return np.ones(len(self.orders))
        second = 2 * self.orders + 1 if self.basis == "legendre" else 1 + (self.orders > 0)
        return np.asarray(np.sqrt(second.astype(float).prod(axis=1)))

    @property
    def sup(self) -> Array:
        """(p,) supremum of k_j(x, x), attained at a corner of the domain."""
        return np.asarray(np.round(self._scales**2))

    @property
    def domain(self) -> tuple[float, float] | None:
        """Polynomials explode outside of [-1, 1]; cosines are bounded everywhere."""
        return (-1.0, 1.0) if self.basis == "legendre" else None

    @cached_property
    def _used(self) -> NDArray[np.intp]:
        """Inputs that some kernel depends on."""
        return np.flatnonzero(self.orders.any(axis=0))

    @cached_property
    def _top(self) -> int:
        return int(self.orders.max())

    @cached_property
    def _factors(self) -> tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]:
        """Factor q of every kernel as (row in the table, input); padded with the constant 1."""
        count = max(1, int((self.orders > 0).sum(axis=1).max()))
        ranked = np.argsort(self.orders == 0, axis=1, kind="stable")[:, :count]  # (p, count)
        orders = np.take_along_axis(self.orders, ranked, axis=1)
        place = np.zeros(self.d0, dtype=np.intp)
        place[self._used] = np.arange(len(self._used))
        rows = orders * len(self._used) + np.where(orders > 0, place[ranked], 0)
        return tuple((rows[:, q].copy(), ranked[:, q].copy()) for q in range(count))

    @cached_property
    def _kernels(self) -> NDArray[np.intp]:
        return np.arange(self.p)

    def _blocks(self, n: int) -> Iterator[slice]:
        size = max(256, BLOCK_ENTRIES // (self.p + (self._top + 1) * len(self._used)))
        return (slice(start, min(start + size, n)) for start in range(0, n, size))

    def _values(self, x: Array) -> Array:
        """Table of every order and used input, (orders * inputs, n)."""
        make = legendre_values if self.basis == "legendre" else cosine_values
        return make(x, self._top).reshape(-1, x.shape[1])

    def write_features(self, X: Array, out: Array) -> None:
        if not len(self._used):
            out[:] = 1.0
            return
        for block in self._blocks(len(X)):
            x = np.ascontiguousarray(X[block, self._used].T)  # (inputs, n)
            table = self._values(x)
            product = table[self._factors[0][0]]
            for rows, _ in self._factors[1:]:
                product *= table[rows]
            np.multiply(product, self._scales[:, None], out=out[:, block])

    def write_jacobian(self, X: Array, out: Array) -> None:
        self.write_both(X, np.empty((self.p, len(X))), out)

    def write_both(self, X: Array, features: Array, jacobian: Array) -> None:
        """By the product rule, from one table of values."""
        if not len(self._used):
            features[:], jacobian[:] = 1.0, 0.0
            return
        if len(self._factors) < self.d0:
            jacobian[:] = 0.0
        for block in self._blocks(len(X)):
            x = np.ascontiguousarray(X[block, self._used].T)
            values = self._values(x)
            if self.basis == "legendre":
                slopes = legendre_derivatives(values.reshape(-1, *x.shape))
            else:
                slopes = cosine_derivatives(x, self._top)
            slopes = slopes.reshape(values.shape)
            factors = [values[rows] for rows, _ in self._factors]
            np.multiply(math.prod(factors), self._scales[:, None], out=features[:, block])
            for q, (rows, inputs) in enumerate(self._factors):
                others = (factor for other, factor in enumerate(factors) if other != q)
                # Every factor of a kernel has an input of its own.
                jacobian[self._kernels, inputs, block] = math.prod(
                    others, start=slopes[rows] * self._scales[:, None]
                )

    def select(self, indices: Sequence[int]) -> Self:
        return type(self)(self.basis, self.scaling, self.orders[list(indices)])
