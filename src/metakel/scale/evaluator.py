r"""Sums over tasks: what learning asks of data, and the form in which the solver reads them.

Learning never needs an observation, a coefficient or a residual of a single task. It needs the
sums that `TaskSums` lists, and adds them up over everybody who holds tasks. `metakel.scale.Shard`
computes them from files or from memory. Any object with these methods can take its place, e.g. one
that forwards every call to the owner of the data, who answers with sums only.

The sums know neither lambda nor the number N of all observations. With weights
:math:`w_j = \tfrac{2}{N} x_j`, where :math:`x_j = \eta_j / \lambda_j`, the residual of a task is
:math:`r_s = (I + \sum_j w_j K_{sj})^{-1} y_s` whatever the other tasks are. So a sum stays valid
when tasks are added, and no holder has to know the others. `ShardedEvaluator` puts the powers of
2/N back.

Notation: :math:`\Phi_j` has the features of group j in its columns, :math:`K_j = \Phi_j\Phi_j^\top`
and :math:`\beta_j = w_j \Phi_j^\top r`, for one task; sums run over tasks. With ``loss="tasks"``,
:math:`\Phi` and y of a task with n observations are divided by :math:`\sqrt n` first.

A round of the solver sends the active groups and their weights to every shard. It gets back one
number, a score for every group of the working set, and the Hessian of the active groups. Answers
are added in the order of the shards, so they do not depend on who answered first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.grouplasso.newton import Residual, independent_weights
from metakel.learn.problem import LeastSquares

if TYPE_CHECKING:
    from metakel.scale.problem import ShardedProblem

Index = NDArray[np.intp]
SAME_WEIGHTS = 1e-13  # relative difference of weights that are equal up to rounding


@dataclass(frozen=True, eq=False)
class WeightPoint:
    """Weights at which sums are asked for.

    Parameters
    ----------
    work : (q,) array
        The working set: groups whose scores are wanted. All other groups have weight zero.
    active : (a,) array
        Increasing places in ``work`` of the groups with positive weight.
    w : (a,) array
        Their weights.
    """

    work: Index
    active: Index
    w: Array

    @property
    def groups(self) -> Index:
        """(a,) the active groups."""
        return self.work[self.active]

    def same(self, other: WeightPoint) -> bool:
        """Whether both points are equal up to rounding."""
        return (
            np.array_equal(self.work, other.work)
            and np.array_equal(self.active, other.active)
            and np.allclose(self.w, other.w, rtol=SAME_WEIGHTS, atol=0.0)
        )


@dataclass(frozen=True, eq=False)
class ShardSums:
    """Sums over tasks, which are added up field by field over blocks and shards."""

    def __add__(self, other: Self) -> Self:
        names = [field.name for field in fields(self)]
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, eq=False)
class Summary(ShardSums):
    """What is known before any weight is chosen.

    Eigenvalues v are those of c K_j for every task, with c = 1 for ``loss="points"`` and c = 1/n
    for ``loss="tasks"``, as the lambda rules need them (`metakel.grouplasso.Problem.spectra`).
    """

    energy: float  # ||y||^2
    scores: Array  # (p,) ||Phi_j' y||^2
    gram_trace: Array  # (p,) sum of the traces of K_j
    counts: Array  # (p,) number of eigenvalues v
    top: Array  # (p,) largest v
    gram_top: Array  # (p,) largest eigenvalue of K_j
    trace: Array  # (p,) sum of v
    squares: Array  # (p,) sum of v^2

    def __add__(self, other: Summary) -> Summary:
        top = np.maximum(self.top, other.top)
        gram_top = np.maximum(self.gram_top, other.gram_top)
        return replace(super().__add__(other), top=top, gram_top=gram_top)


@dataclass(frozen=True, eq=False)
class Evaluation(ShardSums):
    r"""The data part of the objective, y'r, and its derivatives in w.

    The Hessian is half of the second derivative:
    :math:`H_{ij} = r^\top K_i (I + \sum_l w_l K_l)^{-1} K_j r`.
    """

    value: float  # y'r
    scores: Array  # (q,) ||Phi_j' r||^2 over the working set: minus the gradient
    hessian: Array  # (a, a) over the active groups


@dataclass(frozen=True, eq=False)
class ShardCertificate(ShardSums):
    """What the duality gap needs, from residuals of the observations themselves."""

    square: float  # ||r||^2
    inner: float  # y'r
    scores: Array  # (p,) ||Phi_j' r||^2
    norms: Array  # (a,) ||beta_j||^2
    misfit: Array  # (a,) ||Phi_j' r - beta_j / w_j||^2, zero up to rounding


@dataclass(frozen=True, eq=False)
class LocalCertificate(ShardSums):
    """A certificate as far as the working set goes, and how far the residuals have moved."""

    certificate: ShardCertificate  # its scores are (q,)
    distance: float  # ||r - r_previous||^2


class TaskSums(Protocol):
    """Whoever holds tasks: every question that learning asks, answered by sums over them.

    An answer depends on the arguments alone. Data that cannot be read raise a `ShardError`.
    """

    def summarize(self) -> Summary:
        """What is known before any weight is chosen. Asked first, and once."""
        ...

    def evaluate(self, point: WeightPoint) -> Evaluation:
        """Value, gradient and Hessian at a point: one round of the solver."""
        ...

    def hessian(self, point: WeightPoint, groups: Index) -> Array:
        """(g, g) the Hessian over these places in ``point.work``, which contain the active ones."""
        ...

    def certify(self, point: WeightPoint) -> ShardCertificate:
        """What the duality gap needs, from the observations themselves."""
        ...

    def recertify(self, point: WeightPoint, previous: WeightPoint) -> LocalCertificate:
        """The same from statistics of the working set, which both points share."""
        ...

    def log_det(self, rho: Array) -> Array:
        """(p,) sums of log(1 + v / rho_j) over the eigenvalues v of group j."""
        ...

    def tilted(self, top: Array, z: Array) -> Array:
        """(2, p) sums of `metakel.learn.rules.tilted` over v / top_j at z_j."""
        ...

    def least_squares(self, groups: Index) -> LeastSquares:
        """Sums over the least-squares fits of every task on the columns of these groups."""
        ...


class Addable(Protocol):
    """`ShardSums`, or an array of them."""

    def __add__(self, other: Self, /) -> Self: ...


Sum = TypeVar("Sum", bound=Addable)


def total(parts: Iterable[Sum]) -> Sum:
    """The sum, in the given order: the same floating-point number every time."""
    return reduce(add, parts)


OVERLAP = 0.3  # kernels overlap, so each needs less weight than it would take alone


class ShardedEvaluator:
    """`metakel.grouplasso.newton.Evaluator` over the shards of a problem.

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


class ShardedSpectrum:
    """`metakel.learn.rules.GroupSpectra` over the shards of a problem."""

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
