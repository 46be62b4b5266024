"""Functions of one input that products are made of: all orders at once, with derivatives.

Notation: x is an array of any shape, a table has one more axis in front, for the orders 0..top.
The function of order 0 is the constant 1. Recurrences are the fastest for many points; for a few
points, where an optimiser asks one at a time, the cost is in the number of array operations.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from metakel._arrays import Array

FEW_POINTS = 256


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
