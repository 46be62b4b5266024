"""The worlds in which coverage is measured, and the intervals that compete there.

The paper's example: five of twenty Legendre kernels, functions of norm 10, noise 0.01, a kernel
learned from 50 tasks of 50 points. The noise-dominated check: one to three features, noise 1.
Coefficients have both signs, since with positive ones every maximum lies at x = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from metakel._arrays import Array
from metakel.confidence import ClosedForm, ConfidenceSequence
from metakel.gp import posterior
from metakel.kernels import KernelSum, legendre
from metakel.kernels.products import Scaling
from metakel.learn import learn_kernel
from reproduction.settings import Streams
from reproduction.synthetic import coefficients, sample_tasks, signal, true_kernel

P, SPARSITY, TASKS, POINTS = 20, 5, 50, 50
NORM, NOISE, DELTA = 10.0, 0.01, 0.1
DELTA_LEARNING = DELTA / 2  # the two failures share delta
GRID = np.linspace(-1, 1, 201)[:, None]
COARSE = np.linspace(-1, 1, 21)[:, None]  # quadratic functions need no more
NORMAL_90 = 1.6448536269514722


class Intervals(Protocol):
    """What a coverage run asks of a contestant."""

    def tell(self, X: Array, y: Array) -> None: ...

    def interval(self) -> tuple[Array, Array]: ...


class PointwiseBand:
    """Negative control: the Bayesian 90 % band at one point and one time (Eq. 3).

    The prior is GP(0, c k) with c such that the expected squared norm of f is B^2.
    """

    def __init__(self, kernel: KernelSum, *, noise_std: float, norm_bound: float, points: Array):
        self.kernel = kernel.scaled(norm_bound**2 / kernel.dim)
        self.noise_var, self.points = noise_std**2, points
        self.X, self.y = np.zeros((0, points.shape[1])), np.zeros(0)

    def tell(self, X: Array, y: Array) -> None:
        self.X, self.y = np.concatenate([self.X, X]), np.concatenate([self.y, y])

    def interval(self) -> tuple[Array, Array]:
        post = posterior(self.kernel, self.X, self.y, noise_var=self.noise_var)
        mean, half = post.mean(self.points), NORMAL_90 * post.std(self.points)
        return mean - half, mean + half


@dataclass(frozen=True)
class World:
    """A function f = phi'theta to be observed with noise.

    Attributes
    ----------
    true : KernelSum
        k*, in whose space f has norm ``norm_bound`` exactly.
    learned, literal : KernelSum
        From the same history: equal weights, and the paper's eta / c_1 (Eq. 9).
    f : (n,) array
        At the points of the domain.
    beta_min : float
        c_1, which only "paper" is told and nobody can observe.
    """

    true: KernelSum
    learned: KernelSum
    literal: KernelSum
    theta: Array
    points: Array
    f: Array
    norm_bound: float
    noise_std: float
    beta_min: float

    def observe(self, X: Array, noise: np.random.Generator) -> Array:
        """(n,) noisy values."""
        return self.true.features(X) @ self.theta + self.noise_std * noise.standard_normal(len(X))

    @property
    def recovered(self) -> bool:
        """Whether the learned kernel holds every base kernel of the truth."""
        return bool(np.isin(self.true.active, self.learned.active).all())


def paper_world(scaling: Scaling, streams: Streams, *, everything: bool = True) -> World:
    """The paper's example; f uses all kernels of k*, or a random part of them like past tasks."""
    base = legendre(P, scaling=scaling)
    true = true_kernel(base, sparsity=SPARSITY, rng=streams.rng("kernel"))
    history, beta = sample_tasks(
        true,
        m=TASKS,
        n=POINTS,
        norm=NORM,
        noise_std=NOISE,
        rng=streams.rng("history"),
        signs="both",
    )
    strength = signal(true, beta)
    beta_min = float(strength[strength > 0].min())
    learned = learn_kernel(history, base, noise_std=NOISE, delta=DELTA_LEARNING)
    literal = KernelSum(base, learned.solution.eta / beta_min)
    objective = streams.rng("objective")
    theta = coefficients(true, norm=NORM, rng=objective, signs="both", everything=everything)
    f = true.features(GRID) @ theta
    return World(true, learned.kernel, literal, theta, GRID, f, NORM, NOISE, beta_min)


def noisy_world(d: int, norm: float, streams: Streams) -> World:
    """A random direction of norm B in the polynomials of degree below d, which are known."""
    base = legendre(d, scaling="sup", degrees=range(d))
    kernel = KernelSum.uniform(base, weight=1.0)
    direction = streams.rng("objective").standard_normal(d)
    theta = norm * direction / np.linalg.norm(direction)
    f = kernel.features(COARSE) @ theta
    return World(kernel, kernel, kernel, theta, COARSE, f, norm, 1.0, 1.0)


CONTESTANTS = {
    "dmm": 'default, "dmm"',
    "amm": '"amm"',
    "ay": '"ay"',
    "paper-corrected": '"paper-corrected"',
    "paper": '"paper" (Theorem 5.1, c_1 given, epsilon = 0)',
    "oracle": '"oracle" (Chowdhury-Gopalan, true kernel)',
    "dmm-true": '"dmm", true kernel',
    "dmm-full": '"dmm", all base kernels (k_full)',
    "pointwise": "pointwise GP 90 % band (negative control)",
}
NOISY = ("dmm", "amm", "ay", "paper-corrected", "pointwise")


def contestant(name: str, world: World) -> Intervals:
    """Fresh intervals for a world; learned kernels leave half of delta to the learning."""
    common = {
        "noise_std": world.noise_std,
        "norm_bound": world.norm_bound,
        "points": world.points,
    }
    known = world.learned is world.true
    learned = {**common, "delta": DELTA, "delta_learning": 0.0 if known else DELTA_LEARNING}
    match name:
        case "dmm" | "amm" | "ay" | "paper-corrected":
            return ConfidenceSequence(world.learned, method=name, **learned)
        case "paper":
            return ConfidenceSequence(
                world.literal,
                method=ClosedForm("paper", beta_min=world.beta_min, recovery_error=0.0),
                **common,
            )
        case "oracle":
            return ConfidenceSequence(world.true, method="oracle", **common)
        case "dmm-true":
            return ConfidenceSequence(world.true, norm_of="kernel", full=world.true, **common)
        case "dmm-full":
            return ConfidenceSequence(KernelSum.uniform(world.true.base), **common)
        case "pointwise":
            return PointwiseBand(world.learned, **common)
    raise ValueError(f"{name!r} is none of {', '.join(CONTESTANTS)}")
