r"""What learning asks of data: sums over tasks.

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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.learn.refit import LeastSquares

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
        """(2, p) sums of `metakel.learn.rule_spectrum.tilted` over v / top_j at z_j."""
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
