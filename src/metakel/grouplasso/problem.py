r"""The Meta-KeL problem in arrays (Eqs. 7, 8, A.2 and A.3): the data and the objective.

Notation, with shapes
---------------------
m tasks, task s with n_s observations, N in all; p groups, group j of d_j columns, d in all.

=========  ==============  ===========================================================
Phi        (m, d, n)       features of a batch of tasks, one row per feature
K          (p, m, n, n)    or one Gram matrix per group and task instead
y          (m, n)          observations
beta       (m, d)          coefficients; group j is a set of columns
z          (m, d)          2/N Phi (y - Phi' beta): minus the gradient of the loss
lam        (p,)            one lambda per group
=========  ==============  ===========================================================

.. math:: P(\beta) = \frac1N \|y - \Phi\beta\|^2 + \sum_j \lambda_j \|\beta^{(j)}\|_2

The solver reads the data only through sums over tasks (`Evaluator`). With
x_j = eta_j / lam_j and K_s(x) = sum_j x_j Phi_sj' Phi_sj, eliminating beta from Eq. 7 leaves

.. math:: g(x) = \frac1N \sum_s y_s^\top r_s + \tfrac12 \sum_j \lambda_j^2 x_j, \qquad
          r_s = \left(I + \tfrac2N K_s(x)\right)^{-1} y_s,

a convex function of p numbers whose data part does not depend on lambda. Here r is the residual of
beta^(j) = x_j z^(j) with z = (2/N) Phi r, so that dg/dx_j = (lam_j^2 - ||z^(j)||^2) / 2.

The tasks are coupled only through the p group norms, so we optimise those p numbers directly with
projected Newton (`newton`). One iteration costs m small factorisations: of the Gram matrices of the
active columns, or of n x n matrices where these are smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.grouplasso.batch import (
    Index,
    Loss,
    TaskBatch,
    as_vector,
    check_eigenvalues,
    check_finite,
    check_symmetry,
    group_sizes,
    group_starts,
    group_sums,
    similar_sizes,
    sizes_and_weights,
)


@dataclass(frozen=True)
class Residual:
    """The quantities of the duality gap, recomputed from the raw data."""

    scores: Array  # (p,) squared norms of z^(j)
    norms: Array  # (p,) norms of beta^(j)
    square: float  # ||r||^2 / N
    inner: float  # y'r / N


class Evaluator(Protocol):
    """Sums over tasks at a current point x, for groups of a growing working set.

    ``work`` holds the groups of the working set. ``active``, ``curvature`` and the arguments of
    `at` and `hessian` refer to groups by their position in it. A new evaluator is at x = 0 with an
    empty working set.
    """

    p: int
    energy: float  # ||y||^2 / N
    rough: bool  # whether iterations are so costly that early subproblems are solved loosely
    work: Index
    active: Index  # positions of the groups with x > 0 at the current point
    curvature: Array  # (|work|,) trace of each group's scaled Gram matrix, averaged over tasks

    def extend(self, groups: Index) -> None:
        """Add groups to the working set; their weight at the current point is zero."""
        ...

    def start(self, lam: Array) -> Array:
        """Initial guess of x over the working set."""
        ...

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        """Move to x > 0 on ``active``: y'r/N and the squared norms of z over the working set."""
        ...

    def hessian(self, groups: Index) -> Array:
        """Hessian of g at the current point, over ``groups``.

        They must contain the active ones, and may contain groups of weight zero.
        """
        ...

    def residual(self) -> Residual:
        """The quantities of the duality gap at the current point, from raw residuals."""
        ...

    def misfit(self, lam: Array) -> Array:
        """||z^(j) - lam_j beta^(j)/||beta^(j)|| || of the active groups, from raw data (B.6).

        Valid after `residual`.
        """
        ...

    def beta(self) -> Array | None:
        """(m, d) coefficients at the current point; None in kernel mode."""
        ...

    def residuals(self) -> list[Array]:
        """y - f where `residual` was last called: one padded (m_b, n_b) array per batch."""
        ...


def independent_weights(scores: Array, lam: Array, curvature: Array) -> Array:
    """The weight of each group if it were the only one, for tasks of equal curvature."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scores > lam * lam, (np.sqrt(scores) / lam - 1) / curvature, 0.0)


class ProblemSize(Protocol):
    """The sizes of a problem: m tasks, p groups, ``total`` observations."""

    @property
    def m(self) -> int: ...
    @property
    def p(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def dims(self) -> Sequence[int | None]: ...
    @property
    def sizes(self) -> Index: ...
    @property
    def task_weights(self) -> Array: ...


class RemoteProblem(ProblemSize, Protocol):
    """A problem whose tasks are stored elsewhere; only sums over the tasks are available."""

    @property
    def batches(self) -> tuple[TaskBatch, ...]:
        """Raises: coefficients and residuals stay where the tasks are."""
        ...

    def evaluator(self) -> Evaluator:
        """Computes the sums over tasks that the solver needs."""
        ...

    def group_scores(self) -> Array:
        """(p,) squared norms of every group's correlation with the observations."""
        ...


@dataclass(frozen=True, eq=False)
class Problem:
    """Past tasks as arrays, with one group of features per base kernel.

    Use `from_arrays`, `from_tasks` or `from_grams` to make one.
    """

    batches: tuple[TaskBatch, ...]
    dims: tuple[int | None, ...]
    sizes: Index
    task_weights: Array
    starts: Index = field(repr=False)

    @classmethod
    def from_arrays(
        cls, Phi: ArrayLike, y: ArrayLike, groups: Sequence[slice] | None = None
    ) -> Problem:
        """Tasks of equal size.

        Parameters
        ----------
        Phi : (m, n, d) array
            Not copied, whatever its layout; fastest as a transposed view of (m, d, n) memory.
        y : (m, n) array
            Not copied either: do not change the arrays while the problem is in use.
        groups : sequence of p slices, optional
            They partition the d columns in order. None means one column per group.
        """
        features, values = np.asarray(Phi, np.float64), np.asarray(y, np.float64)
        if features.ndim != 3 or values.shape != features.shape[:2]:
            raise ShapeError(
                f"Phi has shape {features.shape} and y {values.shape}; "
                "expected (m, n, d) and (m, n)"
            )
        m, n, d = features.shape
        if features.size == 0:
            raise InputError(f"Phi has shape {features.shape}; expected no empty dimension")
        check_finite(values, "y")  # Phi may be large: its first products are checked instead
        batch = TaskBatch(np.arange(m), values, Phi=features.transpose(0, 2, 1))
        return cls._build((batch,), group_sizes(groups, d), np.full(m, n), np.ones(m))

    @classmethod
    def from_tasks(
        cls,
        Phi: Sequence[ArrayLike],
        y: Sequence[ArrayLike],
        groups: Sequence[slice] | None = None,
        *,
        loss: Loss = "points",
    ) -> Problem:
        """Tasks of any size: one (n_s, d) array and one (n_s,) vector or (n_s, 1) column each.

        ``loss="points"`` gives every observation the same weight (1/N, with N the number of
        observations of all tasks); ``loss="tasks"`` gives every task the same weight (the mean
        over tasks of each task's mean).
        """
        features = [np.asarray(F, np.float64) for F in Phi]
        values = [as_vector(v) for v in y]
        sizes, weights = sizes_and_weights(features, values, loss, row_axis=0)
        d = features[0].shape[1]
        batches = []
        for tasks in similar_sizes(sizes):
            width = int(sizes[tasks].max())
            stacked = np.zeros((tasks.size, d, width))
            padded = np.zeros((tasks.size, width))
            for i, s in enumerate(tasks):
                if features[s].ndim != 2 or features[s].shape[1] != d:
                    raise ShapeError(
                        f"task {s}: Phi has shape {features[s].shape}; expected (n_s, {d})"
                    )
                root = np.sqrt(weights[s])
                stacked[i, :, : sizes[s]] = root * features[s].T
                padded[i, : sizes[s]] = root * values[s]
            check_finite(stacked, "Phi")
            check_finite(padded, "y")
            batches.append(TaskBatch(tasks, padded, Phi=stacked))
        return cls._build(tuple(batches), group_sizes(groups, d), sizes, weights)

    @classmethod
    def from_grams(
        cls,
        K: Sequence[ArrayLike] | Array,
        y: Sequence[ArrayLike] | Array,
        *,
        loss: Loss = "points",
    ) -> Problem:
        """One (p, n_s, n_s) stack of Gram matrices per task; the rest as in `from_tasks`."""
        grams = [np.asarray(k, np.float64) for k in K]
        values = [as_vector(v) for v in y]
        sizes, weights = sizes_and_weights(grams, values, loss, row_axis=1)
        p = grams[0].shape[0]
        batches = []
        for tasks in similar_sizes(sizes):
            width = int(sizes[tasks].max())
            stacked = np.zeros((p, tasks.size, width, width))
            padded = np.zeros((tasks.size, width))
            for i, s in enumerate(tasks):
                n = sizes[s]
                if grams[s].shape != (p, n, n):
                    raise ShapeError(
                        f"task {s}: K has shape {grams[s].shape}; expected ({p}, {n}, {n})"
                    )
                np.multiply(grams[s], weights[s], out=stacked[:, i, :n, :n])
                padded[i, :n] = np.sqrt(weights[s]) * values[s]
            check_finite(stacked, "K")
            check_symmetry(stacked, tasks)
            check_finite(padded, "y")
            batches.append(TaskBatch(tasks, padded, K=stacked))
        return cls._build(tuple(batches), (None,) * p, sizes, weights)

    @classmethod
    def _build(
        cls,
        batches: tuple[TaskBatch, ...],
        dims: tuple[int | None, ...],
        sizes: Index,
        weights: Array,
    ) -> Problem:
        return cls(batches, dims, sizes, weights, group_starts([k or 0 for k in dims]))

    def __repr__(self) -> str:
        few, many = self.sizes.min(), self.sizes.max()
        points = f"{few}" if few == many else f"{few} to {many}"
        of = "Gram matrices" if self.kernel_mode else f"{self.d} columns"
        return f"Problem({self.m} tasks of {points} observations, {self.p} groups of {of})"

    @property
    def m(self) -> int:
        """Number of tasks."""
        return self.sizes.size

    @property
    def p(self) -> int:
        """Number of groups."""
        return len(self.dims)

    @property
    def d(self) -> int | None:
        """Number of columns; None in kernel mode."""
        return None if self.kernel_mode else int(self.starts[-1])

    @property
    def kernel_mode(self) -> bool:
        """Whether tasks are given by Gram matrices instead of features."""
        return self.batches[0].K is not None

    @cached_property
    def total(self) -> int:
        """N, the number of observations of all tasks together."""
        return int(self.sizes.sum())

    @cached_property
    def energy(self) -> float:
        """Mean square of y, with the weights of the loss; duality gaps are relative to it."""
        return float(sum(np.vdot(b.y, b.y) for b in self.batches)) / self.total

    def columns(self, j: int) -> slice:
        """The columns of group j."""
        return slice(int(self.starts[j]), int(self.starts[j + 1]))

    def residuals(self, beta: Array) -> list[Array]:
        """y - Phi' beta, one padded (m_b, n_b) array per batch, for beta (m, d)."""
        out = []
        for batch in self.batches:
            assert batch.Phi is not None
            out.append(batch.y - np.matmul(beta[batch.tasks][:, None], batch.Phi)[:, 0])
        return out

    def spectra(self) -> list[Array]:
        """Eigenvalues of every task's Gram matrix: p arrays (m, r_j), one per group.

        They are scaled for the noise event of `metakel.learn.rules`: with ``loss="tasks"`` the
        score of a task contains its weight twice, and so do its eigenvalues.
        """
        rows: list[list[Array]] = [[] for _ in range(self.p)]
        order = np.concatenate([b.tasks for b in self.batches])
        for batch in self.batches:
            # The data of the batch already contain one factor of the weight.
            weight = self.task_weights[batch.tasks][:, None]
            for j in range(self.p):
                rows[j].append(weight * self._eigenvalues(batch, j))
        width = [max(part.shape[1] for part in parts) for parts in rows]
        out = []
        for parts, r in zip(rows, width, strict=True):
            full = np.zeros((self.m, r))
            stop = 0
            for part in parts:
                full[order[stop : stop + len(part)], : part.shape[1]] = part
                stop += len(part)
            out.append(full)
        return out

    def _eigenvalues(self, batch: TaskBatch, j: int) -> Array:
        if batch.K is not None:
            gram = batch.K[j]
        else:
            assert batch.Phi is not None
            F = batch.Phi[:, self.columns(j), :]
            turned = F.transpose(0, 2, 1)
            gram = F @ turned if F.shape[1] <= F.shape[2] else turned @ F
        if gram.shape[-1] == 1:
            values: Array = gram[..., 0]
        else:
            values = np.linalg.eigvalsh(gram).astype(np.float64, copy=False)
        if batch.K is not None:
            check_eigenvalues(values, j, batch.tasks)
        return np.maximum(values, 0.0)

    def energies(self, v: Sequence[ArrayLike]) -> Array:
        """(p,) squared norms, over all tasks, of every group's correlation with ``v``.

        ``v`` holds one (n_s,) vector per task, in the units of the raw observations.
        """
        total = np.zeros(self.p)
        for batch in self.batches:
            padded = np.zeros_like(batch.y)
            for i, s in enumerate(batch.tasks):
                padded[i, : self.sizes[s]] = np.sqrt(self.task_weights[s]) * np.asarray(v[s])
            total += group_energies(self, batch, padded)
        return total


def group_energies(problem: Problem, batch: TaskBatch, r: Array) -> Array:
    """(p,) squared norms, over the tasks of one batch, of every group's correlation with r."""
    if batch.K is not None:
        Kr = np.matmul(batch.K, r[:, :, None])[..., 0]  # (p, m, n)
        forms: Array = np.einsum("psn,sn->p", Kr, r)
        return np.maximum(forms, 0.0)
    assert batch.Phi is not None
    z = np.matmul(batch.Phi, r[:, :, None])[..., 0]  # (m, d)
    return group_sums(np.einsum("sd,sd->d", z, z), problem.starts)


def check_problem(problem: object) -> None:
    """Raise where the argument is not a problem, e.g. the history it is made from."""
    if not isinstance(problem, Problem) and not hasattr(problem, "group_scores"):
        raise InputError(
            f"problem is a {type(problem).__name__}; expected a Problem, made by "
            "Problem.from_arrays, from_tasks or from_grams (metakel.learn.as_problem(history, "
            "base) makes it from a History)"
        )


def lambda_max(problem: Problem | RemoteProblem, weights: ArrayLike | None = None) -> float:
    """Smallest lambda at which every coefficient is zero: max_j (2/N) ||(Phi'y)^(j)|| / w_j."""
    check_problem(problem)
    if isinstance(problem, Problem):
        scores = np.zeros(problem.p)
        for batch in problem.batches:
            scores += group_energies(problem, batch, batch.y)
    else:
        scores = problem.group_scores()
    if not np.isfinite(scores).all():
        j = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise InputError(f"the features of group {j} hold nan or infinite numbers")
    norms = 2 / problem.total * np.sqrt(scores)
    return float(np.max(norms if weights is None else norms / np.asarray(weights)))
