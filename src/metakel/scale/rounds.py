"""A round of the solver: sums over files of factors, by a plain loop or on a Dask cluster.

A file answers with y'r/N, a score for every group of the working set and their Hessian. Answers are
added in the order of the files, so that they do not depend on who computed them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso.evaluators import FeatureEvaluator
from metakel.grouplasso.newton import Residual, independent_weights
from metakel.scale.factors import FactorFile
from metakel.scale.parquet import Index

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def run(function: Callable[[Item], Answer], items: Sequence[Item], client: Any) -> list[Answer]:
    """``function`` of every item, in their order, here or on the workers of a Dask client."""
    if client is None:
        return [function(item) for item in items]
    answers: list[Answer] = client.gather(client.map(function, items, pure=False))
    return answers


@dataclass(frozen=True, eq=False)
class Point:
    """Weights at which sums are asked for.

    Parameters
    ----------
    total : int
        N, the observations of all tasks.
    work : (q,) array
        Groups of the working set.
    active : (a,) array
        Places in ``work`` of the groups with positive weight.
    x : (a,) array
        Their weights eta / lambda.
    """

    total: int
    work: Index
    active: Index
    x: Array

    def evaluator(self, file: FactorFile) -> FeatureEvaluator:
        """The ordinary evaluator of the tasks of one file, at this point."""
        found = FeatureEvaluator(file.problem(self.total))
        found.extend(self.work)
        found.at(self.active, self.x)
        return found


def _sums(file: FactorFile, point: Point) -> tuple[float, Array, Array]:
    evaluator = point.evaluator(file)
    value, scores = evaluator.at(point.active, point.x)
    return value, scores, evaluator.hessian(np.arange(point.work.size))


def _residual(file: FactorFile, point: Point) -> tuple[Array, Array, float, float]:
    found = point.evaluator(file).residual()
    return found.scores, found.norms**2, found.square, found.inner


def _away(file: FactorFile, point: Point, unit: Array) -> tuple[Array]:
    evaluator = point.evaluator(file)
    evaluator.residual()
    return (evaluator.away(unit),)


class RoundEvaluator:
    """`grouplasso.newton.Evaluator` of tasks in files of factors."""

    rough = True

    def __init__(self, files: Sequence[FactorFile], client: Any) -> None:
        self.files, self.client = files, client
        self.total = sum(int(file.sizes.sum()) for file in files)
        self.energy = sum(file.energy for file in files) / self.total
        self.p = len(files[0].dims)
        self.work: Index = np.empty(0, np.intp)
        self.active: Index = np.empty(0, np.intp)
        self.curvature = np.empty(0)
        m, scale = sum(file.sizes.size for file in files), 2 / self.total
        self._curvature: Array = scale / m * np.sum([file.traces for file in files], axis=0)
        self._scores: Array = scale**2 * np.sum([file.scores for file in files], axis=0)
        self._x = np.empty(0)
        self._norms = np.zeros(self.p)
        self._hessian: Array | None = None

    def extend(self, groups: Index) -> None:
        self.work = np.concatenate([self.work, groups])
        self.curvature = self._curvature[self.work]
        self._hessian = None

    def start(self, lam: Array) -> Array:
        return independent_weights(self._scores[self.work], lam, self.curvature)

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        self.active, self._x, self._hessian = active, x, None
        if not active.size:
            return self.energy, self._scores[self.work]
        return self._ask()

    def hessian(self, groups: Index) -> Array:
        if self._hessian is None:
            self._ask()
        assert self._hessian is not None
        return self._hessian[np.ix_(groups, groups)]

    def residual(self) -> Residual:
        if not self.active.size:
            return Residual(self._scores, np.zeros(self.p), self.energy, self.energy)
        scores, squares, square, inner = self._run(partial(_residual, point=self._point))
        self._norms = np.sqrt(squares)
        return Residual(scores, self._norms, square, inner)

    def misfit(self, lam: Array) -> Array:
        if not self.active.size:
            return np.empty(0)
        here = self.work[self.active]
        (squares,) = self._run(
            partial(_away, point=self._point, unit=lam[here] / self._norms[here])
        )
        return np.asarray(np.sqrt(squares))

    def beta(self) -> None:
        """Coefficients of all tasks are not kept."""

    def _ask(self) -> tuple[float, Array]:
        value, scores, self._hessian = self._run(partial(_sums, point=self._point))
        return value, scores

    @property
    def _point(self) -> Point:
        return Point(self.total, self.work, self.active, self._x)

    def _run(self, function: Callable[[FactorFile], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Sums over the files of what the function returns."""
        answers = run(function, self.files, self.client)
        return tuple(sum(part[1:], start=part[0]) for part in zip(*answers, strict=True))
