r"""What shards report: sums over their tasks, in units that know neither N nor lambda.

With w_j = (2/N) x_j the residual of a task is :math:`r_s = (I + \sum_j w_j K_{sj})^{-1} y_s`
whatever the other tasks are, so these sums stay valid when tasks are added. The evaluator puts the
powers of 2/N back (`evaluator`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Protocol, Self, TypeVar

import numpy as np

from metakel._arrays import Array


@dataclass(frozen=True, eq=False)
class Summary:
    """What is known of a shard before any weight: observations, scores at zero, eigenvalues."""

    energy: float  # ||y||^2
    scores: Array  # (p,) ||Phi_j' y||^2
    sizes: Array  # (p,) sums of the traces of Phi_j' Phi_j
    counts: Array  # (p,) how many eigenvalues there are
    top: Array  # (p,) the largest eigenvalue
    widest: (
        Array  # (p,) the largest eigenvalue of Phi_j Phi_j', without the second weight of the loss
    )
    trace: Array  # (p,)
    squares: Array  # (p,) sums of squared eigenvalues

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.energy + other.energy,
            self.scores + other.scores,
            self.sizes + other.sizes,
            self.counts + other.counts,
            np.maximum(self.top, other.top),
            np.maximum(self.widest, other.widest),
            self.trace + other.trace,
            self.squares + other.squares,
        )


@dataclass(frozen=True, eq=False)
class Round:
    """One point x: y'r, ||Phi_j' r||^2 over the working set, and the Hessian of active groups."""

    value: float
    scores: Array
    hessian: Array

    def __add__(self, other: Round) -> Round:
        return Round(
            self.value + other.value, self.scores + other.scores, self.hessian + other.hessian
        )


@dataclass(frozen=True, eq=False)
class Certificate:
    """From raw residuals: ||r||^2, y'r, all scores; of active groups the squared norms of beta and
    of Phi_j' r - beta_j / w_j, which is zero up to rounding."""

    square: float
    inner: float
    scores: Array
    norms: Array
    misfit: Array

    def __add__(self, other: Certificate) -> Certificate:
        return Certificate(
            self.square + other.square,
            self.inner + other.inner,
            self.scores + other.scores,
            self.norms + other.norms,
            self.misfit + other.misfit,
        )


@dataclass(frozen=True, eq=False)
class Move:
    """A certificate from statistics of the working set alone, and how far the residuals moved."""

    near: Certificate  # its scores are those of the working set
    distance: float  # ||r - r_0||^2

    def __add__(self, other: Move) -> Move:
        return Move(self.near + other.near, self.distance + other.distance)


class Addable(Protocol):
    """Anything that is added up over blocks and shards."""

    def __add__(self, other: Self, /) -> Self: ...


Sum = TypeVar("Sum", bound=Addable)


def total(parts: list[Sum]) -> Sum:
    """The sum, in the order of the list: the same floating-point number every time."""
    return reduce(add, parts)
