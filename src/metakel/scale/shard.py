"""A shard: tasks that stay where they are and answer with sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metakel._arrays import Array
from metakel.errors import ShardError
from metakel.grouplasso import Problem
from metakel.grouplasso.newton import Evaluator
from metakel.grouplasso.problem import group_energies
from metakel.grouplasso.solve import evaluator_of
from metakel.kernels import KernelDictionary
from metakel.learn.problem import LeastSquares, Loss, least_squares
from metakel.scale.blocks import TaskSource
from metakel.scale.evaluator import (
    Evaluation,
    Index,
    LocalCertificate,
    ShardCertificate,
    Summary,
    TaskSums,
    WeightPoint,
    total,
)
from metakel.scale.store import BlockSpectrum, CachedEvaluator, TaskStore


class Shard(TaskSums):
    """Sums over the tasks of some sources, which are read when they are first asked about.

    Until then a shard is small, so it can be sent to another process. What it keeps between calls
    only saves work: if a shard is lost with its process, a new one gives the same answers.

    Parameters
    ----------
    sources : sequence of TaskSource
    base : KernelDictionary
    loss : "points" or "tasks"
    memory : int
        Bytes that may be kept between calls.
    """

    def __init__(
        self, sources: Sequence[TaskSource], base: KernelDictionary, loss: Loss, memory: int
    ) -> None:
        self._store = TaskStore(sources, base, loss, memory)

    def __str__(self) -> str:
        first, *others = map(str, self._store.sources)
        return f"{first}, and {len(others)} more" if others else first

    def summarize(self) -> Summary:
        return total(_summary(problem, spectrum) for problem, spectrum in self._store.load())

    def evaluate(self, point: WeightPoint) -> Evaluation:
        return total(_evaluation(cached, point) for cached in self._store.evaluators(point))

    def hessian(self, point: WeightPoint, groups: Index) -> Array:
        out = np.zeros((groups.size, groups.size))
        for cached in self._store.evaluators(point):
            cached.at(point)
            out += cached.unit**3 * cached.evaluator.hessian(groups)
        return out

    def certify(self, point: WeightPoint) -> ShardCertificate:
        return total(_certified(problem, point) for problem, _ in self._store.problems())

    def recertify(self, point: WeightPoint, previous: WeightPoint) -> LocalCertificate:
        return total(
            _recertified(cached, point, previous) for cached in self._store.evaluators(point)
        )

    def log_det(self, rho: Array) -> Array:
        return total(spectrum.log_det(rho) for spectrum in self._store.spectra())

    def tilted(self, top: Array, z: Array) -> Array:
        return total(spectrum.tilted(top, z) for spectrum in self._store.spectra())

    def least_squares(self, groups: Index) -> LeastSquares:
        return total(
            least_squares(problem, groups).repeated(multiplicity)
            for problem, multiplicity in self._store.problems()
        )


def _summary(problem: Problem, spectrum: BlockSpectrum) -> Summary:
    scores = sum(group_energies(problem, batch, batch.y) for batch in problem.batches)
    assert isinstance(scores, np.ndarray)
    if not np.isfinite(scores).all():
        j = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ShardError(f"the features of group {j} hold nan or infinite numbers")
    values, times = spectrum.values, spectrum.multiplicity
    weights = problem.task_weights[: len(values[0])]
    return Summary(
        energy=sum(float(np.vdot(batch.y, batch.y)) for batch in problem.batches),
        scores=scores,
        gram_trace=times * np.array([(v.sum(axis=1) / weights).sum() for v in values]),
        counts=times * np.array([float(v.size) for v in values]),
        top=np.array([v.max(initial=0.0) for v in values]),
        gram_top=np.array([(v.max(axis=1) / weights).max(initial=0.0) for v in values]),
        trace=times * np.array([v.sum() for v in values]),
        squares=times * np.array([np.vdot(v, v) for v in values]),
    )


def _evaluation(cached: CachedEvaluator, point: WeightPoint) -> Evaluation:
    unit = cached.unit
    value, scores = cached.at(point)
    hessian = cached.evaluator.hessian(point.active)
    return Evaluation(2 * unit * value, unit**2 * scores, unit**3 * hessian)


def _certified(problem: Problem, point: WeightPoint) -> ShardCertificate:
    evaluator, unit = evaluator_of(problem), problem.total / 2
    evaluator.extend(point.groups)
    evaluator.at(np.arange(point.groups.size), unit * point.w)
    return _certificate(evaluator, unit, point.w)


def _recertified(
    cached: CachedEvaluator, point: WeightPoint, previous: WeightPoint
) -> LocalCertificate:
    cached.at(point)
    certificate = _certificate(cached.evaluator, cached.unit, point.w)
    here = _fits(cached)
    cached.at(previous)
    moves = zip(here, _fits(cached), strict=True)
    return LocalCertificate(certificate, sum(float(np.sum((a - b) ** 2)) for a, b in moves))


def _fits(cached: CachedEvaluator) -> list[Array]:
    """Fitted values of the tasks, or their residuals: both move by the same distance."""
    beta = cached.evaluator.beta()
    if beta is None:
        return list(cached.evaluator.residual().rows)
    (batch,) = cached.problem.batches
    assert batch.Phi is not None
    return [np.matmul(beta[:, None, :], batch.Phi)[:, 0, :]]


def _certificate(evaluator: Evaluator, unit: float, w: Array) -> ShardCertificate:
    """Where ``evaluator.at`` was last called, in units that know no N."""
    found = evaluator.residual()
    groups = evaluator.work[evaluator.active]
    norms = found.norms[groups]
    misfit = _misfit(evaluator, found.scores[groups], norms, unit * w)
    return ShardCertificate(
        2 * unit * found.square,
        2 * unit * found.inner,
        unit**2 * found.scores,
        norms**2,
        (unit * misfit) ** 2,
    )


def _misfit(evaluator: Evaluator, scores: Array, norms: Array, x: Array) -> Array:
    """||z - beta / x|| of the active groups."""
    lam = np.zeros(evaluator.p)
    lam[evaluator.work[evaluator.active]] = norms / x
    with np.errstate(invalid="ignore", divide="ignore"):
        misfit = evaluator.misfit(lam)
    return np.where(norms > 0, misfit, np.sqrt(scores))
