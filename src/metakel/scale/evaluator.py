"""Sums of shards in the form in which the solver and the lambda rules read them.

A round of the solver sends the active groups and their weights to every shard. It gets back one
number, a score for every group of the working set, and the Hessian of the active groups. Answers
are added in the order of the shards, so they do not depend on who answered first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso.evaluator import Residual, independent_weights
from metakel.scale.sums import Index, ShardCertificate, WeightPoint

if TYPE_CHECKING:
    from metakel.scale.problem import ShardedProblem

OVERLAP = 0.3  # kernels overlap, so each needs less weight than it would take alone


class ShardedEvaluator:
    """`metakel.grouplasso.evaluator.Evaluator` over the shards of a problem.

    Its working set may be any part of what the shards have statistics of, in any order.
    """

    def __init__(self, problem: ShardedProblem) -> None:
        self.problem = problem
        self.p = problem.p
        # With features, a round reads statistics of the working set, a certificate all points.
        self.rough = problem.kernel_mode
        self.energy = problem.summary.energy / problem.divisor
        self.work: Index = np.empty(0, np.intp)
        self.active: Index = np.empty(0, np.intp)
        self.curvature = np.empty(0)
        self._scale = 2 / problem.divisor
        self._x = np.empty(0)
        self._places: Index = np.empty(0, np.intp)  # of our working set in that of the shards

    def extend(self, groups: Index) -> None:
        self.work = np.concatenate([self.work, groups])
        self._places = self.problem.extend_work(self.work)
        self.curvature = self._scale / self.problem.m * self.problem.summary.gram_trace[self.work]

    def start(self, lam: Array) -> Array:
        scores = self._scale**2 * self.problem.summary.scores[self.work]
        guess = independent_weights(scores, lam, self.curvature)
        return OVERLAP * guess if self.problem.kernel_mode else guess

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        self.active, self._x = active, x
        if not active.size:
            return self.energy, self._scale**2 * self.problem.summary.scores[self.work]
        found = self.problem.evaluate(self._point())
        return found.value / self.problem.divisor, self._scale**2 * found.scores[self._places]

    def _point(self) -> WeightPoint:
        places = self._places[self.active]
        order = np.argsort(places)
        return WeightPoint(self.problem.work, places[order], self._scale * self._x[order])

    def hessian(self, groups: Index) -> Array:
        # The solver asks for curvature only at points that it has accepted.
        point = self._point()
        self.problem.save(point)
        self.problem.rounds += 1
        places = self._places[groups]
        order = np.argsort(places)
        if np.array_equal(places[order], point.active):
            H = self.problem.evaluate(point).hessian
        else:
            H = self.problem.ask("hessian", (point, places[order]), self.problem.stage)
        back = np.argsort(order)
        return self._scale**3 * H[np.ix_(back, back)]

    def residual(self) -> Residual:
        norms = np.zeros(self.p)
        if not self.active.size:
            scores = self._scale**2 * self.problem.summary.scores
            return Residual(scores, norms, self.energy, self.energy)
        point = self._point()
        self.problem.save(point)
        found = self.problem.certify(point)
        self._certified: tuple[WeightPoint, ShardCertificate] = point, found
        norms[point.groups] = np.sqrt(found.norms)
        scores, divisor = self._scale**2 * found.scores, self.problem.divisor
        return Residual(scores, norms, found.square / divisor, found.inner / divisor)

    def misfit(self, lam: Array) -> Array:
        """An upper bound: z is beta / x up to rounding, and that is parallel to beta."""
        if not self.active.size:
            return np.empty(0)
        point, found = self._certified
        along = np.abs(self._scale * np.sqrt(found.norms) / point.w - lam[point.groups])
        misfit = along + self._scale * np.sqrt(found.misfit)
        return misfit[np.argsort(np.argsort(self._places[self.active]))]

    def beta(self) -> None:
        """None: coefficients stay with the shards."""
        return

    def residuals(self) -> list[Array]:
        """Empty: residuals stay with the shards."""
        return []


class ShardedSpectrum:
    """`metakel.learn.rule_spectrum.GroupSpectra` over the shards of a problem."""

    def __init__(self, problem: ShardedProblem) -> None:
        summary = problem.summary
        self._problem = problem
        self._unit = problem.weight_scale**2  # shards leave it out of their eigenvalues
        self.counts = summary.counts
        self.top = self._unit * summary.top
        self.trace = self._unit * summary.trace
        self.frobenius = self._unit * np.sqrt(summary.squares)

    def log_det(self, rho: Array) -> Array:
        """(p,) sums of log(1 + v / rho_j)."""
        sums: Array = self._problem.ask("log_det", (rho / self._unit,), "lambda")
        return sums

    def tilted(self, top: Array, z: Array) -> Array:
        """(2, p) sums that the Chernoff bound minimises over z."""
        sums: Array = self._problem.ask("tilted", (top / self._unit, z), "lambda")
        return sums
