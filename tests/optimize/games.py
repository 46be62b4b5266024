"""A small problem that every test of the optimizer plays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpucb import gpucb
from metakel.kernels import KernelSum, legendre, tensor_product

NOISE, BOUND = 0.05, 4.0


@dataclass(frozen=True)
class Problem:
    """A function of known norm in the space of a kernel."""

    kernel: KernelSum
    theta: np.ndarray

    def f(self, X):
        X = np.asarray(X, dtype=float)
        if X.ndim < 2:
            X = X.reshape(1, -1)
        return self.kernel.features(X) @ self.theta

    def noisy(self, X, rng):
        values = self.f(X)
        return values + NOISE * rng.standard_normal(len(values))


def line_problem(seed=0, *, p=8, active=(0, 2, 4)):
    """One input, three active Legendre polynomials of eight."""
    kernel = KernelSum.uniform(legendre(p, scaling="l2"), active=list(active))
    return _problem(kernel, seed)


def square_problem(seed=0, *, order=5, count=12):
    """Two inputs, a dozen active products of Legendre polynomials."""
    base = tensor_product(2, order, scaling="l2")
    rng = np.random.default_rng(seed)
    kernel = KernelSum.uniform(base, active=np.sort(rng.choice(base.p, count, replace=False)))
    return _problem(kernel, seed)


def _problem(kernel, seed):
    theta = np.random.default_rng(seed).standard_normal(kernel.dim)
    return Problem(kernel, 0.8 * BOUND * theta / np.linalg.norm(theta))


def optimizer(problem, domain, *, seed=0, **options):
    """GP-UCB with everything that is known of the problem."""
    settings = {"noise_std": NOISE, "norm_bound": BOUND, "norm_of": "kernel", **options}
    return gpucb(problem.kernel, domain, rng=np.random.default_rng(seed), **settings)


def play(game, problem, steps, seed=1):
    """Ask and tell, one after the other."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        x = game.ask()
        game.tell(x, problem.noisy(x, rng))
    return game
