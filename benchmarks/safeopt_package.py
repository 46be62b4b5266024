"""Does our implementation of SafeOpt's rule choose as the package does?

``python -m benchmarks.safeopt_package PATH``, PATH being a clone of github.com/befelix/SafeOpt

The package (0.16) imports neither on Python 3.10 and later nor with NumPy 2, and needs GPy. Here
the names that are gone are put back, and a Gaussian process of ours takes the place of GPy's. Both
rules get the same data at every step.
"""

from __future__ import annotations

import argparse
import collections
import collections.abc
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.frontier_rules import Process, safe_opt_row
from benchmarks.frontier_worlds import NOISE, X, line

WORLDS, STEPS = 10, 15


class Model:
    """What SafeOpt asks of a model of GPy."""

    def __init__(self, process: Process, rows: list[int], values: list[float]) -> None:
        self.process, self.input_dim = process, 1
        variance = float(process.K[0, 0])
        self.kern = SimpleNamespace(input_dim=1, Kdiag=lambda Z: np.full(len(Z), variance))
        self.set_XY(X[rows], np.array(values)[:, None] - process.mean)

    def set_XY(self, points: np.ndarray, values: np.ndarray) -> None:
        """Other data."""
        self.X, self.Y = points, values

    def predict_noiseless(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n, 1) means and variances."""
        rows = [int(np.argmin(np.abs(X[:, 0] - x[0]))) for x in self.X]
        mean, sd = self.process.predict(rows, (self.Y[:, 0] + self.process.mean).tolist())
        at = [int(np.argmin(np.abs(X[:, 0] - z[0]))) for z in Z]
        return (mean[at] - self.process.mean)[:, None], (sd[at] ** 2)[:, None]


def package(path: str) -> Any:
    """The package, with the names that it misses."""
    collections.Sequence = collections.abc.Sequence  # type: ignore[attr-defined]
    for name, kind in (("float", float), ("bool", bool), ("int", int)):
        if not hasattr(np, name):
            setattr(np, name, kind)
    sys.modules["GPy"] = ModuleType("GPy")
    sys.path.insert(0, path)
    import safeopt  # type: ignore[import-not-found]

    return safeopt


def main() -> None:
    """Compare the choices."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    safeopt = package(parser.parse_args().path)
    same = ties = other = 0
    for seed in range(WORLDS):
        rng = np.random.default_rng(seed)
        world = line(rng)[0]
        f, process = world.f(X), Process.fitted(X, world.history.tasks, NOISE)
        limit = world.limit
        rows = [int(np.argmax(f))]
        values = [float(f[rows[0]] + NOISE * rng.normal())]
        for _ in range(STEPS):
            model = Model(process, rows, values)
            theirs = safeopt.SafeOpt(model, X, limit - process.mean, beta=2.0)
            x = theirs.optimize()
            row = safe_opt_row(process, None, limit, rows, [[v] for v in values], 2.0)
            sd = process.predict(rows, values)[1]
            chosen = int(np.argmin(np.abs(X[:, 0] - x[0])))
            same += row == chosen
            tied = row != chosen and abs(sd[row] - sd[chosen]) < 1e-9
            ties, other = ties + tied, other + (row != chosen and not tied)
            rows.append(row)
            values.append(float(f[row] + NOISE * rng.normal()))
    print(f"{same} choices the same, {ties} among equally wide intervals, {other} different")


if __name__ == "__main__":
    main()
