"""From a history to a learned kernel (Proposition 4.1)."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, check_generator
from metakel.data import History
from metakel.grouplasso import Problem, solve, solve_square_root
from metakel.grouplasso.solve import Progress
from metakel.grouplasso.square_root import EXACT_FIT
from metakel.kernels import KernelDictionary
from metakel.learn.learned import LearnedKernel, NoiseSource, root_mean_square
from metakel.learn.problem import (
    CV,
    DEFAULT,
    PIVOTAL,
    LearnOptions,
    Loss,
    OutOfCoreHistory,
    OutOfCoreProblem,
    Scale,
    Weights,
    as_problem,
    check_match,
    estimate_noise_std,
    noise_from_all_features,
    refitted_weights,
)
from metakel.learn.rules import choose_lambda, pivotal_lambda
from metakel.learn.select import cross_validated_lambda


def learn_kernel(
    history: History | OutOfCoreHistory,
    base: KernelDictionary,
    *,
    noise_std: float | None = None,
    lam: str | ArrayLike = DEFAULT,
    strength: float = 0.5,
    delta: float = 0.1,
    weights: Weights = "uniform",
    scale: Scale = "sum",
    beta_min: float | None = None,
    refit: bool = False,
    loss: Loss = "points",
    tol: float = 1e-10,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> LearnedKernel:
    r"""Meta-KeL: the sparse sum of base kernels that explains all tasks (Proposition 4.1).

    Parameters
    ----------
    history : History
        Or a scan of tasks on disk (`History.scan`), which are never held together.
    base : KernelDictionary
        Base kernels k_1 ... k_p (Eq. 5).
    noise_std : float, optional
        Noise level of the observations. None estimates it, at 1e-6 of the root mean square of y
        or more: less cannot be told from rounding. Where tasks have more points than features, the
        estimate is that of least squares on all features, so that a kernel that is missed does
        not count as noise. Otherwise the group square-root lasso selects, and what it does not
        select counts as noise; a warning says so where nothing is selected although noise alone
        would look different.
    lam : str, float or (p,) array
        A rule of `metakel.learn.rules`; "square-root", which is pivotal, so that it asks for no
        noise level (Gaussian noise, points fixed in advance), and replaces the default rule where
        the noise is neither given nor estimated from all features; "cv", the largest lambda that
        predicts held-out tasks about as well as the best one, whatever the noise (at least 2
        tasks); or the value itself. Nothing vouches for what the last two select.
    strength : float
        The rule's lambda is multiplied by this. With 0.5, noise alone still selects nothing with
        probability 1 - delta, and kernels half as strong are found (``docs/promises.md``); 1 is the
        paper's constant, which its error bounds need. Below 0.5 noise may select kernels, which
        makes intervals wider, not wrong. Not for "cv" and for values.
    delta : float
        Probability with which the noise event that ``lam`` guards against may fail.
    weights : "uniform" or "eta"
        Weight 1 on every selected kernel, which gives the sharpest certified confidence sets
        (``docs/reading-the-paper.md``), or the paper's eta of Proposition 4.1.
    scale : "sum", "c1" or "raw"
        With "eta": divided by their sum, by ``beta_min``, or as they are.
    beta_min : float, optional
        With ``scale="c1"``: the c_1 of Eq. 9; the smallest selected eta where it is not given.
    refit : bool
        With "eta": weights from a least-squares refit, free of the lasso's shrinkage.
    loss : "points" or "tasks"
        For tasks of unequal size: every observation counts alike (default), or every task does.
    tol : float
        Duality gap to reach, relative to the mean square of the values.
    rng : Generator, optional
        For the rules that simulate.
    progress : callable(round, gap), optional
    """
    if rng is not None:
        check_generator(rng)
    how = LearnOptions(noise_std, lam, strength, delta, weights, scale, beta_min, refit, loss, tol)
    check_match(history, base)
    problem = as_problem(history, base, loss)
    start = None if isinstance(problem, Problem) else problem.start
    return learn_again(history, problem, base, how, start, rng, progress)


def learn_again(
    history: History | OutOfCoreHistory,
    problem: Problem | OutOfCoreProblem,
    base: KernelDictionary,
    how: LearnOptions,
    start: Array | None,
    rng: np.random.Generator | None,
    progress: Progress | None,
) -> LearnedKernel:
    """Choose lambda, solve from weights x = ``start`` = eta / lambda, make the kernel."""
    lam, delta = how.lam, how.delta
    by_cv = isinstance(lam, str) and lam == CV
    if by_cv:
        lam = cross_validated_lambda(history, base, how.loss)
    noise: float | None = how.noise_std
    source: NoiseSource = "given"
    floor = EXACT_FIT * root_mean_square(problem)
    if noise is None and floor > 0:
        noise, source = noise_from_all_features(problem), "all features"
    if isinstance(lam, str) and (lam == PIVOTAL or noise is None):
        rule = PIVOTAL
        pivotal = how.strength * pivotal_lambda(problem, delta=delta, rng=rng)
        solution, _ = solve_square_root(
            problem, pivotal, tol=how.tol, start=start, progress=progress
        )
    else:
        rule = lam if isinstance(lam, str) else CV if by_cv else "hand"
        assumed = noise if how.noise_std is not None or noise is None else max(noise, floor)
        chosen = choose_lambda(lam, problem, noise_std=assumed, delta=delta, sup=base.sup, rng=rng)
        if rule not in (CV, "hand"):
            chosen = how.strength * chosen
        eta = None if start is None else start * chosen
        solution = solve(problem, chosen, tol=how.tol, start=eta, progress=progress)
    if noise is None:
        noise, source = estimate_noise_std(problem, solution), "residuals"
    exact = source != "given" and noise <= floor
    if exact:
        noise = floor
    raw = solution.eta
    if how.refit and solution.active.size:
        raw = refitted_weights(problem, solution.active, noise)
    learned = LearnedKernel(
        kernel=how.kernel(base, solution.active, raw),
        solution=solution,
        lam=solution.lam,
        noise_std=float(noise),
        noise_source=source,
        delta=delta if rule not in (CV, "hand") else 1.0,
        rule=rule,
        weights=how.weights,
        history=history,
        problem=problem,
        options=how,
        exact_fit=exact,
    )
    if learned.missed_signal:
        warnings.warn(learned.nothing_found(), stacklevel=3)
    return learned
