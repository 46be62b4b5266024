"""What the lambda rules read of a problem: eigenvalues by group, and their Chernoff bound."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metakel.errors import InputError
from metakel.tasks import Array


class NoiseProblem(Protocol):
    """What the rules read of a group lasso problem; `metakel.grouplasso.Problem` has it all."""

    @property
    def m(self) -> int: ...
    @property
    def p(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def sizes(self) -> NDArray[np.integer[Any]]: ...
    @property
    def task_weights(self) -> Array: ...
    @property
    def dims(self) -> Sequence[int | None]: ...
    def spectra(self) -> Sequence[Array]: ...
    def energies(self, vectors: Sequence[Array]) -> Array: ...


class Eigenvalues:
    """All eigenvalues in one vector, with the sums by group that the rules need."""

    def __init__(self, problem: NoiseProblem) -> None:
        spectra = problem.spectra()
        self.counts = np.array([v.size for v in spectra])
        self.flat = np.maximum(np.concatenate([v.ravel() for v in spectra]), 0.0)
        self._starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self.top = np.maximum.reduceat(self.flat, self._starts)  # (p,) largest eigenvalue
        self.trace = self.sums(self.flat)
        self.frobenius = np.sqrt(self.sums(self.flat**2))

    def sums(self, values: Array) -> Array:
        """(p,) sums of a value per eigenvalue."""
        return np.add.reduceat(values, self._starts)


def chernoff_energy(v: Eigenvalues, x: float) -> Array:
    """(p,) values q with P(group energy of unit noise > q) <= exp(-x).

    The minimum over t solves t psi'(t) - psi(t) = x, which increases in z = tau / (1 - tau),
    tau = 2 t max(v). Any z gives a valid q; the minimum is flat, so bisection is enough.
    """
    top = np.where(v.top > 0, v.top, 1.0)
    share = v.flat / np.repeat(top, v.counts)  # in [0, 1]
    low = np.log(np.minimum(sqrt(4 * x) / np.sqrt(v.counts), 1.0) / 2)
    high = np.full(len(top), log(4 * x + 4))

    def psi(z: Array) -> tuple[Array, Array]:
        each = np.repeat(z, v.counts)
        remaining = (1 + each * (1 - share)) / (1 + each)  # 1 - tau share
        return -v.sums(np.log(remaining)) / 2, v.sums((1 - remaining) / remaining) / 2

    for _ in range(28):
        middle = (low + high) / 2
        value, slope = psi(np.exp(middle))
        above = slope - value > x
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    z = np.exp((low + high) / 2)
    energy: Array = v.top * 2 * (1 + z) / z * (psi(z)[0] + x)
    return energy


def nonzero(lam: Array) -> Array:
    """Groups without features get the largest lambda of the others (1 if there are none)."""
    top = lam.max()
    return np.where(lam > 0, lam, top if top > 0 else 1.0)


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}; expected a probability between 0 and 1")
