r"""Descriptors of tasks, such as the mass of a vehicle, through the centre that tasks share.

A descriptor z is constant within a task, so it cannot be a context: the coefficients of the task
absorb it (Statement 8). What it can explain is where tasks lie,

.. math:: m(x, z) = \phi(x)^\top W (1, z),

and what is left, f_s - m(., z_s), gets the learned kernel with a norm bound. W is a ridge
regression of the coefficients of teaching tasks on their descriptors. The norm bound is conformal
over other tasks, so that it holds whatever W is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_numbers, positive
from metakel.data import History
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelDictionary, KernelSum
from metakel.kernels.sum import KernelFunction
from metakel.learn import learn_kernel
from metakel.priors.certified_start import TaskRecord

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
    rank = ceil((1 - delta) * (count + 1) - 1e-12)
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
