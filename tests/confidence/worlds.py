"""Functions with a known kernel and norm, and noisy values of them, for the tests of coverage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from metakel.kernels import KernelSum, legendre

BASE = legendre(20, scaling="sup")
SIGMA = 0.01
GRID = np.linspace(-1, 1, 15)[:, None]


def failures_allowed(runs: int, delta: float) -> int:
    """A valid method exceeds this number once in 10,000 tests."""
    return int(binom.ppf(1 - 1e-4, runs, delta))


@dataclass
class World:
    """f = phi'theta on [-1, 1], observed with noise."""

    kernel: KernelSum
    theta: np.ndarray
    noise_std: float
    rng: np.random.Generator
    rademacher: bool = False
    eta: np.ndarray | None = None

    @classmethod
    def draw(cls, rng, *, d, norm, noise_std=1.0, rademacher=False, p=None):
        """A random direction of exactly this norm in d of p Legendre kernels of weight 1."""
        base = legendre(p or d, scaling="sup", degrees=range(p or d))
        active = np.sort(rng.permutation(p or d)[:d])
        theta = rng.normal(size=d)
        theta *= norm / np.linalg.norm(theta)
        return cls(KernelSum.uniform(base, active=active), theta, noise_std, rng, rademacher)

    def f(self, X):
        return self.kernel.features(X) @ self.theta

    def observe(self, X):
        X = np.atleast_2d(X)
        noise = (
            self.rng.choice([-1.0, 1.0], len(X))
            if self.rademacher
            else self.rng.standard_normal(len(X))
        )
        return self.f(X) + self.noise_std * noise


def covered(sequence, f, Z=None):
    """Whether f (n,) lies inside everywhere."""
    lower, upper = sequence.interval(Z) if Z is not None else sequence.interval()
    slack = 1e-9 * (1 + np.abs(f))
    return bool(((lower - slack <= f) & (f <= upper + slack)).all())


def paper_example(rng, norm=10.0):
    """Section 6: five of twenty Legendre kernels, all used by f, of norm B in the true kernel."""
    active = np.sort(rng.choice(20, 5, replace=False))
    eta = rng.uniform(0.1, 1, size=5)
    theta = rng.uniform(0.1, 1, size=5) * rng.choice([-1, 1], 5)
    eta /= eta.sum()
    theta = np.sqrt(eta) * theta * norm / np.linalg.norm(theta)
    return World(KernelSum.uniform(BASE, active=active), theta, SIGMA, rng, eta=eta)


def true_kernel(world):
    """The kernel of the truth, in whose norm f has exactly norm B."""
    eta = np.zeros(20)
    eta[world.kernel.active] = world.eta
    return KernelSum(BASE, eta)
