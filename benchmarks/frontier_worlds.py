"""Worlds for safe search: past tasks, a new one, and a limit that a third of it violates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

import metakel as mk
from metakel.space import Categorical, Float, Integer, Space

BASE = mk.kernels.legendre(20, scaling="sup")
X = np.linspace(-1, 1, 101)[:, None]
GRID = mk.grid([(-1, 1)], 101)
NOISE, SPREAD, TASKS, RECORDS = 0.05, 0.12, 80, 40


@dataclass(frozen=True, eq=False)
class Output:
    """One output: past records, and the new function with its limit."""

    kernel: mk.KernelSum
    history: mk.History
    theta: np.ndarray
    limit: float

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        base: mk.kernels.KernelDictionary,
        points: np.ndarray,
        records: list[np.ndarray],
    ) -> Output:
        """Five base kernels; tasks are a common mean plus a spread of 0.12 per coefficient."""
        kernel = mk.KernelSum.uniform(base, active=np.sort(rng.choice(base.p, 5, replace=False)))
        mean = rng.uniform(0.1, 1, kernel.dim) * rng.choice([-1, 1], kernel.dim)
        thetas = mean + SPREAD * rng.normal(size=(len(records) + 1, kernel.dim))
        pairs = [
            (Z, kernel.features(Z) @ theta + NOISE * rng.normal(size=len(Z)))
            for Z, theta in zip(records, thetas, strict=False)
        ]
        limit = float(np.quantile(kernel.features(points) @ mean, 1 / 3))
        return cls(kernel, mk.History.from_pairs(pairs), thetas[-1], limit)

    def f(self, Z: np.ndarray) -> np.ndarray:
        """(n,) the new task, without noise."""
        return self.kernel.features(Z) @ self.theta


def line(rng: np.random.Generator, outputs: int = 1) -> list[Output]:
    """Outputs over [-1, 1], recorded at the same points."""
    records = [rng.uniform(-1, 1, (RECORDS, 1)) for _ in range(TASKS)]
    return [Output.draw(rng, BASE, X, records) for _ in range(outputs)]


def plane(rng: np.random.Generator) -> Output:
    """An output over a box of two inputs, with 14 products of Legendre polynomials."""
    records = [rng.uniform(-1, 1, (RECORDS, 2)) for _ in range(TASKS)]
    base = mk.kernels.tensor_product(2, 4, scaling="sup")
    return Output.draw(rng, base, rng.uniform(-1, 1, (500, 2)), records)


PRODUCTS = mk.kernels.tensor_product(2, 3, scaling="sup", include_constant=True)
SPACE = Space((Float("rate", 0.0, 1.0), Integer("depth", 1, 8), Categorical("mode", ("a", "b"))))


def named(rng: np.random.Generator) -> Output:
    """An output over a space with a number, an integer and a choice."""
    parts = [
        mk.kernels.from_features(
            lambda Z, i=i, c=c: PRODUCTS.features(Z[:, :2])[:, [i]] * Z[:, [2 + c]],
            1,
            name=f"{name} where mode is {mode}",
            d0=4,
        )
        for i, name in enumerate(PRODUCTS.names)
        for c, mode in enumerate("ab")
    ]
    joined = reduce(add, parts)
    records = [SPACE.sample(rng, RECORDS) for _ in range(TASKS)]
    return Output.draw(rng, joined, SPACE.sample(rng, 500), records)
