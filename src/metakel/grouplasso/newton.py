r"""Projected Newton for the p-dimensional problem in x = eta / lam (see `problem`).

An `Evaluator` gives the sums over tasks that it needs, for tasks in memory or elsewhere.

A stationary point has ||z^(j)|| = lam_j on active groups. For orthogonal features 1/||z^(j)|| is
linear in x_j, so we apply Newton's method to 1/||z^(j)|| = 1/lam_j. With v_j = ||z^(j)||^2, this
*long* step replaces the gradient (lam_j^2 - v_j) / 2 by q_j = v_j (1 - sqrt(v_j) / lam_j) and keeps
the Hessian. For orthogonal features a single step is exact, and steps do not get short where x is
far too small. The plain Newton step is the fallback, so every accepted step decreases g.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Protocol

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso.problem import Index, group_sums


@dataclass(frozen=True)
class Residual:
    """The quantities of the duality gap, recomputed from the raw data."""

    scores: Array  # (p,) squared norms of z^(j)
    norms: Array  # (p,) norms of beta^(j)
    square: float  # ||r||^2 / N
    inner: float  # y'r / N
    rows: Sequence[Array] = ()  # y - f: one padded (m_b, n_b) array per batch; none if elsewhere


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


def independent_weights(scores: Array, lam: Array, curvature: Array) -> Array:
    """The weight of each group if it were the only one, for tasks of equal curvature."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scores > lam * lam, (np.sqrt(scores) / lam - 1) / curvature, 0.0)


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


# -- the start -------------------------------------------------------------------------------------


def block_descent(
    gram: Array, h: Array, starts: Index, lam: Array, *, sweeps: int = 2, root_steps: int = 2
) -> Array:
    r"""Weights x (k,) after a few sweeps over k groups from zero, the strongest group first.

    With the other groups fixed, group j depends on the data through c_s = z_s^(j) + G_s,jj
    beta_s^(j). In the eigenbasis of the G_s,jj (eigenvalues gamma) its minimiser is
    x c / (1 + gamma x), where x is the root of the secular equation

    .. math:: \sum_{s,i} \frac{c_{si}^2}{(1 + \gamma_{si} x)^2} = \lambda_j^2,

    or zero if the left-hand side is at most lam_j^2 at x = 0. One or two sweeps separate most
    inactive groups from the active ones before anything is factorised; approximate roots are enough
    for that.

    Parameters
    ----------
    gram : (m, d, d) scaled Gram matrices 2/N Phi Phi'
    h : (m, d) scaled correlations 2/N Phi y
    starts : (k + 1,) where the columns of each group begin
    lam : (k,)
    sweeps : the first visits all groups, later ones those of positive weight
    root_steps : Newton steps towards each root in the first sweep; one less in every later one
    """
    G, z = np.ascontiguousarray(gram.transpose(1, 2, 0)), h.T.copy()  # tasks last
    strength = np.sqrt(group_sums(np.einsum("dm,dm->d", z, z), starts)) / lam
    x = np.zeros(lam.size)
    order = [j for j in np.argsort(-strength).tolist() if strength[j] > 1]
    blocks = {j: Block(G, slice(int(starts[j]), int(starts[j + 1]))) for j in order}
    for done in range(sweeps):
        for j in order:
            x[j] = blocks[j].minimize(z, float(lam[j]), float(x[j]), max(root_steps - done, 1))
        order = [j for j in order if x[j] > 0]
    return x


class Block:
    """One group, in the eigenbasis of its blocks of the Gram matrices G (d, d, m)."""

    def __init__(self, G: Array, cols: slice) -> None:
        self.cols, self.rows = cols, G[cols]
        self.vectors: Array | None = None
        if cols.stop == cols.start + 1:
            self.gamma = G[cols.start, cols]
        else:
            gamma, self.vectors = np.linalg.eigh(G[cols, cols].transpose(2, 0, 1))
            self.gamma = np.maximum(gamma.T, 0.0)
        self.beta: Array | None = None

    def minimize(self, z: Array, lam: float, x: float, steps: int) -> float:
        """The weight of this group with the others fixed; updates z (d, m)."""
        c = z[self.cols]
        if self.vectors is not None:
            c = np.einsum("sab,as->bs", self.vectors, c)
        if self.beta is not None:
            c = c + self.gamma * self.beta
        x = secular_root(c, self.gamma, lam, x=x, steps=steps)
        if x == 0.0 and self.beta is None:
            return x
        beta = c * (x / (1 + x * self.gamma))
        change = beta if self.beta is None else beta - self.beta
        self.beta = beta
        if self.vectors is None:
            z -= self.rows[0] * change
        else:
            change = np.einsum("sab,bs->as", self.vectors, change)
            z -= np.einsum("acs,as->cs", self.rows, change)
        return x


def secular_root(c: Array, gamma: Array, lam: float, *, x: float = 0.0, steps: int = 30) -> float:
    """The x >= 0 with sum c^2 / (1 + gamma x)^2 = lam^2, or 0 if the sum is smaller at x = 0.

    Newton's method on 1/sqrt(sum), which is concave and nearly linear. The first step ends left of
    the root, wherever it starts; later ones increase x without overshooting.
    """
    for _ in range(steps):
        if x:
            shrink = 1 / (1 + gamma * x)
            z, curvature = c * shrink, gamma * shrink
        else:
            z, curvature = c, gamma
        total = float(np.vdot(z, z))
        excess = sqrt(total) / lam
        if abs(excess - 1) <= 5e-7 or (excess < 1 and x == 0.0):
            break
        slope = float(np.vdot(z * z, curvature))  # minus half the derivative of the sum
        if slope <= 0.0:
            break
        x = max(x + total * (excess - 1) / slope, 0.0)
    return x
