"""The group lasso (Eq. 8) of a history: options, checks of new tasks, the refit on a selection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, is_number
from metakel.data import History, Task
from metakel.data.history import repeated
from metakel.errors import InputError, ShapeError
from metakel.grouplasso import Problem, Solution
from metakel.grouplasso.problem import columns_of
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn.rules import RULES

ENOUGH_FREEDOM = 20  # residual degrees of freedom, for an estimate of the noise


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Sums over the least-squares fits of every task on k columns."""

    squares: Array  # (k,) squared coefficients
    variances: Array  # (k,) variances of the coefficients, relative to the noise variance
    rss: float  # residual sum of squares of the tasks that these columns do not fit exactly
    free: int  # residual degrees of freedom of those tasks: observations minus rank


def least_squares(problem: Problem, active: NDArray[np.intp]) -> LeastSquares:
    """Fit every task on the columns of the active groups; minimum norm if there are too many."""
    picked = columns_of(active, problem.starts)
    squares, variances = np.zeros(picked.size), np.zeros(picked.size)
    rss, free = 0.0, 0
    for batch in problem.batches:
        assert batch.Phi is not None
        Phi = np.take(batch.Phi, picked, axis=1).transpose(0, 2, 1)  # (m, n, k)
        # The weights of the loss cancel in b, but not in its variance.
        inverse = np.linalg.pinv(Phi, rcond=1e-10)  # (m, k, n)
        b = np.matmul(inverse, batch.y[:, :, None])  # (m, k, 1)
        squares += np.einsum("ski,ski->k", b, b)
        weight = problem.task_weights[batch.tasks]
        variances += np.einsum("s,skn,skn->k", weight, inverse, inverse)
        r = batch.y - np.matmul(Phi, b)[..., 0]
        rank = np.rint(np.einsum("snk,skn->s", Phi, inverse)).astype(int)
        spare = problem.sizes[batch.tasks] - rank
        used = spare > 0
        rss += float(np.sum(r[used] ** 2 / weight[used, None]))
        free += int(spare[used].sum())
    return LeastSquares(squares, variances, rss, free)


def refitted_weights(problem: Problem, active: NDArray[np.intp], noise_std: float) -> Array:
    r"""(p,) weights from a least-squares fit of every task on the selected groups.

    .. math:: \check\eta_j = \sqrt{\max(0, \|\check b^{(j)}\|^2 - \sigma^2 \operatorname{tr} C_j)},

    where C_j is the covariance of the coefficients divided by sigma^2, so that the expected
    contribution of the noise is subtracted. Tasks with fewer points than selected columns get the
    fit of minimum norm.
    """
    if problem.kernel_mode:
        raise InputError("refit needs feature kernels; Gram matrices have no coefficients")
    fit = least_squares(problem, active)
    out, stop = np.zeros(problem.p), 0
    for j in active:
        cols = problem.columns(int(j))
        own = slice(stop, stop := stop + cols.stop - cols.start)
        out[j] = sqrt(max(0.0, fit.squares[own].sum() - noise_std**2 * fit.variances[own].sum()))
    return out


def noise_from_all_features(problem: Problem) -> float | None:
    """Noise level from least squares on all base kernels, whichever of them are selected later.

    A kernel that is missed is not counted as noise. None for kernels without features, and where
    fewer than 20 degrees of freedom are left over all tasks (a relative error of 16 %).
    """
    if problem.kernel_mode:
        return None
    fit = least_squares(problem, np.arange(problem.p))
    return sqrt(fit.rss / fit.free) if fit.free >= ENOUGH_FREEDOM else None


def estimate_noise_std(problem: Problem, solution: Solution) -> float:
    """Noise level from the residuals of least squares on the selected groups, free of shrinkage.

    In kernel mode, or without residual degrees of freedom, it is the root mean square of the
    lasso's own residuals (with the weights of the loss).
    """
    if not problem.kernel_mode:
        fit = least_squares(problem, solution.active)
        if fit.free:
            return sqrt(fit.rss / fit.free)
    return sqrt(solution.loss)


def root_mean_square(problem: Problem) -> float:
    """Root mean square of the observations, with the weights of the loss."""
    return sqrt(problem.energy)


DEFAULT, PIVOTAL, CV = "self-normalized", "square-root", "cv"

Scale = Literal["sum", "c1", "raw"]
Loss = Literal["points", "tasks"]


@dataclass(frozen=True)
class EtaWeights:
    """The paper's weights eta of Proposition 4.1, for ``learn_kernel(..., weights=EtaWeights())``.

    Parameters
    ----------
    scale : "sum", "c1" or "raw"
        Divided by their sum, by ``beta_min``, or as they are.
    beta_min : float, optional
        With "c1": the c_1 of Eq. 9; the smallest selected eta where it is not given.
    refit : bool
        Weights from a least-squares refit, free of the lasso's shrinkage.
    """

    scale: Scale = "sum"
    beta_min: float | None = None
    refit: bool = False

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale):
            raise InputError(f"scale is {self.scale!r}; expected 'sum', 'c1' or 'raw'")
        if self.beta_min is not None and not self.beta_min > 0:
            raise InputError(f"beta_min is {self.beta_min}; expected a positive number")

    def __str__(self) -> str:
        return "eta"

    def kernel(self, base: KernelDictionary, eta: Array) -> KernelSum:
        """The sum of base kernels with these weights (Eq. 9)."""
        if not eta.any():  # a refit that finds nothing above the noise: the empty kernel
            return KernelSum(base, eta)
        divisors = {"sum": eta.sum(), "c1": self.beta_min or eta[eta > 0].min(), "raw": 1.0}
        return KernelSum(base, eta / divisors[self.scale])


Weights = Literal["uniform"] | EtaWeights


@dataclass(frozen=True, eq=False)
class LearnOptions:
    """The arguments of `learn_kernel`, to learn again in the same way."""

    noise_std: float | None
    lam: str | ArrayLike
    strength: float
    delta: float
    weights: Weights
    loss: Loss
    tol: float

    def __post_init__(self) -> None:
        lam, noise_std = self.lam, self.noise_std
        # Numbers are checked where the number of kernels is known.
        if lam is None or (isinstance(lam, str) and lam not in (*RULES, PIVOTAL, CV)):
            found = "lam is None" if lam is None else f"unknown lambda rule {lam!r}"
            raise InputError(
                f"{found}; expected a positive number, one for every base kernel, or one of the "
                f"known rules: {', '.join(RULES)} (these need noise_std), {PIVOTAL}, {CV}"
            )
        if noise_std is None and isinstance(lam, str) and lam not in (DEFAULT, PIVOTAL, CV):
            raise InputError(
                f"lambda rule {lam!r} needs noise_std; expected {PIVOTAL!r} or {CV!r} without it"
            )
        if noise_std is not None and not (np.isfinite(noise_std) and noise_std > 0):
            raise InputError(f"noise_std is {noise_std}; expected a positive number, or None")
        if not (is_number(self.strength) and 0 < self.strength <= 1):
            raise InputError(
                f"strength is {self.strength!r}; expected a number in (0, 1]: 1 is the lambda of "
                "the rule, 0.5 half of it"
            )
        if self.weights != "uniform" and not isinstance(self.weights, EtaWeights):
            raise InputError(f"weights is {self.weights!r}; expected 'uniform' or EtaWeights()")

    @property
    def refit(self) -> bool:
        """Whether weights come from a refit."""
        return self.weights != "uniform" and self.weights.refit

    def kernel(self, base: KernelDictionary, active: NDArray[np.intp], eta: Array) -> KernelSum:
        """The sum of the selected base kernels, weighed as asked (Eq. 9)."""
        if self.weights == "uniform" or not active.size:
            return KernelSum.uniform(base, active=active)
        return self.weights.kernel(base, eta)


class ScannedTasks(Protocol):
    """Tasks on disk, with the base kernels whose factors were computed: `metakel.scale.Scan`."""

    @property
    def m(self) -> int: ...
    @property
    def d0(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def base(self) -> KernelDictionary | None: ...
    def as_problem(self) -> Problem: ...
    def joined(self, new: Any) -> Self: ...


def as_problem(
    history: History | ScannedTasks, base: KernelDictionary, loss: Loss = "points"
) -> Problem:
    """Eq. 8 for a history: with features if every base kernel has them, else with Gram matrices."""
    if not isinstance(history, History):
        if loss != "points":
            raise InputError(f"loss is {loss!r}; expected 'points' for tasks on disk")
        return history.as_problem()
    values = [task.y for task in history]
    if not base.finite:
        return Problem.from_grams([base.grams(task.X) for task in history], values, loss=loss)
    features = base.features(np.concatenate([task.X for task in history]))  # (N, d)
    if (history.sizes == history.sizes[0]).all():
        m, n = history.m, int(history.sizes[0])
        stacked = features.T.reshape(base.dim, m, n).transpose(1, 2, 0)  # a view
        return Problem.from_arrays(stacked, np.array(values), base.groups)
    ends = np.cumsum(history.sizes)
    parts = [features[stop - n : stop] for stop, n in zip(ends, history.sizes, strict=True)]
    return Problem.from_tasks(parts, values, base.groups, loss=loss)


def matching_base(
    history: History | ScannedTasks, base: KernelDictionary | None
) -> KernelDictionary:
    """The base kernels, those of a scan without others; raise if they cannot be applied."""
    if not isinstance(history, History):
        if not hasattr(history, "as_problem"):
            raise InputError(
                f"history is a {type(history).__name__}; make one by History.from_pairs"
            )
        if history.base is None or base not in (None, history.base):
            raise InputError(
                "tasks on disk are learned from with the base kernels of their scan: "
                "learn_kernel(scan(path, base))"
            )
        base = history.base
    if not isinstance(base, KernelDictionary) or base.p == 0:
        found = "empty" if isinstance(base, KernelDictionary) else f"a {type(base).__name__}"
        raise InputError(
            f"base is {found}; expected a dictionary of at least one base kernel, "
            'e.g. legendre(20, scaling="l2")'
        )
    if base.d0 not in (None, history.d0):
        raise ShapeError(f"the base kernels take {base.d0} inputs but the tasks have {history.d0}")
    return base


def new_tasks(new: Any, known: int) -> History | ScannedTasks:
    """The argument of `LearnedKernel.update` as a history; pairs are numbered from ``known`` on."""
    if isinstance(new, History) or hasattr(new, "as_problem"):
        return new  # type: ignore[no-any-return]
    if isinstance(new, Task):
        raise InputError(
            f"update: new is one Task, {new.name!r}; expected a History of tasks or pairs (X, y), "
            "e.g. History((task,))"
        )
    if not isinstance(new, Iterable):
        raise InputError(
            f"update: new is a {type(new).__name__}; expected a History, pairs (X, y) or a scan"
        )
    given = list(new)
    numbered = enumerate(zip(given, History.from_pairs(given), strict=True), start=known)
    return History(
        tuple(
            task if isinstance(one, Task) else replace(task, name=f"task {s}")
            for s, (one, task) in numbered
        )
    )


def check_more(old: History | ScannedTasks, new: History | ScannedTasks) -> None:
    """Raise for tasks in other units or another direction, and for tasks that are not new.

    A scan of files contains plain numbers, and checks for repeated files itself.
    """
    if not isinstance(new, History):
        return
    space = old.space if isinstance(old, History) else None
    if new.space is not None and space is None:
        raise InputError(
            f"update: the parameters {', '.join(new.space.names)} of the new tasks were encoded as "
            "numbers, but the old tasks have plain numbers; if they are in the same units, pass "
            "History(new.tasks)"
        )
    if new.space is not None and space is not None and new.space != space:
        before, now = set(space.parameters), set(new.space.parameters)
        found, expected = (
            ", ".join(sorted(map(str, parameters))) or "another order"
            for parameters in (now - before, before - now)
        )
        raise InputError(
            "update: the new tasks have another search space, so their numbers are not comparable: "
            f"found {found}, expected {expected}; read them with space=learned.history.space"
        )
    if not isinstance(old, History):
        return
    if old.report and new.report and old.report.minimize != new.report.minimize:
        now_is, was = (
            f"{report.output!r} is {'minimised' if report.minimize else 'maximised'}"
            for report in (new.report, old.report)
        )
        raise InputError(
            f"update: in the new tasks {now_is}, but in the old ones {was}; "
            "read them with the same minimize="
        )
    if twice := repeated(old, new):  # a repeated task would get twice the weight
        raise InputError(
            f"update: {len(twice)} of {new.m} new tasks were already used, with the same name and "
            f"the same values, e.g. {twice[0]!r}; expected new tasks only"
        )
