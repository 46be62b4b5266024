"""Kinds of past tasks, and how the descriptors of a task weigh them.

Kinds are groups of tasks that predict one another, where all together do not. What task s
shows is fitted by a function f_s. The affinity of two tasks is the correlation between f_s at the
points of task u and the values there, averaged over both directions. Tasks of one kind have a high
affinity; that of tasks of different kinds, or with values that say nothing, is about 0 or negative.
A group is split in two where tasks of different parts have less than half of the affinity of tasks
of one part, and tasks without affinity to the others are set aside where they are many. In
histories of one kind nothing comes near these thresholds, and nothing changes.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isinf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.data import History
from metakel.errors import InputError
from metakel.gp.task_gp import TaskGP
from metakel.kernels.nystrom import spread_rows
from metakel.priors.principal import ROWS, HeldOut, TaskFeatures

# From fewer tasks nothing can be learned and checked on the others.
SMALLEST_KIND = 3
# Affinity between parts over that within, below which they are of different kinds.
BETWEEN = 0.5
# Tasks of a kind predict one another at least this well.
LEAST_AFFINITY = 0.2
# Tasks that agree with no others are set aside where they are at least this share of all.
SET_ASIDE = 0.25
# Nats per value by which kinds must predict held-out tasks better than all tasks together do.
NEEDED_GAIN = 0.02
SWEEPS = 20
# Tasks that are compared: the time grows with their square, so that a longer history is taken as of
# one kind.
MOST_TASKS = 256

Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of past tasks.

    Parameters
    ----------
    tasks : names of its tasks
    task_gp : TaskGP
        What they have in common and where they differ.
    noise_ratio : 3 floats
        Which share of them has 1, 1/10 and 1/100 of their usual noise.
    """

    tasks: tuple[str, ...]
    task_gp: TaskGP
    noise_ratio: tuple[float, ...]


def kind_numbers(names: Sequence[str], kinds: Sequence[Kind]) -> tuple[int, ...]:
    """The kind of every task, from 0; -1 for those of none."""
    numbers = {name: k for k, kind in enumerate(kinds) for name in kind.tasks}
    return tuple(numbers.get(name, -1) for name in names)


def affinity(featurized: TaskFeatures) -> Array:
    """(m, m) how well tasks predict one another, as correlations; 0 on the diagonal."""
    m, w = featurized.m, featurized.coefficients.w
    R = np.empty((m, m))
    for u in range(m):
        rows = spread_rows(np.arange(len(featurized.tasks.z[u])), ROWS)
        F, z = featurized.F[u][rows], featurized.tasks.z[u][rows]
        z = z - z.mean()
        fitted = F @ w.T  # (n_u, m)
        fitted -= fitted.mean(axis=0)
        sizes = np.linalg.norm(fitted, axis=0) * np.linalg.norm(z)
        R[:, u] = (z @ fitted) / np.where(sizes > 0, sizes, 1.0)
    R += R.T
    R /= 2
    R.flat[:: m + 1] = 0.0
    return R


def groups_of(featurized: TaskFeatures) -> list[Indices]:
    """Kinds of the tasks; one group of all where they are alike, few or very many."""
    if featurized.m > MOST_TASKS:
        return [np.arange(featurized.m)]
    return find_kinds(affinity(featurized))


def find_kinds(R: Array) -> list[Indices]:
    """Groups of tasks by their affinity, largest first; one group of all where they are alike.

    Tasks in no group agree with no others.
    """
    found = _divide(R, np.arange(len(R)))
    return sorted(found, key=lambda group: -len(group))


def better_than_together(kinds: Sequence[tuple[Indices, HeldOut]], together: HeldOut) -> bool:
    """Whether held-out tasks are predicted better by their kind than by all tasks."""
    known = dict(zip(together.tasks.tolist(), together.log_scores.tolist(), strict=True))
    gains = [
        score - known[task]
        for group, held in kinds
        for task, score in zip(group[held.tasks].tolist(), held.log_scores.tolist(), strict=True)
        if task in known
    ]
    return bool(gains) and float(np.median(gains)) >= NEEDED_GAIN


def _divide(R: Array, group: Indices) -> list[Indices]:
    """Split as long as the parts are of different kinds; then set aside who agrees with nobody."""
    own = R[np.ix_(group, group)]
    parts = _two_parts(own)
    if parts is not None:
        return [kind for part in parts for kind in _divide(R, group[part])]
    core = _core(own)
    if core is not None and len(core) <= (1 - SET_ASIDE) * len(group):
        return [group[core]]
    return [group]


def _two_parts(R: Array) -> tuple[Indices, Indices] | None:
    """The two parts that differ most, if they are of different kinds."""
    m = len(R)
    if m < 2 * SMALLEST_KIND:
        return None
    vectors = np.linalg.eigh(R)[1][:, [-1, -2, 0]].T
    best, parts = -np.inf, None
    for start in (v > cut for v in vectors for cut in (0.0, np.median(v))):
        first = _settle(R, start)
        if first is None:
            continue
        a, b = np.flatnonzero(first), np.flatnonzero(~first)
        within = (len(a) * _within(R, a) + len(b) * _within(R, b)) / m
        between = float(R[np.ix_(a, b)].mean())
        differ = between < BETWEEN * within and within >= LEAST_AFFINITY
        if differ and within - between > best:
            best, parts = within - between, (a, b)
    return parts


def _settle(R: Array, first: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Move every task to the part that it has more affinity to; None where a part gets small."""
    for _ in range(SWEEPS):
        if min(first.sum(), (~first).sum()) < SMALLEST_KIND:
            return None
        moved = _to(R, first) > _to(R, ~first)
        if (moved == first).all():
            break
        first = moved
    return first if min(first.sum(), (~first).sum()) >= SMALLEST_KIND else None


def _core(R: Array) -> Indices | None:
    """Tasks that have at least half of the affinity that these have among themselves."""
    m = len(R)
    core = np.argsort(-R.mean(axis=1), kind="stable")[: max(SMALLEST_KIND, m // 3)]
    for _ in range(SWEEPS):
        among = _within(R, core)
        if among < LEAST_AFFINITY:
            return None
        kept = np.flatnonzero(_to(R, np.isin(np.arange(m), core)) >= BETWEEN * among)
        if len(kept) < SMALLEST_KIND:
            return None
        if np.array_equal(kept, np.sort(core)):
            break
        core = kept
    return np.sort(core)


def _to(R: Array, part: NDArray[np.bool_]) -> Array:
    """(m,) mean affinity of every task to the others of a part."""
    return np.asarray(R[:, part].sum(axis=1) / np.maximum(part.sum() - part, 1))


def _within(R: Array, part: Indices) -> float:
    """Mean affinity of two tasks of a part."""
    n = len(part)
    return float(R[np.ix_(part, part)].sum() / max(n * (n - 1), 1))


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
        values = {n: tuple(_known(task.descriptors.get(n)) for task in history) for n in names}
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
            texts = (np.array([str(v) for v in each], dtype=object) for each in (given, past))
            same = np.equal.outer(*texts)[:, here].astype(np.float64)
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
        found = {n: self._as_value(n, v) for n, v in given.items() if _known(v) is not None}
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
        recorded = [float(v) for v in past if v is not None]
        low, high = min(recorded), max(recorded)
        if low <= value <= high:
            return ""
        end = low if value < low else high
        return f"{name} = {value:g} is beyond {low:g} to {high:g} of past tasks, taken as {end:g}"


def _known(value: Any) -> Any:
    """Text, or a number as a float; None for nan, which says as little."""
    if isinstance(value, numbers.Real):
        value = float(value)
    return None if value != value else value


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
