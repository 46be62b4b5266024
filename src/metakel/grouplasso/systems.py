"""The small systems T_s = I + X^1/2 G_s X^1/2 of the active columns, one for every task."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metakel.grouplasso import spd

Array = NDArray[np.float64]
# Tiny matrices, and many: measured crossing points.
SWEEP_BELOW, SWEEP_STACK = 8, 64


class Systems(Protocol):
    """Made from G (m, k, k), asked at one weight x = root^2 after another."""

    def solve(self, root: Array, b: Array, *, stiff: bool) -> Array:
        """T^-1 b for b (m, k); where T is ``stiff``, an explicit inverse would cancel."""
        ...

    def form(self, v: Array) -> Array:
        """(k, k) sums over the tasks of v_a T^-1_ab v_b, for v (m, k), where last solved."""
        ...

    def apply(self, C: Array) -> Array:
        """T^-1 C for C (m, k, c), where last solved."""
        ...


def systems_of(G: Array) -> Systems:
    """The faster of two ways, for G (m, k, k)."""
    m, k = G.shape[:2]
    return Swept(G) if 0 < k < SWEEP_BELOW and m >= SWEEP_STACK else Stacked(G)


class Stacked:
    """One matrix after another, through LAPACK."""

    def __init__(self, G: Array) -> None:
        self.G = G
        self.inverse = G

    def solve(self, root: Array, b: Array, *, stiff: bool) -> Array:
        T = self.G * (root[:, None] * root)
        T.reshape(len(T), -1)[:, :: root.size + 1] += 1.0
        if stiff:
            factor = spd.Factor(T)
            w = factor.solve(b)
            self.inverse = factor.invert()
            return w
        self.inverse = spd.inverse(T)
        products: Array = np.matmul(self.inverse, b[:, :, None])
        return products[..., 0]

    def form(self, v: Array) -> Array:
        form: Array = np.einsum("sab,sb->ab", self.inverse * v[:, :, None], v)
        return form

    def apply(self, C: Array) -> Array:
        products: Array = np.matmul(self.inverse, C)
        return products


class Swept:
    """All matrices together, pivot by pivot, with the tasks last in memory."""

    def __init__(self, G: Array) -> None:
        self.G = np.ascontiguousarray(G.transpose(1, 2, 0))
        self.inverse = self.G

    def solve(self, root: Array, b: Array, *, stiff: bool) -> Array:
        T = self.G * (root[:, None] * root)[:, :, None]
        T.reshape(-1, T.shape[2])[:: root.size + 1] += 1.0
        if stiff:
            factor = spd.Factor(np.ascontiguousarray(T.transpose(2, 0, 1)))
            w = factor.solve(b)
            self.inverse = np.ascontiguousarray(factor.invert().transpose(1, 2, 0))
            return w
        spd.sweep(T)
        self.inverse = T
        w = np.einsum("abs,bs->as", T, np.ascontiguousarray(b.T))
        return np.ascontiguousarray(w.T)

    def form(self, v: Array) -> Array:
        columns = np.ascontiguousarray(v.T)
        form: Array = np.einsum("abs,bs->ab", self.inverse * columns[:, None], columns)
        return form

    def apply(self, C: Array) -> Array:
        products: Array = np.matmul(np.ascontiguousarray(self.inverse.transpose(2, 0, 1)), C)
        return products
