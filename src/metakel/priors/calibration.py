r"""A norm bound from the history, by conformal prediction, and bands around the learned mean.

Mean and kernel are learned from every other task; the rest are measured: which norm does the
smallest function need that explains the recorded values of such a task up to the noise? For a new
task exchangeable with the measured ones, the ceil((1 - delta)(m' + 1))-th smallest of m' norms is
not exceeded with probability at least 1 - delta, whatever the distribution of tasks.

A descriptor z of a task, such as the mass of a vehicle, is constant within the task, so it cannot
be a context: the coefficients of the task absorb it (Statement 8). What it can explain is where
tasks lie (`descriptor_centre`),

.. math:: m(x, z) = \phi(x)^\top W (1, z),

and what is left, f_s - m(., z_s), gets the learned kernel with a norm bound. W is a ridge
regression of the coefficients of teaching tasks on their descriptors. The norm bound is conformal
over other tasks, so that it holds whatever W is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, isinf, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_numbers, as_values, positive
from metakel.confidence import ConfidenceSequence
from metakel.confidence.observations import Batch, Spectrum, no_observations
from metakel.data import History
from metakel.errors import InputError, ShapeError
from metakel.gp.task_gp import TaskGP, TaskModel
from metakel.kernels import KernelDictionary, KernelSum, matern
from metakel.kernels.nystrom import Eigenfunctions, spread_rows
from metakel.kernels.sum import KernelFunction
from metakel.learn import learn_kernel
from metakel.priors.certified_start import TaskRecord, conformal_rank
from metakel.priors.configurations import encode_configurations
from metakel.space import Space

ROWS = 300
SMALLEST_SHARE = 1e-4  # of the largest weight, for functions on which past tasks agree


@dataclass(frozen=True, eq=False)
class Calibration:
    """Mean and kernel learned from half of the tasks, and the norms that the other half needs.

    Parameters
    ----------
    task_gp : TaskGP
    model : TaskModel
    norms : (m',) array, increasing
    """

    task_gp: TaskGP
    model: TaskModel
    norms: Array

    @property
    def noise_std(self) -> float:
        """Size of what no function explains, in units of the output, for a typical task."""
        return self.model.scale * sqrt(self.task_gp.noise)

    def norm_bound(self, delta: float) -> float:
        """B with P(norm of a new task <= B) >= 1 - delta; inf where there are too few tasks."""
        if not 0 < delta < 1:
            raise InputError(f"delta is {delta}; expected a number between 0 and 1")
        rank = conformal_rank(delta, len(self.norms))
        return float(self.norms[rank - 1]) if rank <= len(self.norms) else inf

    def centre(self, X: Array) -> Array:
        """(n,) what a typical task has there; confidence sets are about the rest."""
        return self.model.level + self.model.scale * self.task_gp.mean(X)

    @property
    def kernel(self) -> KernelSum:
        """Level, amplitude of the common shape, principal functions, residual; in output units."""
        return prior_kernel(self.task_gp, self.model)


def prior_kernel(task_gp: TaskGP, model: TaskModel) -> KernelSum:
    r"""The prior as a sum of base kernels (Eq. 5) for f - level - s m.

    f = a + s'(m + g) differs from a typical task by its level, a multiple of the common shape m,
    and g; each gets its weight, all in units of the output.
    """
    shared = task_gp.basis.shared
    residual = matern(2.5, [shared.lengthscales.tolist()], d0=len(shared.lengthscales))
    weights = [*_function_weights(task_gp, model), task_gp.residual_weight * shared.signal]
    base = _functions(task_gp) + residual
    return KernelSum(base, model.scale**2 * np.array(weights))


def principal_kernel(task_gp: TaskGP, model: TaskModel, count: int) -> KernelSum:
    """The same without the residual, and with at most ``count`` differences: it has features.

    Level and common shape have a weight of their own even where past tasks agree on them, so that
    the mean of past tasks is among the functions.
    """
    weights = np.array(_function_weights(task_gp, model))[: 2 + count]
    base = _functions(task_gp).select(range(len(weights)))
    floor = SMALLEST_SHARE * max(float(weights.max()), 1.0)
    return KernelSum(base, model.scale**2 * np.maximum(weights, floor))


def _functions(task_gp: TaskGP) -> KernelDictionary:
    r, J = task_gp.directions.shape
    labels = ("level", "common shape", *(f"difference {j + 1}" for j in range(J)))
    functions = Eigenfunctions(
        task_gp.basis,
        np.append(1.0, np.zeros(J + 1)),
        np.column_stack([np.zeros(r), task_gp.mu, task_gp.directions]),
        labels,
    )
    return KernelDictionary((functions,))


def _function_weights(task_gp: TaskGP, model: TaskModel) -> list[float]:
    return [model.level_variance, exp(model.spread**2) - 1, *task_gp.eta]


def needed_norms(task_gp: TaskGP, model: TaskModel, tasks: History) -> Array:
    """(m,) norms of the smallest functions that explain the tasks' values up to the noise."""
    bare = Calibration(task_gp, model, np.empty(0))
    kernel, norms = bare.kernel, []
    for task in tasks:
        rows = spread_rows(np.arange(task.n), ROWS)
        X = task.X[rows]
        batch = Batch(X, task.y[rows] - bare.centre(X), np.full(len(X), bare.noise_std))
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
        minimize: bool,
        delta: float,
        noise_std: float | None,
        limits: tuple[float, float] = (-inf, inf),
    ) -> None:
        bound = calibration.norm_bound(delta / 2)
        if isinf(bound):
            raise InputError(
                f"{len(calibration.norms)} held-out tasks cannot vouch for a norm bound at delta = "
                f"{delta}; expected delta >= {2 / (len(calibration.norms) + 1):.3g}"
            )
        self.calibration, self.space, self.minimize = calibration, space, minimize
        self.limits = limits
        kernel = calibration.kernel
        self.sequence = ConfidenceSequence(
            kernel,
            noise_std=calibration.noise_std if noise_std is None else noise_std,
            norm_bound=bound,
            delta=delta,
            delta_learning=delta / 2,
            norm_of="kernel",
            full=kernel,
        )

    def tell(self, configurations: Any, values: Sequence[float]) -> None:
        """Take in measured values."""
        X = encode_configurations(configurations, self.space)
        y = as_values(values, len(X), "tell")
        self.sequence.tell(X, (-y if self.minimize else y) - self.calibration.centre(X))

    def interval(self, configurations: Any) -> tuple[Array, Array]:
        """Lower and upper ends, in units of the output and within its limits."""
        X = encode_configurations(configurations, self.space)
        centre = self.calibration.centre(X)
        lower, upper = (end + centre for end in self.sequence.interval(X))
        ends = (-upper, -lower) if self.minimize else (lower, upper)
        return np.clip(ends[0], *self.limits), np.clip(ends[1], *self.limits)

    def __repr__(self) -> str:
        sequence = self.sequence
        return (
            f"ConfidenceBand(t={sequence.t}, delta={sequence.delta:g}, "
            f"norm_bound={self.calibration.norm_bound(sequence.delta / 2):.4g})"
        )


STRENGTHS = np.concatenate([np.geomspace(1e-3, 1e3, 25), [np.inf]])  # of the ridge, for scaled z


@dataclass(frozen=True, eq=False)
class DescriptorCentre:
    """What tasks with given descriptors have in common; make it with `descriptor_centre`.

    Parameters
    ----------
    kernel : KernelSum
        With features.
    mean : (d,) array
        Coefficients of an average task.
    slopes : (q, d) array
        How they change with the descriptors, in units of these.
    origin : (q,) array
        Descriptors of the average task.
    norm_bound : float
        Of the next task minus the centre, in the norm of the kernel.
    delta : float
        Probability with which that fails: of the bound itself, of the records, and of learning.
    tasks : int
        How many tasks vouch for it.
    """

    kernel: KernelSum
    mean: Array
    slopes: Array
    origin: Array
    norm_bound: float
    delta: float
    tasks: int

    def at(self, descriptors: ArrayLike) -> KernelFunction:
        """The centre of a task with these (q,) descriptors, for ``centre=`` of `GPUCB`."""
        z = np.asarray(descriptors, dtype=np.float64).reshape(-1)
        if z.shape != self.origin.shape or not np.isfinite(z).all():
            raise ShapeError(
                f"descriptors are {z.tolist()}; expected {len(self.origin)} finite numbers"
            )
        return KernelFunction(self.kernel, self.mean + (z - self.origin) @ self.slopes)

    def __repr__(self) -> str:
        return (
            f"DescriptorCentre({len(self.origin)} descriptors, norm bound {self.norm_bound:.3g} "
            f"with probability {1 - self.delta:g}, by {self.tasks} tasks)"
        )


def descriptor_centre(
    history: History,
    base: KernelSum | KernelDictionary,
    descriptors: ArrayLike | None = None,
    *,
    noise_std: float,
    delta: float = 0.05,
    delta_records: float = 0.03,
    delta_learning: float = 0.02,
) -> DescriptorCentre:
    """A centre by descriptors, with a norm bound for the next task.

    The first half of the tasks teaches kernel and centre, the second half calibrates the bound. It
    holds if tasks, with their records and descriptors, are exchangeable with the next one.

    Parameters
    ----------
    history : History
    base : KernelSum or KernelDictionary
        A kernel with features that owes nothing to these tasks, or base kernels to select from.
    descriptors : (m, q) array
        One row for every task; q may be 0. By default those of the history, which readers take
        from columns (``History.from_csv(..., descriptors=["mass"])``).
    noise_std : float
        Noise of the records.
    delta, delta_records, delta_learning : float
        Probabilities with which the bound, the imagined record of the next task, and the selection
        may fail.
    """
    history.require_complete("descriptor_centre")
    given = history.descriptors if descriptors is None else descriptors
    Z = as_numbers("descriptors", given, (history.m, None))
    noise_std, first = positive("noise_std", noise_std), history.m // 2
    count, spent = history.m - first, delta + delta_records
    rank = conformal_rank(delta, count)
    if rank > count:
        raise InputError(
            f"{history.m} tasks are too few for a norm bound at delta = {delta:g}; "
            f"expected at least {2 * ceil(1 / delta - 1)}, half of which calibrate"
        )
    kernel = base
    if isinstance(kernel, KernelDictionary):
        past = History(history.tasks[:first])
        kernel = learn_kernel(past, kernel, noise_std=noise_std, delta=delta_learning).kernel
        spent += delta_learning
    if not (kernel.finite and len(kernel.active)):
        raise InputError("expected a kernel with features that is not empty; nothing was learned")
    records = [TaskRecord.of(kernel, task, noise_std) for task in history]
    theta = np.array([record.theta for record in records])
    origin, mean = Z[:first].mean(axis=0), theta[:first].mean(axis=0)
    slopes = _ridge(Z[:first] - origin, theta[:first] - mean)
    centres = mean + (Z - origin) @ slopes
    norms = [
        record.largest_norm(centre, delta_records)
        for record, centre in zip(records[first:], centres[first:], strict=True)
    ]
    bound = float(np.sort(norms)[rank - 1])
    if bound == inf:
        raise InputError(
            f"too many tasks have fewer than {kernel.dim} points in general position, so nothing "
            "bounds their norm; expected more points in each task"
        )
    return DescriptorCentre(kernel, mean, slopes, origin, bound, spent, count)


def _ridge(Z: Array, theta: Array) -> Array:
    """(q, d) slopes of centred ``theta`` (m, d) on centred ``Z`` (m, q).

    The strength has the smallest leave-one-out error; an infinite one ignores the descriptors.
    """
    scale = Z.std(axis=0)
    scale[scale == 0] = 1.0
    left, singular, right = np.linalg.svd(Z / scale, full_matrices=False)
    along, m = left.T @ theta, len(Z)

    def shrunk(strength: float) -> Array:
        return singular**2 / (singular**2 + strength * m)

    def error(strength: float) -> float:
        share = shrunk(strength)
        leverage = (left**2) @ share + 1 / m  # that of the mean included
        rest = theta - left @ (share[:, None] * along)
        return float(((rest / np.maximum(1 - leverage, 1e-9)[:, None]) ** 2).sum())

    best = min(STRENGTHS, key=error)
    inverse = np.divide(shrunk(best), singular, where=singular > 0, out=np.zeros_like(singular))
    slopes: Array = right.T @ (inverse[:, None] * along) / scale[:, None]
    return slopes
