"""A norm bound from the history, by conformal prediction, and bands around the learned mean.

Mean and kernel are learned from every other task; the rest are measured: which norm does the
smallest function need that explains the recorded values of such a task up to the noise? For a new
task exchangeable with the measured ones, the ceil((1 - delta)(m' + 1))-th smallest of m' norms is
not exceeded with probability at least 1 - delta, whatever the distribution of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isinf, sqrt
from typing import Any

import numpy as np

from metakel._arrays import Array, as_numbers, as_values, positive
from metakel.confidence import ConfidenceSequence
from metakel.confidence.set import Batch, Spectrum, no_observations
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.gp.processes import LearnedProcess, LevelAndScale
from metakel.kernels import KernelDictionary, KernelSum, matern
from metakel.kernels.nystrom import Eigenfunctions, spread_rows
from metakel.optimize.outcomes import OutputScale
from metakel.optimize.replays import conformal_quantile
from metakel.space import Space

ROWS = 300
SMALLEST_SHARE = 1e-4  # of the largest weight, for functions on which past tasks agree


@dataclass(frozen=True, eq=False)
class Calibration:
    """Mean and kernel learned from half of the tasks, and the norms that the other half needs."""

    task_gp: LearnedProcess
    model: LevelAndScale
    norms: Array  # (m',) increasing

    def __post_init__(self) -> None:
        as_numbers("norms", self.norms, (None,))

    @property
    def noise_std(self) -> float:
        """Size of what no function explains, in units of the output, for a typical task."""
        return self.model.scale * sqrt(self.task_gp.noise)

    def norm_bound(self, delta: float) -> float:
        """B with P(norm of a new task <= B) >= 1 - delta; inf where there are too few tasks."""
        return conformal_quantile(delta, self.norms)

    def center(self, X: Array) -> Array:
        """(n,) what a typical task has there; confidence sets are about the rest."""
        return self.model.level + self.model.scale * self.task_gp.mean(X)

    @property
    def kernel(self) -> KernelSum:
        """Level, amplitude of the common shape, principal functions, residual; in output units."""
        return prior_kernel(self.task_gp, self.model)


def prior_kernel(task_gp: LearnedProcess, model: LevelAndScale) -> KernelSum:
    r"""The prior as a sum of base kernels (Eq. 5) for f - level - s m.

    f = a + s'(m + g) differs from a typical task by its level, a multiple of the common shape m,
    and g; each gets its weight, all in units of the output.
    """
    shared = task_gp.basis.shared
    residual = matern(2.5, [shared.lengthscales.tolist()], d0=len(shared.lengthscales))
    weights = [*_function_weights(task_gp, model), task_gp.residual_weight * shared.signal]
    base = _functions(task_gp) + residual
    return KernelSum(base, model.scale**2 * np.array(weights))


def principal_kernel(task_gp: LearnedProcess, model: LevelAndScale, count: int) -> KernelSum:
    """The same without the residual, and with at most ``count`` differences: it has features.

    Level and common shape have a weight of their own even where past tasks agree on them, so that
    the mean of past tasks is among the functions.
    """
    weights = np.array(_function_weights(task_gp, model))[: 2 + count]
    base = _functions(task_gp).select(range(len(weights)))
    floor = SMALLEST_SHARE * max(float(weights.max()), 1.0)
    return KernelSum(base, model.scale**2 * np.maximum(weights, floor))


def _functions(task_gp: LearnedProcess) -> KernelDictionary:
    r, J = task_gp.directions.shape
    labels = ("level", "common shape", *(f"difference {j + 1}" for j in range(J)))
    functions = Eigenfunctions(
        task_gp.basis,
        np.append(1.0, np.zeros(J + 1)),
        np.column_stack([np.zeros(r), task_gp.mu, task_gp.directions]),
        labels,
    )
    return KernelDictionary((functions,))


def _function_weights(task_gp: LearnedProcess, model: LevelAndScale) -> list[float]:
    return [model.level_variance, exp(model.spread**2) - 1, *task_gp.eta]


def needed_norms(task_gp: LearnedProcess, model: LevelAndScale, tasks: History) -> Array:
    """(m,) norms of the smallest functions that explain the tasks' values up to the noise."""
    bare = Calibration(task_gp, model, np.empty(0))
    kernel, norms = bare.kernel, []
    for task in tasks:
        rows = spread_rows(np.arange(task.n), ROWS)
        X = task.X[rows]
        batch = Batch(X, task.y[rows] - bare.center(X), np.full(len(X), bare.noise_std))
        norms.append(smallest_norm(no_observations(kernel).append(batch).spectrum(), len(X)))
    return np.array(norms)


def smallest_norm(spectrum: Spectrum, squared_radius: float) -> float:
    """The smallest norm of a function whose squared distance from the values is so small.

    It is that of the ridge solution whose regulariser makes the distance just so large, since the
    distance grows with the regulariser and the norm falls. In units of the noise, the squared
    distance of n values from the truth is about n.
    """
    shift = np.array([-700.0, 700.0])  # logarithms of the regulariser

    def squared_distance(log_alpha: float) -> float:
        left = exp(log_alpha) / (spectrum.values + exp(log_alpha))
        return spectrum.rest + float((left * spectrum.targets) ** 2 @ np.ones(len(left)))

    if squared_distance(shift[1]) <= squared_radius:
        return 0.0
    for _ in range(60):
        middle = float(shift.mean())
        shift[int(squared_distance(middle) > squared_radius)] = middle
    return sqrt(float(spectrum.squared_norms(np.exp(shift[:1]))[0]))


@dataclass(frozen=True, eq=False)
class PastOutput:
    """Records of one output of past tasks.

    Parameters
    ----------
    tasks : tuple of Task
        In the sign in which it was measured, with points as the model sees them.
    kernel : KernelSum
        Learned from the first half of the tasks.
    noise_std : float
        Noise of a measurement.
    """

    tasks: tuple[Task, ...]
    kernel: KernelSum
    noise_std: float

    def __post_init__(self) -> None:
        positive("noise_std", self.noise_std)

    @property
    def history(self) -> History:
        """The tasks as a history."""
        return History(self.tasks)


@dataclass(frozen=True, eq=False)
class PastOutputs:
    """All outputs of the same past tasks; `learn_outputs` makes it.

    Parameters
    ----------
    outputs : dict of PastOutput
        By name; the objective is the first.
    """

    outputs: Mapping[str, PastOutput]

    def __post_init__(self) -> None:
        if not self.outputs or len({len(o.tasks) for o in self.outputs.values()}) != 1:
            raise InputError("past outputs are not of the same tasks")

    @property
    def names(self) -> tuple[str, ...]:
        """What was measured, the objective first."""
        return tuple(self.outputs)

    @property
    def tasks(self) -> int:
        """How many past tasks there are."""
        return len(next(iter(self.outputs.values())).tasks)

    def __str__(self) -> str:
        listed = ", ".join(f"{name} (noise {o.noise_std:.2g})" for name, o in self.outputs.items())
        left = self.tasks - round(self.tasks / 2)
        return (
            f"records of {listed}; {left} of {self.tasks} tasks did not teach their kernels and "
            "can vouch for the first configurations of the next task"
        )


class ConfidenceBand:
    """Anytime intervals for a new task: a `ConfidenceSequence` about f minus the learned mean.

    They hold for all configurations and all times together with probability 1 - delta if the
    new task is exchangeable with the recorded ones, if the norms that past tasks needed at their
    recorded points are those of the functions, and if the noise is sub-Gaussian of size
    ``noise_std``. Half of delta is spent on the norm bound.
    """

    def __init__(
        self,
        calibration: Calibration,
        space: Space,
        *,
        scale: OutputScale,
        delta: float,
        noise_std: float | None,
        output_range: tuple[float, float] = (-inf, inf),
    ) -> None:
        bound = calibration.norm_bound(delta / 2)
        if isinf(bound):
            raise InputError(
                f"{len(calibration.norms)} held-out tasks are too few for a norm bound at delta = "
                f"{delta}; expected delta >= {2 / (len(calibration.norms) + 1):.3g}"
            )
        self.calibration, self.space, self.scale = calibration, space, scale
        self.output_range = output_range
        kernel = calibration.kernel
        self.sequence = ConfidenceSequence(
            kernel,
            noise_std=calibration.noise_std if noise_std is None else noise_std,
            norm_bound=bound,
            delta=delta,
            delta_learning=delta / 2,
            norm_of="kernel",
            full=kernel,
            center=calibration.center,
        )

    def tell(self, configurations: Any, values: Sequence[float]) -> None:
        """Take in measured values."""
        X = self.space.encode(configurations)
        y = as_values(values, len(X), "tell")
        self.sequence.tell(X, self.scale.to_model(y))

    def interval(self, configurations: Any) -> tuple[Array, Array]:
        """Lower and upper ends, in units of the output and within its range."""
        ends = self.scale.interval(*self.sequence.interval(self.space.encode(configurations)))
        return np.clip(ends[0], *self.output_range), np.clip(ends[1], *self.output_range)

    def __repr__(self) -> str:
        sequence = self.sequence
        return (
            f"ConfidenceBand(t={sequence.t}, delta={sequence.delta:g}, "
            f"norm_bound={self.calibration.norm_bound(sequence.delta / 2):.4g})"
        )
