"""Base kernels of one feature each: a Legendre polynomial or cosine, or a product of several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, check_choice, check_count, is_integer
from metakel.errors import InputError
from metakel.kernels.base import KernelDictionary
from metakel.kernels.family import FeatureFamily, Functions
from metakel.kernels.univariate import (
    cosine_derivatives,
    cosine_values,
    legendre_derivatives,
    legendre_values,
)

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
    r"""Base kernels :math:`\phi_j(x) = c_j \prod_i u_{a_{ji}}(x_i)`, each of one feature.

    Parameters
    ----------
    basis : "legendre" or "cosine"
        u_a is the Legendre polynomial P_a on [-1, 1], or cos(pi a x) on [0, 1].
    scaling : "sup" or "l2"
        "sup": c_j = 1, so that abs(phi_j) <= 1. "l2": unit second moment under the uniform
        distribution on the domain.
    orders : (p, d0) array of int
        Order a_ji of kernel j in input i; zero where it does not depend on the input.
    """

    basis: Basis
    scaling: Scaling
    orders: NDArray[np.intp]

    kind: ClassVar[str] = "products"

    def __post_init__(self) -> None:
        check_choice("basis", self.basis, get_args(Basis))
        check_choice("scaling", self.scaling, get_args(Scaling))
        orders = np.array(self.orders, dtype=np.intp)
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
        """How many base kernels there are."""
        return len(self.orders)

    @property
    def dims(self) -> tuple[int | None, ...]:
        """One feature per kernel."""
        return (1,) * len(self.orders)

    @property
    def d0(self) -> int:
        """How many inputs a point has."""
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
    def smooth(self) -> bool:
        """Always."""
        return True

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
        """Write the (p, n) features."""
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
        """Write the (p, d0, n) derivatives by the product rule."""
        self._write(X, None, out)

    def write_both(self, X: Array, features: Array, jacobian: Array) -> None:
        """Write features and derivatives from one table of values."""
        self._write(X, features, jacobian)

    def _write(self, X: Array, features: Array | None, jacobian: Array) -> None:
        if not len(self._used):
            jacobian[:] = 0.0
            if features is not None:
                features[:] = 1.0
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
            if features is not None:
                np.multiply(math.prod(factors), self._scales[:, None], out=features[:, block])
            for q, (rows, inputs) in enumerate(self._factors):
                others = (factor for other, factor in enumerate(factors) if other != q)
                # Every factor of a kernel has an input of its own.
                jacobian[self._kernels, inputs, block] = math.prod(
                    others, start=slopes[rows] * self._scales[:, None]
                )

    def select(self, indices: Sequence[int]) -> Self:
        """The family of these base kernels only."""
        return type(self)(self.basis, self.scaling, self.orders[list(indices)])

    def parameters(self) -> dict[str, Any]:
        """Basis, scaling and orders."""
        return {"basis": self.basis, "scaling": self.scaling, "orders": self.orders.tolist()}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], functions: Functions) -> Products:
        """Inverse of `parameters`."""
        return cls(parameters["basis"], parameters["scaling"], np.array(parameters["orders"]))
