"""The eigenvalues that the rules for lambda depend on, and their Chernoff bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.grouplasso.problem import ProblemSize


class NoiseProblem(ProblemSize, Protocol):
    """The part of a `metakel.grouplasso.Problem` that the rules use."""

    def spectra(self) -> Sequence[Array]: ...
    def energies(self, vectors: Sequence[Array]) -> Array: ...


class GroupSpectra(Protocol):
    """Sums over all eigenvalues v of each group."""

    counts: NDArray[np.integer[Any]]  # (p,) number of eigenvalues
    top: Array  # (p,) largest eigenvalue
    trace: Array  # (p,)
    frobenius: Array  # (p,)

    def log_det(self, rho: Array) -> Array:
        """(p,) sums of log(1 + v / rho_j)."""
        ...

    def tilted(self, top: Array, z: Array) -> Array:
        """(2, p) sums of `tilted` over v / top_j at z_j."""
        ...


class Eigenvalues:
    """`GroupSpectra` of a problem in memory: all eigenvalues in one vector."""

    def __init__(self, problem: NoiseProblem) -> None:
        spectra = problem.spectra()
        self.counts = np.array([v.size for v in spectra])
        self.flat = np.maximum(np.concatenate([v.ravel() for v in spectra]), 0.0)
        self._starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self.top = np.maximum.reduceat(self.flat, self._starts)
        self.trace = self.sums(self.flat)
        self.frobenius = np.sqrt(self.sums(self.flat**2))

    def sums(self, values: Array) -> Array:
        """(p,) sums over each group of one value per eigenvalue."""
        return np.add.reduceat(values, self._starts)

    def log_det(self, rho: Array) -> Array:
        """(p,) sums of log(1 + v / rho_j)."""
        return self.sums(np.log1p(self.flat / np.repeat(rho, self.counts)))

    def tilted(self, top: Array, z: Array) -> Array:
        """(2, p) sums of `tilted` over v / top_j at z_j."""
        parts = tilted(self.flat / np.repeat(top, self.counts), np.repeat(z, self.counts))
        return np.stack([self.sums(part) for part in parts])


def spectrum_of(problem: NoiseProblem) -> GroupSpectra:
    """The eigenvalues of a problem in memory, or the sums that an out-of-core problem provides."""
    out_of_core: Callable[[], GroupSpectra] | None = getattr(problem, "spectrum", None)
    return Eigenvalues(problem) if out_of_core is None else out_of_core()


def tilted(share: Array, z: Array | float) -> tuple[Array, Array]:
    """Terms of psi(t) and t psi'(t) of `chernoff_energy` for eigenvalues v = share max(v)."""
    remaining = (1 + z * (1 - share)) / (1 + z)  # 1 - tau share
    return -np.log(remaining) / 2, (1 - remaining) / remaining / 2


def chernoff_energy(v: GroupSpectra, x: float) -> Array:
    """(p,) values q with P(energy of unit noise in the group > q) <= exp(-x).

    The best t solves t psi'(t) - psi(t) = x. The left-hand side increases in z = tau / (1 - tau),
    tau = 2 t max(v), so z is found by bisection. Every z gives a valid q, and q depends little on
    z near the optimum, so an approximate root is enough.
    """
    top = np.where(v.top > 0, v.top, 1.0)
    low = np.log(np.minimum(sqrt(4 * x) / np.sqrt(v.counts), 1.0) / 2)
    high = np.full(len(top), log(4 * x + 4))
    for _ in range(28):
        middle = (low + high) / 2
        value, slope = v.tilted(top, np.exp(middle))
        above = slope - value > x
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    z = np.exp((low + high) / 2)
    energy: Array = v.top * 2 * (1 + z) / z * (v.tilted(top, z)[0] + x)
    return energy
