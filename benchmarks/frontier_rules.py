"""Rules of others for safe search, written down here to be compared with.

`safe_opt` is the rule of SafeOpt (Sui et al. 2015; Berkenkamp et al. 2016) as its package applies
it: safe points, maximisers, and expanders by an optimistic extra observation. It is our own
implementation, because the package does not import on current versions of Python; with the names
that these lack put back, its source chooses the same points (`benchmarks.safeopt_package`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from metakel.data import Task

Measure = Callable[[int], Sequence[float]]


class Process:
    """A Gaussian process with a squared exponential kernel on the points ``X`` (N, d0)."""

    def __init__(
        self, X: np.ndarray, mean: float, scale: float, lengthscale: float, noise: float
    ) -> None:
        self.mean, self.scale, self.noise = mean, scale, noise
        self.K = scale**2 * _correlation(X, lengthscale)

    @classmethod
    def fitted(cls, X: np.ndarray, tasks: Sequence[Task], noise: float) -> Process:
        """Level, scale and length by the likelihood of the first ten past tasks."""
        y = np.concatenate([task.y for task in tasks])
        mean, best = float(y.mean()), (-np.inf, 1.0, 1.0)
        for length in np.geomspace(0.03, 2.0, 13):
            correlations = [_correlation(task.X, length) for task in tasks[:10]]
            for scale in y.std() * np.array([0.5, 0.7, 1.0, 1.4]):
                total = 0.0
                for task, C in zip(tasks, correlations, strict=False):
                    L = np.linalg.cholesky(scale**2 * C + noise**2 * np.eye(task.n))
                    z = np.linalg.solve(L, task.y - mean)
                    total += -0.5 * z @ z - np.log(np.diag(L)).sum()
                best = max(best, (total, scale, length))
        return cls(X, mean, best[1], best[2], noise)

    def predict(self, rows: list[int], values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
        """(N,) means and standard deviations."""
        cross = self.K[rows]
        A = cross[:, rows] + self.noise**2 * np.eye(len(rows))
        weights = np.linalg.solve(A, cross)
        mean = self.mean + (np.array(values) - self.mean) @ weights
        variance = np.diag(self.K) - np.einsum("tn,tn->n", cross, weights)
        return mean, np.sqrt(np.maximum(variance, 1e-12))


def _correlation(X: np.ndarray, lengthscale: float) -> np.ndarray:
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-0.5 * squares / lengthscale**2))


def safe_opt(
    objective: Process,
    limited: Process | None,
    limit: float,
    first: int,
    measure: Measure,
    tries: int,
    beta: float,
) -> list[int]:
    """Rows tried: the widest interval among maximisers and expanders of the safe set.

    ``limited`` must not fall below ``limit``; None for the objective itself. ``measure`` returns
    the value of the objective and, where there is one, of the limited output. The first row is
    always safe.
    """
    rows, values = [first], [measure(first)]
    for _ in range(tries - 1):
        rows.append(safe_opt_row(objective, limited, limit, rows, values, beta))
        values.append(measure(rows[-1]))
    return rows


def safe_opt_row(
    objective: Process,
    limited: Process | None,
    limit: float,
    rows: list[int],
    values: Sequence[Sequence[float]],
    beta: float,
) -> int:
    """The next row; ``python -m benchmarks.safeopt_package`` compares it with the package."""
    mean, sd = objective.predict(rows, [v[0] for v in values])
    lower, upper = mean - beta * sd, mean + beta * sd
    process, told, low, high = objective, [v[0] for v in values], lower, upper
    if limited is not None:
        process, told = limited, [v[1] for v in values]
        mean, sd = limited.predict(rows, told)
        low, high = mean - beta * sd, mean + beta * sd
    safe = low > limit
    safe[rows[0]] = True
    maximizers = safe & (upper >= lower[safe].max())
    width = (upper - lower) / objective.scale
    widest = np.maximum(width, (high - low) / process.scale)
    wider = safe & ~maximizers & (widest > width[maximizers].max())
    candidates = maximizers
    for row in np.argsort(-np.where(wider, widest, -np.inf))[: wider.sum()].tolist():
        hoped, spread = process.predict([*rows, row], [*told, float(high[row])])
        if ((hoped - beta * spread >= limit) & ~safe).any():
            candidates = maximizers.copy()
            candidates[row] = True
            break
    return int(np.argmax(np.where(candidates, widest, -np.inf)))


def feasible_ucb(
    process: Process, limit: float, first: int, measure: Measure, tries: int
) -> list[int]:
    """Rows tried: the largest upper bound where the limit holds with a chance of 95 %."""
    rows, values = [first], [measure(first)[0]]
    for _ in range(tries - 1):
        mean, sd = process.predict(rows, values)
        allowed = mean - 1.645 * sd >= limit
        allowed[first] = True
        rows.append(int(np.argmax(np.where(allowed, mean + 2 * sd, -np.inf))))
        values.append(measure(rows[-1])[0])
    return rows
