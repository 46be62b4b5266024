r"""The chance that a run gives a value at all, learned from past runs that gave none.

By past tasks a run fails with the probability 1 / (1 + exp(-b - psi(x)'w)): logistic regression on
features of a Matern kernel, for all tasks together. The landmarks are among all runs, as those with
a value say nothing about the place of the others. w has a normal prior: this is a Gaussian process
classifier at its mode.

On the new task, runs overrule the past around them. With a and b the largest correlations of a
point with a run that had a value and with one that failed, the chances of the past, of a value and
of a failure have the weights (1 - a)(1 - b), a (1 - b) and b (1 - a).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from metakel._arrays import Array, as_number, as_numbers
from metakel.kernels.nystrom import NystromFeatures, choose_basis
from metakel.kernels.stationary import Matern52ARD, typical_lengthscale

# Standard deviation of the log odds over the space: from 1 in 400 to nearly always.
LOG_ODDS_SD = 3.0
LANDMARKS = 100
STEPS = 25
CONVERGED = 1e-8
SMALLEST_CHANCE = 1e-6
LARGEST_CORRELATION = 1 - 1e-9
# One run overrules many past ones only where it is near: correlations at half of the lengthscales.
NEARBY = 0.5
RARE = 0.05  # failures, where past tasks had none


@dataclass(frozen=True, eq=False)
class Runs:
    """Where runs of the new task gave a value (t, d0), and where they failed (k, d0)."""

    valued: Array
    failed: Array


@dataclass(frozen=True, eq=False)
class SuccessChance:
    """The chance that a run gives a value, by past tasks and by runs of this one."""

    basis: NystromFeatures  # gives psi
    intercept: float  # b
    weights: Array  # (r,) w

    def __post_init__(self) -> None:
        as_number("intercept", self.intercept)
        as_numbers("weights", self.weights, (self.basis.r,))

    @classmethod
    def unknown(cls, d0: int) -> SuccessChance:
        """Of a past in which nothing failed: rare anywhere, until runs of the new task fail."""
        shared = Matern52ARD(np.full(d0, typical_lengthscale(d0)), 1.0, 1e-6)
        basis = choose_basis(shared, np.zeros((1, d0)), 1)
        return cls(basis, float(np.log(RARE / (1 - RARE))), np.zeros(basis.r))

    @classmethod
    def fit(cls, shared: Matern52ARD, X: Array, failed: Array) -> SuccessChance:
        """From runs at X (n, d0) and which of them failed (n,); some did and some did not."""
        # Failures have edges, however smooth or flat the values are.
        lengthscales = np.minimum(shared.lengthscales, typical_lengthscale(X.shape[1]))
        basis = choose_basis(Matern52ARD(lengthscales, 1.0, shared.noise), X, LANDMARKS)
        scale = LOG_ODDS_SD / np.sqrt(basis.shared.signal)
        F = np.column_stack([np.ones(len(X)), scale * basis.features(X)])
        penalty = np.ones(F.shape[1])
        penalty[0] = 0.0
        theta, target = np.zeros(F.shape[1]), np.asarray(failed, dtype=np.float64)
        rate = float(np.clip(target.mean(), 1e-3, 1 - 1e-3))
        theta[0] = np.log(rate / (1 - rate))
        for _ in range(STEPS):  # Newton's method; the objective is convex
            p = _sigmoid(F @ theta)
            slope = F.T @ (p - target) + penalty * theta
            H = (F.T * (p * (1 - p))) @ F
            H.flat[:: len(theta) + 1] += penalty + 1e-9
            step = np.linalg.solve(H, slope)
            # Longer steps may leave the region where the quadratic model holds.
            step *= min(1.0, 4.0 / max(float(np.abs(F @ step).max()), 1e-300))
            theta -= step
            if float(np.abs(step).max()) < CONVERGED:
                break
        return cls(basis, float(theta[0]), scale * theta[1:])

    def failing(self, Z: Array) -> Array:
        """(n,) probabilities that a run gives no value, by past tasks."""
        return _sigmoid(self.intercept + self.basis.features(Z) @ self.weights)

    def log_chance(self, Z: Array, runs: Runs, failing: Array | None = None) -> Array:
        """(n,) logarithms of the chance of a value, given runs of this task.

        ``failing`` at these points, if it is known.
        """
        p = self.failing(Z) if failing is None else failing
        (a, _), (b, _) = self._near(Z, runs.valued), self._near(Z, runs.failed)
        return _log(_combined(p, a, b)[0])

    def log_chance_gradient(self, Z: Array, runs: Runs) -> tuple[Array, Array]:
        """`log_chance` and its (n, d0) derivatives."""
        shared = self.basis.shared
        p, (a, da), (b, db) = (
            self.failing(Z),
            self._near(Z, runs.valued, slopes=True),
            self._near(Z, runs.failed, slopes=True),
        )
        pull = self.basis.pull(self.weights[:, None])
        dp = self.basis.slopes(pull, shared.scale(Z)[0])[0] * (p * (1 - p))[:, None]
        f, by_p, by_a, by_b = _combined(p, a, b)
        slope = by_p[:, None] * dp + by_a[:, None] * da + by_b[:, None] * db
        return _log(f), -slope / np.maximum(1 - f, SMALLEST_CHANCE)[:, None]

    def _near(self, Z: Array, runs: Array, *, slopes: bool = False) -> tuple[Array, Array]:
        """(n,) largest correlations with runs, and their (n, d0) derivatives if asked for."""
        near, slope = np.zeros(len(Z)), np.zeros_like(Z)
        if len(runs):
            shared = replace(
                self.basis.shared, lengthscales=NEARBY * self.basis.shared.lengthscales
            )
            C = shared(runs, Z) / shared.signal
            near = np.minimum(C.max(axis=0), LARGEST_CORRELATION)
            if slopes:
                (scaled, _), (others, _) = shared.scale(Z), shared.scale(runs)
                every = shared.slopes_of_scaled(others, scaled)  # (t, n, d0)
                slope = every[np.argmax(C, axis=0), np.arange(len(Z))] / shared.signal
        return near, slope


def _combined(p: Array, a: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    """Probabilities of a failure, and their derivatives in p, a and b."""
    past, total = (1 - a) * (1 - b), 1 - a * b
    f = (p * past + b * (1 - a)) / total
    return (
        f,
        past / total,
        (-p * (1 - b) - b + f * b) / total,
        (-p * (1 - a) + (1 - a) + f * a) / total,
    )


def _sigmoid(t: Array) -> Array:
    from scipy.special import expit

    return np.asarray(expit(t))


def _log(failing: Array) -> Array:
    return np.log(np.maximum(1 - failing, SMALLEST_CHANCE))
