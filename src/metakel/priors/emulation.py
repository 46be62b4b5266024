"""Emulated tasks: functions that a past task may have been, of which every point has a value.

A draw of the Gaussian processes given the runs of a task. A process takes a cliff for noise and
swings beyond it, so that draws would have peaks and noise that no run shows. Where runs are dense
they say better how a function goes on: around a point it stays within the values of the nearest
runs, but for twice as much as these stick out of those around them. And the noise is at most what
neighbours among the better runs differ by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.data import Task
from metakel.gp.averages import MixtureWeights, mixture_weights
from metakel.gp.factor import Factor
from metakel.gp.processes import PointCache, TaskProcess
from metakel.kernels.nystrom import spread_rows
from metakel.priors.prior import Prior

ROWS = 200  # of a task, which a draw is given
NEIGHBORING = 1000  # of a task, whose neighbours are compared
FEATURES = 512
# Draws of a fitted process are too smooth and too sure. They deviate from its mean, and from what
# neighbouring runs allow, by so many times what these say.
INFLATION = 2.0
DENSE = 0.05  # lengthscales between neighbours
STICKING_OUT = 0.9  # so many of the runs that are beyond all around them are not further beyond
# The median size of the difference of two values with independent noise of size 1.
MEDIAN_DIFFERENCE = 0.9539


@dataclass(frozen=True, eq=False)
class Objective:
    """A function (n, d0) -> (n,) and the noise of its observations."""

    function: Callable[[Array], Array]
    noise_std: float = 0.0


def emulate(prior: Prior, task: Task, rng: np.random.Generator) -> Objective:
    """Drawn from the posterior of the prior given the task's runs, and kept near dense ones."""
    shared, _ = prior.task_processes[0][0].stationary
    drawn, runs = _posterior_draw(prior, task, rng), Neighbors.of(task, shared.lengthscales)
    if runs is None:
        return drawn
    noise_std = min(drawn.noise_std, runs.noise_std)
    if not runs.dense:
        return Objective(drawn.function, noise_std)

    def near_the_runs(Z: Array) -> Array:
        return np.asarray(np.clip(drawn.function(Z), *runs.range_at(Z)))

    return Objective(near_the_runs, noise_std)


def imagine(prior: Prior, rng: np.random.Generator) -> Objective:
    """A new task drawn from what was learned of the past ones, given no runs."""
    scale, (processes, start) = prior.model, prior.task_processes
    nothing = [np.zeros(len(scale.scales)) for _ in processes]
    chosen, size = _drawn(mixture_weights(nothing, start, scale), rng)
    process = processes[chosen]
    path = _prior_path(process, scale.level_variance, rng)

    def draw(Z: Array) -> Array:
        at = process.prepare(Z)
        return np.asarray(scale.level + size * (at.mean + path(at)))

    return Objective(draw, float(size * np.sqrt(process.noise)))


@dataclass(frozen=True, eq=False)
class Neighbors:
    """What runs next to one another say of the function between them."""

    nearest: Callable[[Array], NDArray[np.intp]]  # (n, d0) -> (n, k) numbers of the nearest runs
    values: Array  # (r,) of the runs
    above: Array  # (r,) how far a function may leave the range of the values around each
    below: Array
    noise_std: float  # an upper bound of the noise: values differ by the function, too
    distance: float  # usually from a run to the next one, in lengthscales

    @classmethod
    def of(cls, task: Task, lengthscales: Array) -> Neighbors | None:
        """None where there are no neighbours."""
        from scipy.spatial import KDTree

        X, first = np.unique(task.X + 0.0, axis=0, return_index=True)
        kept = spread_rows(np.argsort(first), NEIGHBORING)
        X, y = X[kept], task.y[first[kept]]
        count = min(2 * X.shape[1] + 2, len(y) - 1)
        if count < 1:
            return None
        tree = KDTree(X / lengthscales)
        far, near = tree.query(X / lengthscales, [*range(2, count + 2)])  # after the run itself
        around = y[near]
        better = y >= np.median(y)
        differences = np.abs(y - around[:, 0])[better]
        noise = float(np.median(differences)) / MEDIAN_DIFFERENCE
        return cls(
            lambda Z: np.asarray(tree.query(Z / lengthscales, [*range(1, count + 1)])[1]),
            y,
            _sticking_out(y - around.max(axis=1)),
            _sticking_out(around.min(axis=1) - y),
            noise * (1 + INFLATION / np.sqrt(len(differences))),
            float(np.median(np.asarray(far)[:, 0])),
        )

    @property
    def dense(self) -> bool:
        """Whether nothing much happens between runs."""
        return self.distance <= DENSE

    def range_at(self, Z: Array) -> tuple[Array, Array]:
        """(n,) the smallest and the largest value that a function may have at the points."""
        near = self.nearest(Z)
        values = self.values[near]
        low = values.min(axis=1) - self.below[near].max(axis=1)
        return low, values.max(axis=1) + self.above[near].max(axis=1)


def _sticking_out(beyond: Array) -> Array:
    """(r,) how far a function may leave the range around each run, by how far the runs do."""
    out = beyond[beyond > 0]
    usual = float(np.quantile(out, STICKING_OUT)) if len(out) else 0.0
    return np.asarray(INFLATION * np.maximum(beyond, usual))


def _posterior_draw(prior: Prior, task: Task, rng: np.random.Generator) -> Objective:
    """A function (n, d0) -> (n,) drawn from the posterior of the prior given the task's runs.

    Process and scale are drawn by their posterior weights, then a function by Matheron's rule: a
    draw of the prior, plus what conditioning adds to explain the runs.
    """
    from scipy.linalg import cho_solve

    rows = spread_rows(np.arange(task.n), ROWS)
    X, y = task.X[rows], task.y[rows]
    scale, (processes, start) = prior.model, prior.task_processes
    if not scale.expects(float(y.mean())):
        scale = scale.at_other_level(float(y.mean()))
    factor = Factor.of(processes, scale, X[:0]).at_once(X, y)
    chosen, size = _drawn(mixture_weights(factor.log_likelihoods, start, scale), rng)
    process, points = processes[chosen], processes[chosen].prepare(X)
    path = _prior_path(process, scale.level_variance, rng)
    noise = np.sqrt(process.noise) * rng.standard_normal(len(y))
    z = (y - scale.level) / size
    pull = cho_solve((factor.L[chosen], True), z - points.mean - INFLATION * (path(points) + noise))

    def draw(Z: Array) -> Array:
        at = process.prepare(Z)
        explained = pull @ (process.gram(points, at) + scale.level_variance)
        return np.asarray(scale.level + size * (at.mean + INFLATION * path(at) + explained))

    return Objective(draw, size * float(np.sqrt(process.noise)))


def _drawn(mix: MixtureWeights, rng: np.random.Generator) -> tuple[int, float]:
    """A process and a scale, by their weights."""
    chosen = int(rng.choice(mix.weights.size, p=mix.weights.ravel()))
    process, place = divmod(chosen, mix.weights.shape[1])
    return process, float(mix.scale.scales[place])


def _prior_path(
    process: TaskProcess, level_variance: float, rng: np.random.Generator
) -> Callable[[PointCache], Array]:
    """A draw of h ~ GP(0, k + level_variance); the Matern part by random Fourier features.

    Its spectral density is a multivariate t distribution with 5 degrees of freedom.
    """
    shared, weight = process.stationary
    variance, d0 = weight * shared.signal, len(shared.lengthscales)
    frequencies = rng.standard_normal((FEATURES, d0))
    frequencies *= np.sqrt(5 / rng.chisquare(5, size=(FEATURES, 1)))
    phases = rng.uniform(0, 2 * np.pi, FEATURES)
    amplitudes = rng.standard_normal(FEATURES) * np.sqrt(2 * variance / FEATURES)
    level = np.sqrt(level_variance) * rng.standard_normal()
    coefficients = rng.standard_normal(process.prepare(np.empty((0, d0))).phi.shape[1])

    def path(points: PointCache) -> Array:
        waves = np.cos(points.scaled @ frequencies.T + phases) @ amplitudes
        return np.asarray(level + points.phi @ coefficients + waves)

    return path
