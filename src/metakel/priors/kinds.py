"""Kinds of past tasks.

Kinds are groups of tasks that predict one another, where all together do not. What task s
shows is fitted by a function f_s. The affinity of two tasks is the correlation between f_s at the
points of task u and the values there, averaged over both directions. Tasks of one kind have a high
affinity; that of tasks of different kinds, or with values that say nothing, is about 0 or negative.
A group is split in two where tasks of different parts have less than half of the affinity of tasks
of one part, and tasks without affinity to the others are set aside where they are many. In
histories of one kind nothing comes near these thresholds, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
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
