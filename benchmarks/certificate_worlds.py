"""Four families of functions on [-1, 1]^2 whose maxima are known, for `benchmarks.certificate`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]
SIDE = np.linspace(-1, 1, 101)
GRID = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(-1, 2)


def bowl(rng: np.random.Generator) -> Function:
    """A smooth top somewhere in the middle."""
    center, widths = rng.uniform(-0.5, 0.5, 2), np.exp(rng.normal(0, 0.3, 2))
    level, scale = rng.normal(), np.exp(rng.normal(0, 0.3))
    return lambda X: level - scale * ((X - center) ** 2 * widths).sum(axis=1)


def peaks(rng: np.random.Generator) -> Function:
    """A high peak near the same place, a lower and narrower one anywhere."""
    high = np.clip([0.3, -0.2] + 0.25 * rng.standard_normal(2), -0.9, 0.9)
    low, height = rng.uniform(-0.9, 0.9, 2), rng.uniform(0.2, 0.7)
    level, scale, tilt = rng.normal(), np.exp(rng.normal(0, 0.3)), 0.1 * rng.standard_normal(2)

    def function(X: np.ndarray) -> np.ndarray:
        first = np.exp(-((X - high) ** 2).sum(axis=1) / 0.18)
        second = height * np.exp(-((X - low) ** 2).sum(axis=1) / 0.08)
        return level + scale * (first + second + X @ tilt)

    return function


def ridge(rng: np.random.Generator) -> Function:
    """A ridge with an edge, and smooth differences between tasks."""
    level, scale = rng.normal(0, 2), np.exp(rng.normal(0, 0.3))
    weights = 0.4 * rng.standard_normal(3)

    def function(X: np.ndarray) -> np.ndarray:
        a, b = X.T
        common = -2 * (a - 0.4) ** 2 - np.abs(b + 0.2)
        return level + scale * (
            common + np.stack([np.sin(3 * a), np.cos(2 * b), a * b], 1) @ weights
        )

    return function


def waves(rng: np.random.Generator) -> Function:
    """A draw of a Gaussian process, half of it the same for all tasks."""
    common = _wave(np.random.default_rng(0))
    own, level, scale = _wave(rng), rng.normal(), np.exp(rng.normal(0, 0.3))
    return lambda X: level + scale * (common(X) + 0.5 * own(X))


def _wave(rng: np.random.Generator, count: int = 60) -> Function:
    frequencies, phases = rng.standard_normal((count, 2)) / 0.6, rng.uniform(0, 2 * np.pi, count)
    weights = rng.standard_normal(count) * np.sqrt(2 / count)
    return lambda X: np.cos(X @ frequencies.T + phases) @ weights


def maximum(function: Function) -> float:
    """On a grid, then closer and closer around its best point."""
    best = GRID[np.argmax(function(GRID))]
    rng = np.random.default_rng(0)
    for step in (0.01, 0.003, 0.001):
        near = np.clip(best + step * rng.standard_normal((1000, 2)), -1, 1)
        near = np.vstack([best, near])
        best = near[np.argmax(function(near))]
    return float(function(best[None])[0])


FAMILIES = {"bowl": bowl, "peaks": peaks, "ridge": ridge, "waves": waves}
