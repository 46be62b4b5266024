"""Tables of tasks that share their structure, in units of no particular kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LOW, HIGH = np.array([0.0, 100.0]), np.array([10.0, 700.0])
NOISE = 0.1


@dataclass(frozen=True)
class Table:
    """Rows of tasks, and the function values without noise."""

    X: np.ndarray
    y: np.ndarray
    f: np.ndarray
    task: np.ndarray


def tables(rng: np.random.Generator, *, m: int, n: int, noise: float = NOISE) -> Table:
    """Each task is a level and its own amounts of P1(x1), P2(x0) and P1(x0) P1(x1)."""
    task = np.repeat(np.arange(m), n)
    u = rng.uniform(-1, 1, (m * n, 2))
    u[: 2 * 2] = [[-1, -1], [1, 1], [-1, 1], [1, -1]]  # the corners, so that ranges are known
    shapes = np.column_stack([u[:, 1], 1.5 * u[:, 0] ** 2 - 0.5, u[:, 0] * u[:, 1]])
    f = 5 * rng.normal(size=m)[task] + np.sum(rng.normal(size=(m, 3))[task] * shapes, axis=1)
    y = f + noise * rng.normal(size=m * n)
    return Table(LOW + (u + 1) / 2 * (HIGH - LOW), y, f, task)
