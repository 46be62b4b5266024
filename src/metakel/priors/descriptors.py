r"""Descriptors of tasks, such as the mass of a vehicle: the centre that tasks share, and kinds.

A descriptor z is constant within a task, so it cannot be a context: the coefficients of the task
absorb it (Statement 8). What it can explain is which kind of task it is (`KindDescriptors`), and
where tasks lie,

.. math:: m(x, z) = \phi(x)^\top W (1, z),

and what is left, f_s - m(., z_s), gets the learned kernel with a norm bound. W is a ridge
regression of the coefficients of teaching tasks on their descriptors. The norm bound is conformal
over other tasks, so that it holds whatever W is.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, isinf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_numbers, positive
from metakel.data import History
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelDictionary, KernelSum
from metakel.kernels.sum import KernelFunction
from metakel.learn import learn_kernel
from metakel.priors.certified_start import TaskRecord
from metakel.priors.heldout import Kind, kind_numbers

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


# Kinds of tasks

Value = float | str
# Exponents of the likelihood: several descriptors may say the same.
TEMPERS = (1.0, 0.5, 0.25)
# A kind keeps this share of the weight that it has without descriptors, whatever they say.
KEPT = 0.1
# Each of q descriptors is compared with 40 q - 1 histories of shuffled kinds, of which at most one
# may have as large a gain. So one is used with probability 0.05 where all say nothing.
SHUFFLES = 40


@dataclass(frozen=True, eq=False)
class KindDescriptors:
    r"""How the descriptors of a task weigh kinds of tasks; `learn_prior` makes it.

    Kind k, with n_k of the n tasks in kinds, has for a task with descriptors z the weight

    .. math:: w_k = 0.9\,p_k + 0.1\,\frac{n_k}{n}, \qquad
              p_k \propto n_k \prod_j p(z_j \mid k)^\tau.

    A number counts by its rank among past tasks, as a normal score. In every kind it is Gaussian
    around the mean of the kind, with one variance within all kinds. Both are drawn to those of all
    tasks by one more task. A text counts by its share in the kind, with one more task that has the
    shares of all. The exponent is the one of 1, 1/2 and 1/4 with which held-out tasks are told
    best. A value that is not known says nothing.

    Parameters
    ----------
    values : dict of tuples
        By the name of the descriptor, one value for every past task; None where it is not known.
    kinds : tuple of int
        The kind of every past task, from 0; -1 for those of none.
    used : tuple of str
        Descriptors that tell the kind of held-out tasks; others change nothing.
    temper : float
        The exponent.
    """

    values: Mapping[str, tuple[Value | None, ...]]
    kinds: tuple[int, ...]
    used: tuple[str, ...] = ()
    temper: float = 1.0

    @classmethod
    def learn(cls, history: History, kinds: Sequence[Kind]) -> KindDescriptors:
        """From the descriptors of past tasks.

        Every descriptor is judged alone: by how much better it tells the kinds of tasks that were
        left out, one at a time, than the sizes of the kinds do. If kinds had nothing to do with
        descriptors, at most one history in 20 would have a descriptor that is used.
        """
        names = list(dict.fromkeys(name for task in history for name in task.descriptors))
        values = {name: tuple(task.descriptors.get(name) for task in history) for name in names}
        found = cls(values, kind_numbers([task.name for task in history], kinds))
        if len(kinds) < 2:
            return found
        found = replace(found, used=tuple(n for n in names if found._tells(n, len(names))))
        return replace(found, temper=max(TEMPERS, key=lambda t: replace(found, temper=t).gain))

    def _tells(self, name: str, among: int) -> bool:
        """Whether the gain of a descriptor is more than chance, as one among several."""
        alone, rng, larger = replace(self, used=(name,)), np.random.default_rng(0), 0
        gain, kinds = alone.gain, np.array(self.kinds)
        if gain <= 0:
            return False
        members = np.flatnonzero(kinds >= 0)
        for _ in range(SHUFFLES * among - 1):
            kinds[members] = rng.permutation(kinds[members])
            larger += replace(alone, kinds=tuple(kinds.tolist())).gain >= gain - 1e-12
            if larger > 1:
                return False
        return True

    @property
    def gain(self) -> float:
        """Nats by which a held-out task's kind is more likely than without descriptors."""
        L = self._members
        rows = np.flatnonzero(L.any(axis=1))
        own = L[rows]
        evidence = sum(
            (self._evidence(name, [self.values[name][s] for s in rows], own) for name in self.used),
            np.zeros(own.shape),
        )
        left = L.sum(axis=0) - own
        weights = _kind_weights(self.temper * evidence, left)
        return float(np.log((weights / (left / left.sum(axis=1, keepdims=True)))[own > 0]).mean())

    def weights(self, task: Mapping[str, Value]) -> Array:
        """(K,) weights of the kinds for a task, which sum to 1."""
        sizes = self._members.sum(axis=0)[None]
        evidence = sum(
            (self._evidence(n, [task.get(n)], np.zeros(sizes.shape)) for n in self.used),
            np.zeros(sizes.shape),
        )
        return np.asarray(_kind_weights(self.temper * evidence, sizes)[0])

    @cached_property
    def _members(self) -> Array:
        """(m, K) which task is of which kind."""
        return np.asarray(np.equal.outer(self.kinds, range(max(self.kinds) + 1)), dtype=np.float64)

    def _evidence(self, name: str, given: Sequence[Value | None], left_out: Array) -> Array:
        """(a, K) log likelihoods of these values without tasks that are ``left_out`` (a, K)."""
        past = [v if k >= 0 else None for v, k in zip(self.values[name], self.kinds, strict=True)]
        here = np.array([v is not None for v in past])
        known = np.array([v is not None for v in given])
        L = self._members[here]
        N = L.sum(axis=0) - left_out
        if self.is_text(name):
            same = np.equal.outer(np.array(given), np.array(past)[here]).astype(np.float64)
            shares = (same.sum(axis=1) - left_out.sum(axis=1)) / np.maximum(N.sum(axis=1), 1)
            found = (same @ L - left_out + shares[:, None]) / (N + 1)
            logs = np.log(np.where(shares[:, None] > 0, found, 1.0))
        else:
            recorded = np.sort(np.array(past)[here].astype(np.float64))
            u = _normal_scores(np.array(past)[here].astype(np.float64), recorded)
            z = _normal_scores(np.array(given, dtype=np.float64), recorded)[:, None]
            sums, squares = u @ L - left_out * z, u**2 @ L - left_out * z**2
            rest = (squares - sums**2 / np.maximum(N, 1)).sum(axis=1)
            variance = (rest + 1) / (N.sum(axis=1) + 1)
            logs = -((z - sums / (N + 1)) ** 2) / (2 * variance[:, None])
        return np.where(known[:, None], logs, 0.0)

    def is_text(self, name: str) -> bool:
        """Whether a descriptor is text, not a number."""
        return any(isinstance(value, str) for value in self.values[name])

    def checked(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """The descriptors of a new task; warns of what past tasks say nothing about."""
        unknown = [name for name in given if name not in self.values]
        if unknown:
            raise InputError(
                f"past tasks have no descriptor {unknown[0]!r}; known are {', '.join(self.values)}"
            )
        found = {n: self._as_value(n, v) for n, v in given.items() if v is not None and v == v}
        said = [text for name in self.used if (text := self._unknown(name, found.get(name)))]
        if said:
            warnings.warn(f"descriptors of this task: {'; '.join(said)}", stacklevel=3)
        return found

    def lacking(self, task: Mapping[str, Value]) -> list[str]:
        """Descriptors that would be used, of which this task has none."""
        return [name for name in self.used if name not in task]

    def _as_value(self, name: str, value: Any) -> Value:
        if self.is_text(name):
            return str(value)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = inf
        if isinf(number):
            raise InputError(f"descriptor {name!r} is {value!r}; expected a number")
        return number

    def _unknown(self, name: str, value: Value | None) -> str:
        """What to say of a value that no task of a kind is like; empty where there is one."""
        past = [v for v, k in zip(self.values[name], self.kinds, strict=True) if k >= 0]
        if value is None:
            return f"{name} is not known, so that kinds are weighed without it"
        if isinstance(value, str):
            if value in past:
                return ""
            return f"{name} = {value!r} is new, so that kinds are weighed without it"
        numbers = [v for v in past if isinstance(v, float)]
        low, high = min(numbers), max(numbers)
        if low <= value <= high:
            return ""
        end = low if value < low else high
        return f"{name} = {value:g} is beyond {low:g} to {high:g} of past tasks, taken as {end:g}"


def _kind_weights(evidence: Array, sizes: Array) -> Array:
    """(a, K) weights by log likelihoods (a, K) and sizes of the kinds; each row sums to 1."""
    found = sizes * np.exp(evidence - evidence.max(axis=1, keepdims=True))
    shares = sizes / sizes.sum(axis=1, keepdims=True)
    return np.asarray((1 - KEPT) * found / found.sum(axis=1, keepdims=True) + KEPT * shares)


def _normal_scores(values: Array, recorded: Array) -> Array:
    """Ranks among the sorted recorded values, as quantiles of the normal distribution."""
    from scipy.special import ndtri

    n = len(recorded)
    ranks = (np.searchsorted(recorded, values) + np.searchsorted(recorded, values, "right")) / 2
    return np.asarray(ndtri(np.clip(ranks, 0.5, n - 0.5) / n))
