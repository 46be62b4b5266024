"""Solve the group lasso (Eq. 8) to a certified duality gap.

The groups enter a working set by how much they violate optimality. Projected Newton minimises over
the working set, in x = eta / lam (see `problem`); then the duality gap over all groups is computed
from the raw data, until it is small enough.

A stationary point has ||z^(j)|| = lam_j on active groups. For orthogonal features 1/||z^(j)|| is
linear in x_j, so we apply Newton's method to 1/||z^(j)|| = 1/lam_j. With v_j = ||z^(j)||^2, this
*long* step replaces the gradient (lam_j^2 - v_j) / 2 by q_j = v_j (1 - sqrt(v_j) / lam_j) and keeps
the Hessian. For orthogonal features a single step is exact, and steps do not get short where x is
far too small. The plain Newton step is the fallback, so every accepted step decreases g.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.errors import InputError, NotConverged, ShapeError
from metakel.grouplasso.evaluators import Evaluator, FeatureEvaluator, GramEvaluator, Residual
from metakel.grouplasso.problem import Index, Problem

Progress = Callable[[int, float], None]
FIRST = 10  # groups that the working set begins with
# Below this multiple of lambda_max most groups are active, so more of them are added at once.
TINY = 1e-4
ROUNDS = 200
# Weights times curvature below this have no effect beyond rounding, and are set to zero.
NEGLIGIBLE = 1e-12
# Rounding errors of the objective relative to the energy: usual, and if it is ill-conditioned.
ROUNDING, ILL_CONDITIONED = 1e-15, 1e-11
PATIENCE = 5  # steps without progress after which rounding is assumed to prevent it


@dataclass(frozen=True, eq=False)
class Solution:
    """A minimiser of Eq. 8 with its duality gap.

    Attributes
    ----------
    beta : (m, d) array or None
        Coefficients; None where the tasks are given by Gram matrices, or on disk.
    eta : (p,) array
        Norms of the groups, the weights of Proposition 4.1.
    objective : float
    loss : float
        Its first part: the mean square of the residuals, with the weights of the loss.
    gap : float
        Primal minus dual objective, relative to the mean square of y, from raw residuals.
    kkt : float
        Largest violation of the optimality conditions (B.6, B.7), relative to lambda.
    iterations : int
        Number of Newton steps.
    converged : bool
        Whether ``gap`` reached the tolerance.
    lam : (p,) array
    padded : tuple of arrays
        Residuals in the padded form of ``problem.batches``; none for tasks on disk.
    """

    beta: Array | None
    eta: Array
    objective: float
    loss: float
    gap: float
    kkt: float
    iterations: int
    converged: bool
    lam: Array
    problem: Problem = field(repr=False)
    padded: tuple[Array, ...] = field(default=(), repr=False)

    @cached_property
    def residuals(self) -> tuple[Array, ...]:
        """Observations minus fit: one (n_s,) array per task."""
        if self.problem.evaluator is not None:
            raise InputError("residuals are not kept for tasks on disk")
        out: list[Array] = [np.empty(0)] * self.problem.m
        for batch, part in zip(self.problem.batches, self.padded, strict=True):
            for s, row in zip(batch.tasks, part, strict=True):
                weight = self.problem.task_weights[s]
                out[s] = row[: self.problem.sizes[s]] / np.sqrt(weight)
        return tuple(out)

    @cached_property
    def unique(self) -> bool:
        """False where other weights fit equally well, e.g. because of duplicated groups."""
        evaluator, active = evaluator_of(self.problem), self.active
        if not active.size:
            return True
        evaluator.extend(active)
        evaluator.at(np.arange(active.size), self.eta[active] / self.lam[active])
        H = evaluator.hessian(evaluator.active)
        if not (H.diagonal() > 0).all():
            return False
        scale = 1 / np.sqrt(H.diagonal())
        return bool(np.linalg.eigvalsh(H * np.outer(scale, scale))[0] > 1e-9)

    @property
    def active(self) -> Index:
        """Indices of the selected groups."""
        return np.flatnonzero(self.eta)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"Solution({self.active.size} of {self.eta.size} groups, "
            f"objective {self.objective:.6g}, gap {self.gap:.1e}, {self.iterations} steps, {state})"
        )


def solve(
    problem: Problem,
    lam: ArrayLike,
    *,
    tol: float = 1e-10,
    start: ArrayLike | None = None,
    max_iterations: int = 1000,
    progress: Progress | None = None,
) -> Solution:
    """Minimise Eq. 8 to a certified duality gap.

    Parameters
    ----------
    problem : Problem
    lam : float or (p,) array
        The paper's lambda (half of it is the ``alpha`` of celer, skglm and scikit-learn).
    tol : float
        Duality gap to reach, relative to the mean square of y.
    start : (p,) array, optional
        Weights ``eta`` to start from, e.g. those of a similar lambda.
    max_iterations : int
        Maximal number of Newton steps. A `NotConverged` warning reports the gap reached.
    progress : callable(round, gap), optional
        Called with the certified relative gap whenever the working set was optimised.
    """
    check_problem(problem)
    strengths = as_strengths(lam, problem.p)
    evaluator = evaluator_of(problem)
    x = None if start is None else _as_weights(start, problem.p) / strengths
    return solve_with(
        problem, evaluator, strengths, x, tol=tol, max_iterations=max_iterations, progress=progress
    )


def check_problem(problem: object) -> None:
    """Raise where the argument is not a problem, e.g. the history it is made from."""
    if not hasattr(problem, "group_scores"):
        raise InputError(
            f"problem is a {type(problem).__name__}; expected a Problem, made by "
            "Problem.from_arrays, from_tasks or from_grams (metakel.learn.as_problem(history, "
            "base) makes it from a History)"
        )


def lambda_max(problem: Problem, weights: ArrayLike | None = None) -> float:
    """Smallest lambda at which every coefficient is zero: max_j (2/N) ||(Phi'y)^(j)|| / w_j."""
    check_problem(problem)
    scores = problem.group_scores()
    _check_scores(scores)
    norms = 2 / problem.total * np.sqrt(scores)
    return float(np.max(norms if weights is None else norms / np.asarray(weights)))


def _check_scores(scores: Array) -> None:
    """Features may be large: their first products are checked instead."""
    wrong = np.flatnonzero(~np.isfinite(scores))
    if wrong.size:
        raise InputError(f"the features of group {wrong[0]} hold nan or infinite numbers")


def evaluator_of(problem: Problem) -> Evaluator:
    """The evaluator for the kind of data that the problem holds."""
    if problem.evaluator is not None:
        found: Evaluator = problem.evaluator(problem)
        return found
    return GramEvaluator(problem) if problem.kernel_mode else FeatureEvaluator(problem)


def as_strengths(lam: ArrayLike, p: int) -> Array:
    """One positive lambda per group."""
    values = as_numbers(lam, "lam")
    if values.ndim > 1 or values.size not in (1, p):
        raise ShapeError(
            f"lam has shape {values.shape}; expected one number, or one per group, ({p},)"
        )
    wrong = ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        raise InputError(f"lam holds {values[wrong].flat[0]}; expected finite numbers > 0")
    return np.broadcast_to(values, (p,)).copy()


def as_numbers(lam: ArrayLike | None, name: str) -> Array:
    """``lam`` as an array of numbers; the rules of `metakel.learn` are resolved before."""
    try:
        if lam is not None:
            return np.asarray(lam, np.float64)
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"{name} is {lam!r}; expected numbers > 0 (metakel.learn.rules.choose_lambda computes "
        "them by a rule; nothing is selected from lambda_max on)"
    )


def _as_weights(start: ArrayLike, p: int) -> Array:
    values = np.asarray(start, np.float64)
    if values.shape != (p,):
        raise ShapeError(f"start has shape {values.shape}; expected ({p},)")
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError("start must hold finite weights >= 0")
    return values


def solve_with(
    problem: Problem,
    evaluator: Evaluator,
    lam: Array,
    x: Array | None,
    *,
    tol: float,
    aim: float = inf,
    max_iterations: int,
    progress: Progress | None = None,
) -> Solution:
    """`solve` from weights x = eta / lambda, with an evaluator that keeps its working set.

    ``aim`` is a smaller gap than ``tol`` to aim for. Not reaching it is no failure, because
    rounding may prevent it.
    """
    if not tol >= 0:
        raise InputError(f"tol is {tol}; expected a number >= 0")
    end = optimize(
        evaluator, lam, x, tol=min(tol, aim), max_iterations=max_iterations, progress=progress
    )
    gap = end.gap / evaluator.energy if evaluator.energy else 0.0
    converged = gap <= tol
    if not converged:
        warnings.warn(
            f"the group lasso stopped after {end.iterations} Newton steps at a relative duality "
            f"gap of {gap:.1e}; tol is {tol:.1e}",
            NotConverged,
            stacklevel=3,
        )
    return Solution(
        beta=evaluator.beta(),
        eta=end.residual.norms,
        objective=end.objective,
        loss=end.residual.square,
        gap=gap,
        kkt=_violation(evaluator, end.residual, lam),
        iterations=end.iterations,
        converged=converged,
        lam=lam,
        problem=problem,
        padded=tuple(end.residual.rows),
    )


def _violation(evaluator: Evaluator, residual: Residual, lam: Array) -> float:
    """B.6, B.7: z^(j) = lam_j beta^(j)/||beta^(j)|| where active, ||z^(j)|| <= lam_j elsewhere."""
    active = residual.norms > 0
    beyond = np.sqrt(residual.scores[~active]) / lam[~active] - 1
    off = evaluator.misfit(lam) / lam[evaluator.work[evaluator.active]]
    return float(np.concatenate([beyond, off]).max(initial=0.0))


# -- the working set -------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """The point where the optimisation stopped, and its duality gap."""

    residual: Residual
    objective: float
    gap: float
    iterations: int


def optimize(
    evaluator: Evaluator,
    lam: Array,
    x: Array | None,
    *,
    tol: float,
    max_iterations: int,
    progress: Progress | None,
) -> End:
    """Minimise over all groups, from x (p,) or from zero, to a gap of tol times the energy."""
    target, steps, state = tol * evaluator.energy, 0, np.zeros(evaluator.work.size)
    if x is not None:
        if (outside := _outside(evaluator, x > 0)).size:
            evaluator.extend(outside)
        # A good start is improved before the raw data are read.
        now = evaluate(evaluator, lam[evaluator.work], x[evaluator.work])
        now = minimize(evaluator, now, tol=0.3 * target, max_iterations=max_iterations)
        state, steps = now.x, now.iterations
    end = _certify(evaluator, lam, steps)
    _check_scores(end.residual.scores)
    for round_ in range(ROUNDS):
        if end.gap <= target or end.iterations >= max_iterations:
            break
        first = round_ == 0
        ratio = np.sqrt(end.residual.scores) / lam
        candidates = _outside(evaluator, ratio > 1)
        most = max(FIRST if first else FIRST // 2, int(np.count_nonzero(state)))
        if first and float(ratio.max()) * TINY > 1:
            most *= 4
        new = np.sort(candidates[np.argsort(-ratio[candidates], kind="stable")][:most])
        if new.size:
            evaluator.extend(new)
            state = np.concatenate([state, np.zeros(new.size)])
        here = lam[evaluator.work]
        if first and x is None:
            now = evaluate(evaluator, here, evaluator.start(here))
        else:
            now = Iterate(state, here, end.residual.inner, end.residual.scores[evaluator.work])
        # While groups still enter, an approximate minimum over the working set is enough.
        rough = candidates.size > 0 and evaluator.rough
        before = end
        found = minimize(
            evaluator,
            now,
            tol=max(0.3 * target, 0.03 * end.gap if rough else 0.0),
            max_iterations=max_iterations - end.iterations,
        )
        state = found.x
        end = _certify(evaluator, lam, end.iterations + found.iterations)
        if progress is not None:
            progress(round_, end.gap / evaluator.energy)
        complete = not new.size and not _outside(evaluator, end.residual.scores > lam * lam).size
        if complete and not end.gap < 0.5 * before.gap:
            break  # only rounding is left
    return end


def _outside(evaluator: Evaluator, chosen: NDArray[np.bool]) -> Index:
    """The chosen groups (p,) that are not in the working set."""
    outside = chosen.copy()
    outside[evaluator.work] = False
    return np.flatnonzero(outside)


def _certify(evaluator: Evaluator, lam: Array, iterations: int) -> End:
    """The duality gap over all groups, from the raw data."""
    residual = evaluator.residual()
    primal = residual.square + float(np.dot(lam, residual.norms))
    dual = dual_value(residual.inner, residual.square, np.sqrt(residual.scores), lam)
    return End(residual, primal, primal - dual, iterations)


# -- Newton's method over the working set ----------------------------------------------------------


@dataclass
class Iterate:
    """A point x over the working set and the quantities computed there."""

    x: Array
    lam: Array
    data: float  # y'r / N
    scores: Array  # squared norms of z over the working set
    iterations: int = 0

    @cached_property
    def objective(self) -> float:
        """g(x)."""
        return self.data + 0.5 * float(np.dot(self.lam * self.lam, self.x))

    @cached_property
    def gap(self) -> float:
        """Duality gap of the problem restricted to the working set."""
        square = max(self.data - 0.5 * float(np.dot(self.x, self.scores)), 0.0)
        norms = np.sqrt(self.scores)
        primal = square + float(np.dot(self.lam * self.x, norms))
        return primal - dual_value(self.data, square, norms, self.lam)


def dual_value(inner: float, square: float, norms: Array, lam: Array) -> float:
    """Best dual objective along the ray of the residual.

    theta = a 2r/N is feasible for |a| <= min_j lam_j / ||z^(j)||; along it the dual is
    2 a y'r/N - a^2 ||r||^2/N.
    """
    tightest = float((norms / lam).max(initial=0.0))
    if abs(inner) * tightest > square:
        a = float(np.copysign(1 / tightest, inner))
    elif square > 0.0:
        a = inner / square
    else:
        return 0.0
    return 2 * a * inner - a * a * square


def minimize(evaluator: Evaluator, now: Iterate, *, tol: float, max_iterations: int) -> Iterate:
    """Minimise g over the working set to an absolute gap ``tol``, from the current point."""
    taken, idle = 0, 0
    objective, gap = now.objective, now.gap  # the best so far
    while taken < max_iterations and idle < PATIENCE and now.gap > tol:
        step = _step(evaluator, now)
        if step is None:
            break
        now, taken = step, taken + 1
        gained = objective - now.objective > ROUNDING * evaluator.energy
        idle = 0 if gained or now.gap <= 0.5 * gap else idle + 1
        objective, gap = min(objective, now.objective), min(gap, now.gap)
    now.iterations = taken
    return now


def evaluate(evaluator: Evaluator, lam: Array, x: Array) -> Iterate:
    """Move the evaluator to x; groups without any correlation (z = beta = 0) lose their weight."""
    active = np.flatnonzero(x)
    data, scores = evaluator.at(active, x[active])
    blank = active[scores[active] == 0.0]
    if blank.size:
        x = x.copy()
        x[blank] = 0.0
        return evaluate(evaluator, lam, x)
    return Iterate(x, lam, data, scores)


def _step(evaluator: Evaluator, now: Iterate) -> Iterate | None:
    """One accepted step from ``now``, or None if no step decreases g beyond rounding."""
    # Besides the active groups: idle ones whose weight would increase.
    places = np.flatnonzero((now.x > 0) | (now.scores > now.lam * now.lam))
    if not places.size:
        return None
    x, v, strength = now.x[places], now.scores[places], now.lam[places]
    gradient = 0.5 * (strength * strength - v)
    H = evaluator.hessian(places)
    if not (H.diagonal() > 0).all():
        return None
    here, gap = now.objective, now.gap
    for q in (v * (1 - np.sqrt(v) / strength), gradient):
        target = bounded_newton(H, q, x)
        slope = float(np.dot(gradient, target - x))
        if slope >= 0.0:
            continue
        share = 1.0
        # The long step gets one try; the plain Newton step is shortened until it decreases g.
        for _ in range(1 if q is not gradient else 30):
            moved = now.x.copy()
            moved[places] = target if share == 1.0 else x + share * (target - x)
            moved[moved * evaluator.curvature < NEGLIGIBLE] = 0.0
            trial = evaluate(evaluator, now.lam, moved)
            rise = (trial.objective - here) / evaluator.energy
            if rise <= 1e-4 * share * slope / evaluator.energy + ROUNDING:
                return trial
            # Close to the optimum rounding dominates the objective earlier than the gap.
            if rise <= ILL_CONDITIONED and trial.gap <= 0.5 * gap:
                return trial
            share *= 0.5
    # Return the evaluator to the point of the caller.
    active = np.flatnonzero(now.x)
    evaluator.at(active, now.x[active])
    return None


def bounded_newton(H: Array, q: Array, x: Array) -> Array:
    """x + t for the t that minimises t'Ht/2 + q't subject to x + t >= 0.

    An active-set method: guess which entries of x + t are zero, solve for the others, and correct
    the guess by the signs found. Should the guesses cycle, use non-negative least squares.
    """
    # Duplicated groups make H singular; the ridge selects one of the equally good steps.
    H = H.copy()
    H.reshape(-1)[:: x.size + 1] *= 1 + 1e-11
    target = x + np.linalg.solve(H, -q)
    free = target > 0
    if free.all():
        return target
    for _ in range(25):
        held, places = np.where(free, 0.0, x), np.flatnonzero(free)
        t = -held
        if places.size:
            t[places] = np.linalg.solve(H[places[:, None], places], (H @ held - q)[places])
        negative = free & (x + t <= 0)
        released = ~free & (H @ t + q < 0)
        if not negative.any() and not released.any():
            return np.where(free, x + t, 0.0)
        free = (free & ~negative) | released
    return _by_nnls(H, q, x)


def _by_nnls(H: Array, q: Array, x: Array) -> Array:
    from scipy.optimize import nnls

    scale = 1 / np.sqrt(H.diagonal())
    values, vectors = np.linalg.eigh(H * np.outer(scale, scale))
    # H may be slightly indefinite by rounding; nearly flat directions get some curvature.
    roots = np.sqrt(np.maximum(values, 1e-10 * values[-1]))
    b = vectors.T @ (scale * (H @ x - q)) / roots
    found: Array = nnls(roots[:, None] * vectors.T, b, maxiter=30 * x.size + 100)[0]
    return scale * found
