"""Eigenvalues of every task's Gram matrices, as the lambda rules need them: only their sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array
from metakel.errors import ShardError
from metakel.grouplasso import Problem
from metakel.grouplasso.problem import group_energies
from metakel.learn.rule_spectrum import tilted
from metakel.scale.sums import Summary


@dataclass(frozen=True, eq=False)
class BlockSpectrum:
    """Eigenvalues of one block, (k, r_j) for group j; each counts ``repeats`` times."""

    values: list[Array]
    repeats: float

    @property
    def nbytes(self) -> int:
        return sum(v.nbytes for v in self.values)

    def log_det(self, rho: Array) -> Array:
        """(p,) sums of log(1 + v / rho_j)."""
        sums = [np.log1p(v / r).sum() for v, r in zip(self.values, rho, strict=True)]
        return self.repeats * np.array(sums)

    def tilted(self, top: Array, z: Array) -> Array:
        """(2, p) sums that the Chernoff bound minimises over z."""
        sums = [
            [part.sum() for part in tilted(v / t, each)]
            for v, t, each in zip(self.values, top, z, strict=True)
        ]
        return self.repeats * np.array(sums).T


def spectrum_of(problem: Problem, repeats: float) -> BlockSpectrum:
    """Eigenvalues times the weights of the loss (`Problem.spectra`); shared inputs count once."""
    (batch, *_) = problem.batches
    if batch.Phi is None or set(problem.dims) != {1}:
        values = problem.spectra()
    else:
        squares = np.einsum("sdn,sdn->sd", batch.Phi, batch.Phi)
        values = list(np.ascontiguousarray((problem.task_weights[:, None] * squares).T)[:, :, None])
    if repeats != 1.0:
        return BlockSpectrum([v[:1] for v in values], repeats * problem.m)
    return BlockSpectrum(values, 1.0)


def summary(problem: Problem, spectrum: BlockSpectrum) -> Summary:
    """Everything about a block that is known before any weight."""
    scores = sum(group_energies(problem, batch, batch.y) for batch in problem.batches)
    assert isinstance(scores, np.ndarray)
    if not np.isfinite(scores).all():
        j = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ShardError(f"the features of group {j} hold nan or infinite numbers")
    values, repeats = spectrum.values, spectrum.repeats
    weights = problem.task_weights[: len(values[0])]
    return Summary(
        energy=sum(float(np.vdot(batch.y, batch.y)) for batch in problem.batches),
        scores=scores,
        sizes=repeats * np.array([(v.sum(axis=1) / weights).sum() for v in values]),
        counts=repeats * np.array([float(v.size) for v in values]),
        top=np.array([v.max(initial=0.0) for v in values]),
        widest=np.array([(v.max(axis=1) / weights).max(initial=0.0) for v in values]),
        trace=repeats * np.array([v.sum() for v in values]),
        squares=repeats * np.array([np.vdot(v, v) for v in values]),
    )
