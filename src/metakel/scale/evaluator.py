"""The solver's questions, answered by adding up what shards say.

A round sends the active groups and their weights to every shard, and gets back one number, a score
for every group that the shards have statistics of, and the Hessian of the active ones. Answers are
added in the order of the shards, so they do not depend on who answered first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.grouplasso.evaluator import Residual, independent_weights
from metakel.scale.sums import Certificate, total

if TYPE_CHECKING:
    from metakel.scale.problem import ShardedProblem

Index = NDArray[np.intp]
SAME = 1e-13  # weights that differ by less are the same point
OVERLAP = 0.3  # kernels overlap, so each needs less than it would take alone


@dataclass(frozen=True, eq=False)
class Point:
    """Where shards are asked: weights w > 0 on ``active``, increasing places in ``work``."""

    work: Index
    active: Index
    w: Array

    @property
    def groups(self) -> Index:
        """The active groups."""
        return self.work[self.active]

    def same(self, other: Point) -> bool:
        """Whether it is the same point, up to rounding."""
        return (
            np.array_equal(self.work, other.work)
            and np.array_equal(self.active, other.active)
            and np.allclose(self.w, other.w, rtol=SAME, atol=0.0)
        )


class ShardedEvaluator:
    """Evaluator (`grouplasso.evaluator`) over the shards of a problem.

    Its working set may be any part of what the shards have statistics of, in any order; ``_places``
    says where each of its groups stands there.
    """

    def __init__(self, problem: ShardedProblem) -> None:
        self.problem = problem
        self.p = problem.p
        # With features, a round reads statistics of the working set, a certificate all points.
        self.rough = problem.kernel_mode
        self.energy = problem.summary.energy / problem.rows
        self.work: Index = np.empty(0, np.intp)
        self.active: Index = np.empty(0, np.intp)
        self.curvature = np.empty(0)
        self._scale = 2 / problem.rows
        self._x = np.empty(0)
        self._places: Index = np.empty(0, np.intp)

    def extend(self, groups: Index) -> None:
        self.work = np.concatenate([self.work, groups])
        self._places = self.problem.cover(self.work)
        self.curvature = self._scale / self.problem.m * self.problem.summary.sizes[self.work]

    def start(self, lam: Array) -> Array:
        scores = self._scale**2 * self.problem.summary.scores[self.work]
        guess = independent_weights(scores, lam, self.curvature)
        return OVERLAP * guess if self.problem.kernel_mode else guess

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        self.active, self._x = active, x
        if not active.size:
            return self.energy, self._scale**2 * self.problem.summary.scores[self.work]
        found = self.problem.round(self._point())
        return found.value / self.problem.rows, self._scale**2 * found.scores[self._places]

    def _point(self) -> Point:
        places = self._places[self.active]
        order = np.argsort(places)
        return Point(self.problem.work, places[order], self._scale * self._x[order])

    def hessian(self, groups: Index) -> Array:
        # The solver asks for curvature only where it has decided to stay.
        point = self._point()
        self.problem.note(point)
        self.problem.rounds += 1
        places = self._places[groups]
        order = np.argsort(places)
        if np.array_equal(places[order], point.active):
            H = self.problem.round(point).hessian
        else:
            args = (point.work, point.active, point.w, places[order])
            H = total(self.problem.ask("hessian", args, self.problem.stage))
        back = np.argsort(order)
        return self._scale**3 * H[np.ix_(back, back)]

    def residual(self) -> Residual:
        here, rows = self.work[self.active], self.problem.rows
        norms = np.zeros(self.p)
        if not here.size:
            scores = self._scale**2 * self.problem.summary.scores
            return Residual(scores, norms, self.energy, self.energy)
        point = self._point()
        self.problem.note(point)
        found = self.problem.certificate(point)
        self._certified: tuple[Point, Certificate] = point, found
        norms[point.groups] = np.sqrt(found.norms)
        scores = self._scale**2 * found.scores
        return Residual(scores, norms, found.square / rows, found.inner / rows)

    def misfit(self, lam: Array) -> Array:
        """An upper bound: z is beta / x up to rounding, and that is parallel to beta."""
        if not self.active.size:
            return np.empty(0)
        point, found = self._certified
        along = np.abs(self._scale * np.sqrt(found.norms) / point.w - lam[point.groups])
        off = along + self._scale * np.sqrt(found.misfit)
        return off[np.argsort(np.argsort(self._places[self.active]))]

    def beta(self) -> None:
        """Coefficients stay with the shards."""
        return

    def residuals(self) -> list[Array]:
        """Residuals stay with the shards."""
        return []
