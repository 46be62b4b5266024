r"""Projected Newton for the p-dimensional problem in x = eta / lam (see `evaluator`).

A stationary point has ||z^(j)|| = lam_j on active groups. For orthogonal features 1/||z^(j)|| is
linear in x_j, so we apply Newton's method to 1/||z^(j)|| = 1/lam_j. With v_j = ||z^(j)||^2, this
*long* step replaces the gradient (lam_j^2 - v_j) / 2 by q_j = v_j (1 - sqrt(v_j) / lam_j) and keeps
the Hessian. For orthogonal features a single step is exact, and steps do not get short where x is
far too small. The plain Newton step is the fallback, so every accepted step decreases g.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso.evaluator import Evaluator

# Weights times curvature below this have no effect beyond rounding, and are set to zero.
NEGLIGIBLE = 1e-12
# Rounding errors of the objective relative to the energy: usual, and if it is ill-conditioned.
ROUNDING, ILL_CONDITIONED = 1e-15, 1e-11
PATIENCE = 5  # steps without progress after which rounding is assumed to prevent it


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


def minimise(evaluator: Evaluator, now: Iterate, *, tol: float, max_iterations: int) -> Iterate:
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
