"""What `benchmarks.transfer` compares with, written out in a few lines each, to be checked.

A method takes a history (list of (X, y), inputs in [-1, 1], larger y is better) and gives a
function that searches one task: candidates X (N, d), a look-up i -> y, a horizon -> rows tried.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, sqrt

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import log_ndtr
from scipy.stats import rankdata

History = list[tuple[np.ndarray, np.ndarray]]
Look = Callable[[int], float]
Search = Callable[[np.ndarray, Look, int, np.random.Generator], list[int]]
Method = Callable[[History, np.random.Generator], Search]


def random_search(history: History, rng: np.random.Generator) -> Search:
    """Rows without repetition, uniformly."""

    def search(X, look, horizon, rng):
        return [int(i) for i in rng.permutation(len(X))[:horizon]]

    return search


def portfolio(history: History, rng: np.random.Generator) -> Search:
    """Greedy set cover: the rows that together leave the smallest average regret in past tasks.

    Values of past tasks at the rows of the new one are those that a GP of each task predicts;
    once every past task has its best row, cover starts again with the rows that are left.
    """
    groups = [(X, (y - y.mean()) / y.std()) for X, y in history if y.std() > 0]
    thetas = [fit_matern([group], steps=15) for group in groups]

    def search(X, look, horizon, rng):
        pairs = zip(thetas, groups, strict=True)
        scores = np.array([gp(theta, *group, X)[0] for theta, group in pairs])  # (m, rows)
        low, high = np.median(scores, axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
        scores = (scores - high) / np.maximum(high - low, 1e-12)
        rows: list[int] = []
        best = np.full((len(groups), 1), -np.inf)
        while len(rows) < min(horizon, len(X)):
            left = np.setdiff1d(np.arange(len(X)), rows)
            value = np.maximum(scores[:, left], best).mean(axis=0)
            if rows and value.max() <= best.mean():
                best = np.full((len(groups), 1), -np.inf)
                continue
            rows.append(int(left[np.argmax(value)]))
            best = np.maximum(best, scores[:, rows[-1:]])
        return rows

    return search


# ---------------------------------------------------------------- Gaussian processes

GAMMA = {"length": (3.0, 6.0), "signal": (2.0, 0.15), "noise": (1.1, 0.05)}  # as in BoTorch


def matern52(X, Z, lengths):
    """Matern-5/2 with one lengthscale per input."""
    squares = (((X[:, None] - Z[None]) / lengths) ** 2).sum(axis=2)
    r = np.sqrt(5 * squares)
    return (1 + r + r * r / 3) * np.exp(-r)


def fit_matern(groups: History, start=None, steps: int = 50):
    """MAP of lengthscales, signal and noise of zero-mean GPs that share them."""
    d = groups[0][0].shape[1]
    gaps = [(X[:, None] - X[None]) ** 2 for X, _ in groups]
    shape = np.array([GAMMA["length"][0]] * d + [GAMMA["signal"][0], GAMMA["noise"][0]])
    rate = np.array([GAMMA["length"][1] / 2] * d + [GAMMA["signal"][1], GAMMA["noise"][1]])

    def objective(theta):
        lengths, signal, noise = np.exp(theta[:d]), np.exp(theta[d]), np.exp(theta[d + 1])
        value = -float(((shape - 1) * theta - rate * np.exp(theta)).sum())
        slope = -((shape - 1) - rate * np.exp(theta))
        for D, (_, y) in zip(gaps, groups, strict=True):
            r = np.sqrt(5 * (D / lengths**2).sum(axis=2))
            K = signal * (1 + r + r * r / 3) * np.exp(-r)
            L = np.linalg.cholesky(K + (noise + 1e-6) * np.eye(len(y)))
            alpha = cho_solve((L, True), y)
            value += y @ alpha / 2 + np.log(L.diagonal()).sum()
            pull = cho_solve((L, True), np.eye(len(y))) - np.outer(alpha, alpha)
            fall = pull * (signal * 5 / 3 * (1 + r) * np.exp(-r))
            slope[:d] += (fall[:, :, None] * D).sum(axis=(0, 1)) / lengths**2 / 2
            slope[d] += (pull * K).sum() / 2
            slope[d + 1] += noise * np.trace(pull) / 2
        return value, slope

    start = np.array([log(0.5)] * d + [0.0, log(1e-2)]) if start is None else start
    bounds = [(log(0.02), log(40))] * d + [(log(0.05), log(20)), (log(1e-5), 0.0)]
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps}
    )
    return found.x


def gp(theta, X, y, Z):
    """Posterior mean and standard deviation at Z of a zero-mean GP."""
    d = X.shape[1]
    lengths, signal, noise = np.exp(theta[:d]), np.exp(theta[d]), np.exp(theta[d + 1])
    L = np.linalg.cholesky(signal * matern52(X, X, lengths) + (noise + 1e-6) * np.eye(len(y)))
    V = solve_triangular(L, signal * matern52(X, Z, lengths), lower=True)
    mean = V.T @ solve_triangular(L, y, lower=True)
    return mean, np.sqrt(np.maximum(signal - (V * V).sum(axis=0), 1e-12))


def log_ei(mean, sd, best):
    """Log of expected improvement, stable far below the best."""
    z = (mean - best) / sd
    density = -z * z / 2 - log(sqrt(2 * np.pi))
    tail = np.exp(np.clip(log_ndtr(z) - density, -700, 700))  # Mills ratio
    return np.log(sd) + density + np.log(np.maximum(1 + z * tail, 1e-300))


def cold_gp(acquisition: str) -> Method:
    """No history: GP refitted after every value; "ucb" has width 2.

    It begins at a random row: tables are sorted, and where the first row lies can be worth a lot.
    """

    def method(history, rng):
        def search(X, look, horizon, rng):
            rows, theta = [int(rng.integers(len(X)))], None
            values = [look(rows[0])]
            while len(rows) < min(horizon, len(X)):
                y = np.array(values)
                z = (y - y.mean()) / (y.std() if y.std() > 0 else 1.0)
                theta = fit_matern([(X[rows], z)], theta, steps=20)
                mean, sd = gp(theta, X[rows], z, X)
                score = mean + 2 * sd if acquisition == "ucb" else log_ei(mean, sd, z.max())
                score[rows] = -np.inf
                rows.append(int(np.argmax(score)))
                values.append(look(rows[-1]))
            return rows

        return search

    return method


def history_gp(history: History, rng: np.random.Generator) -> Search:
    """Shared Matern hyper-parameters and a kernel-ridge mean over all tasks' standardised values.

    On the new task: that mean plus a GP on what is left, standardised by past levels and scales.
    """
    groups = [(X, (y - y.mean()) / y.std()) for X, y in history if y.std() > 0]
    level = float(np.mean([y.mean() for _, y in history]))
    scale = float(np.median([y.std() for _, y in history if y.std() > 0]))
    theta = fit_matern(groups, steps=25)
    pool_X, pool_z = (np.concatenate(part) for part in zip(*groups, strict=True))
    ridge = theta.copy()
    ridge[-1] = 0.0  # the values of other tasks scatter by their own variance

    def search(X, look, horizon, rng):
        mean0, _ = gp(ridge, pool_X, pool_z, X)
        rows = [int(np.argmax(mean0))]
        values = [look(rows[0])]
        while len(rows) < min(horizon, len(X)):
            y = np.array(values)
            a, s = _level_and_scale(y, mean0[rows], level, scale)
            off, sd = gp(theta, X[rows], (y - a) / s - mean0[rows], X)
            score = log_ei(mean0 + off, sd, ((y - a) / s).max())
            score[rows] = -np.inf
            rows.append(int(np.argmax(score)))
            values.append(look(rows[-1]))
        return rows

    return search


def empirical(history: History, rng: np.random.Generator) -> Search:
    """Mean and covariance of past tasks at the rows of the new one; UCB of width 2.

    Each past task is a Gaussian process given its rows, with shared hyper-parameters; mean and
    covariance are those of their mixture (one step of EM).
    """
    groups = [(X, (y - y.mean()) / y.std()) for X, y in history if y.std() > 0]
    level = float(np.mean([y.mean() for _, y in history]))
    scale = float(np.median([y.std() for _, y in history if y.std() > 0]))
    theta = fit_matern(groups, steps=25)
    d = groups[0][0].shape[1]
    lengths, signal, noise = np.exp(theta[:d]), np.exp(theta[d]), np.exp(theta[d + 1])

    def search(X, look, horizon, rng):
        means, K = [], np.zeros((len(X), len(X)))
        for past, z in groups:
            A = signal * matern52(past, past, lengths) + (noise + 1e-6) * np.eye(len(z))
            L = np.linalg.cholesky(A)
            V = solve_triangular(L, signal * matern52(past, X, lengths), lower=True)
            means.append(V.T @ solve_triangular(L, z, lower=True))
            K -= V.T @ V
        mean0 = np.mean(means, axis=0)
        off = np.array(means) - mean0
        K = (K + off.T @ off) / len(groups) + signal * matern52(X, X, lengths)
        rows = [int(np.argmax(mean0))]
        values = [look(rows[0])]
        while len(rows) < min(horizon, len(X)):
            a, s = _level_and_scale(np.array(values), mean0[rows], level, scale)
            rest = (np.array(values) - a) / s - mean0[rows]
            A = K[np.ix_(rows, rows)] + (noise + 1e-6) * np.eye(len(rows))
            L = np.linalg.cholesky(A)
            V = solve_triangular(L, K[rows], lower=True)
            mean = mean0 + V.T @ solve_triangular(L, rest, lower=True)
            sd = np.sqrt(np.maximum(K.diagonal() - (V * V).sum(axis=0), 1e-12))
            score = mean + 2 * sd
            score[rows] = -np.inf
            rows.append(int(np.argmax(score)))
            values.append(look(rows[-1]))
        return rows

    return search


def _level_and_scale(y, mean, level, scale):
    """Of the new task, by least squares on the mean, pulled towards those of past tasks."""
    if len(y) <= 2 or y.std() == 0:
        return level + float((y - level - scale * mean).mean()) / 2, scale
    design, pull = np.column_stack([np.ones(len(y)), mean]), np.diag([1.0, 4.0])
    a, s = np.linalg.solve(design.T @ design + pull, design.T @ y + pull @ [level, scale])
    return a, max(s, 0.1 * scale)


def rgpe(history: History, rng: np.random.Generator) -> Search:
    """Rank-weighted ensemble (Feurer et al. 2018): one GP per past task, weighed by how often it
    ranks the new values best among bootstrap draws; UCB of width 2 on the mixture."""
    groups = [(X, (y - y.mean()) / y.std()) for X, y in history if y.std() > 0]
    thetas = [fit_matern([group], steps=15) for group in groups]

    def search(X, look, horizon, rng):
        base = [gp(theta, *group, X) for theta, group in zip(thetas, groups, strict=True)]
        means, sds = (np.array(part) for part in zip(*base, strict=True))
        rows = [int(np.argmax(means.mean(axis=0)))]
        values = [look(rows[0])]
        theta = None
        while len(rows) < min(horizon, len(X)):
            y = np.array(values)
            z = (y - y.mean()) / (y.std() if y.std() > 0 else 1.0)
            theta = fit_matern([(X[rows], z)], theta, steps=15)
            own_mean, own_sd = gp(theta, X[rows], z, X)
            weights = _rank_weights(means[:, rows], sds[:, rows], z, theta, X[rows], rng)
            mean = weights[:-1] @ means + weights[-1] * own_mean
            var = weights[:-1] ** 2 @ sds**2 + weights[-1] ** 2 * own_sd**2
            score = mean + 2 * np.sqrt(var)
            score[rows] = -np.inf
            rows.append(int(np.argmax(score)))
            values.append(look(rows[-1]))
        return rows

    return search


def _rank_weights(means, sds, z, theta, X, rng, draws: int = 30):
    """Share of draws in which each model misranks least; the new task's GP leaves one out."""
    t = len(z)
    if t < 3:
        return np.append(np.full(len(means), 1 / len(means)), 0.0)
    own = np.empty(t)
    for i in range(t):
        rest = np.arange(t) != i
        own[i] = gp(theta, X[rest], z[rest], X[i : i + 1])[0][0]
    all_means, all_sds = np.vstack([means, own]), np.vstack([sds, np.full(t, sds.mean())])
    samples = all_means + all_sds * rng.standard_normal((draws, *all_means.shape))
    order = np.sign(z[:, None] - z[None])
    wrong = np.sign(samples[..., :, None] - samples[..., None, :]) != order
    losses = wrong.sum(axis=(2, 3))  # (draws, models)
    # A model that is usually worse than the new task's own GP is left out (weight dilution).
    losses[:, :-1][:, np.median(losses[:, :-1], 0) > np.quantile(losses[:, -1], 0.95)] = t * t + 1
    best = losses == losses.min(axis=1, keepdims=True)
    best[:, -1] &= best.sum(axis=1) == 1
    return (best / best.sum(axis=1, keepdims=True)).mean(axis=0)


def mean_ranks(curves: np.ndarray) -> np.ndarray:
    """(methods,) rank over runs and times of curves (methods, runs, horizon)."""
    return rankdata(curves, axis=0).mean(axis=(1, 2))
