"""Base kernels of one feature each, a product of Legendre polynomials or cosines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.kernels.family import FeatureFamily, Functions
from metakel.kernels.univariate import (
    cosine_derivatives,
    cosine_values,
    legendre_derivatives,
    legendre_values,
)

NystromFeatures = Literal["legendre", "cosine"]
Scaling = Literal["sup", "l2"]

# Points are worked on in blocks whose tables (4 MB) stay in the cache of the processor.
BLOCK_ENTRIES = 1 << 19


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

    basis: NystromFeatures
    scaling: Scaling
    orders: NDArray[np.intp]

    kind: ClassVar[str] = "products"

    def __post_init__(self) -> None:
        for given, allowed in ((self.basis, NystromFeatures), (self.scaling, Scaling)):
            if given not in get_args(allowed):
                names = " or ".join(repr(name) for name in get_args(allowed))
                raise InputError(f"found {given!r}; expected {names}")
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
