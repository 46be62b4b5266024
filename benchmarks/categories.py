"""Kernels over categories: what a lengthscale for every choice or for every parameter costs.

``python -m benchmarks.categories`` learns a prior from simulated past tasks with a parameter of six
choices, and counts evaluations until the best of a new task is nearly found (5 % of what lies
between best and median, at most 40 of 300 candidates). Seeds and families were fixed before the
first run. Families: ``free``, every choice has an effect of its own in every task; ``clusters``,
choices of two groups act alike; ``shifts``, choices move the best number.
"""

from __future__ import annotations

import sys

import numpy as np

from metakel import learn_prior
from metakel.data import History
from metakel.gp.posterior import fit_matern52
from metakel.kernels.stationary import Matern52ARD
from metakel.priors import principal
from metakel.space import Categorical, Float, Space

CHOICES = tuple("abcdef")
SPACE = Space((Categorical("kind", CHOICES), Float("x", -1, 1), Float("z", -1, 1)))
SEEDS, TASKS, ROWS, TESTS, CANDIDATES, STEPS = range(6), 12, 30, 6, 300, 40
FAMILIES = ("free", "clusters", "shifts")
KERNELS = ("choice", "parameter")
# Which of the eight columns belong to kind, x and z.
MEMBER = np.eye(3)[[0] * 6 + [1, 2]]


def draw(rng: np.random.Generator, family: str, common: np.ndarray):
    """A task: a function of points (n, 8)."""
    own = rng.standard_normal(2 if family == "clusters" else 6)
    own = own[[0, 0, 0, 1, 1, 1]] if family == "clusters" else own
    effects, a, b = common + 0.7 * own, *rng.normal(0, 0.3, 2)

    def function(X: np.ndarray) -> np.ndarray:
        kind, x, z = X[:, :6].argmax(axis=1), X[:, 6], X[:, 7]
        if family == "shifts":
            return -((x - 0.4 * np.tanh(effects[kind]) - a) ** 2) - 0.5 * (z - b) ** 2
        return 0.4 * effects[kind] - (x - a) ** 2 - 0.5 * (z - b) ** 2

    return function


def evaluations(prior, X: np.ndarray, y: np.ndarray) -> int:
    """How many it takes."""
    good = y.max() - 0.05 * (y.max() - np.median(y))
    rows = SPACE.decode(X)
    optimizer = prior.optimizer(rows)
    values = {tuple(row.values()): float(v) for row, v in zip(rows, y, strict=True)}
    for t in range(1, STEPS + 1):
        row = optimizer.ask()
        optimizer.tell(row, values[tuple(row.values())])
        if values[tuple(row.values())] >= good:
            return t
    return STEPS


def fit_one_per_parameter(X, z):
    """The fit of the shared kernel with one lengthscale for all choices of a parameter."""
    module = sys.modules[fit_matern52.__module__]
    stacks = module._stacks
    module._stacks = lambda _, values: [(gaps @ MEMBER, v) for gaps, v in stacks(X, values)]
    try:
        # The number of columns is that of the lengthscales; the distances come from above.
        found = fit_matern52([points[:, [0, 6, 7]] for points in X], z)
    finally:
        module._stacks = stacks
    return Matern52ARD(MEMBER @ found.lengthscales, found.signal, found.noise)


FITS = {"choice": fit_matern52, "parameter": fit_one_per_parameter}


def main() -> None:
    """Print one line per family."""
    print(f"{'family':10} " + " ".join(f"{k:>10}" for k in KERNELS) + "  parameter / choice")
    for family in FAMILIES:
        found = {kernel: [] for kernel in KERNELS}
        for seed in SEEDS:
            rng = np.random.default_rng([17, seed])
            common = rng.standard_normal(6)
            pairs = []
            for _ in range(TASKS):
                f, X = draw(rng, family, common), SPACE.sample(rng, ROWS)
                pairs.append((X, f(X) + 0.02 * rng.standard_normal(ROWS)))
            history = History(History.from_pairs(pairs).tasks, SPACE)
            tests = [
                (draw(rng, family, common), SPACE.sample(rng, CANDIDATES)) for _ in range(TESTS)
            ]
            for kernel in KERNELS:
                principal.fit_matern52 = FITS[kernel]
                prior = learn_prior(history, certify="none")
                found[kernel] += [evaluations(prior, X, f(X)) for f, X in tests]
        means = {kernel: float(np.mean(v)) for kernel, v in found.items()}
        difference = np.log(found["parameter"]) - np.log(found["choice"])
        center, error = difference.mean(), difference.std() / np.sqrt(len(difference))
        low, high = np.exp([center - 2 * error, center + 2 * error])
        shown = " ".join(f"{means[k]:10.2f}" for k in KERNELS)
        print(f"{family:10} {shown}  {np.exp(center):.2f} [{low:.2f}, {high:.2f}]", flush=True)


if __name__ == "__main__":
    sys.exit(main())
