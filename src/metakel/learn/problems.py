"""The group lasso (Eq. 8) of a history, in memory or out of core."""

from __future__ import annotations

from typing import Protocol, Self, overload

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.errors import InputError, ShapeError
from metakel.grouplasso import Problem
from metakel.kernels import KernelDictionary
from metakel.learn.options import Loss
from metakel.learn.refit import Fittable
from metakel.learn.rule_spectrum import NoiseProblem


class OutOfCoreProblem(Fittable, NoiseProblem, Protocol):
    """A problem whose tasks are not in memory: `metakel.scale.ShardedProblem`."""

    start: Array | None  # weights x = eta / lambda to start from, if known


class OutOfCoreHistory(Protocol):
    """A history whose tasks are not in memory: `metakel.scale.ShardedHistory`."""

    @property
    def m(self) -> int: ...
    @property
    def d0(self) -> int: ...
    @property
    def total(self) -> int: ...
    def as_problem(self, base: KernelDictionary, loss: Loss = "points") -> OutOfCoreProblem: ...
    def joined(
        self, new: Self | History, base: KernelDictionary, loss: Loss
    ) -> tuple[Self, OutOfCoreProblem]: ...


@overload
def as_problem(history: History, base: KernelDictionary, loss: Loss = "points") -> Problem: ...
@overload
def as_problem(
    history: History | OutOfCoreHistory, base: KernelDictionary, loss: Loss = "points"
) -> Problem | OutOfCoreProblem: ...
def as_problem(
    history: History | OutOfCoreHistory, base: KernelDictionary, loss: Loss = "points"
) -> Problem | OutOfCoreProblem:
    """Eq. 8 for a history: with features if every base kernel has them, else with Gram matrices."""
    if not isinstance(history, History):
        return history.as_problem(base, loss)
    values = [task.y for task in history]
    if not base.finite:
        return Problem.from_grams([base.grams(task.X) for task in history], values, loss=loss)
    features = base.features(np.concatenate([task.X for task in history]))  # (N, d)
    if (history.sizes == history.sizes[0]).all():
        m, n = history.m, int(history.sizes[0])
        stacked = features.T.reshape(base.dim, m, n).transpose(1, 2, 0)  # a view
        return Problem.from_arrays(stacked, np.array(values), base.groups)
    ends = np.cumsum(history.sizes)
    parts = [features[stop - n : stop] for stop, n in zip(ends, history.sizes, strict=True)]
    return Problem.from_tasks(parts, values, base.groups, loss=loss)


def check_match(history: History | OutOfCoreHistory, base: KernelDictionary) -> None:
    """Raise if these base kernels cannot be applied to this history."""
    if not isinstance(history, History) and not hasattr(history, "as_problem"):
        raise InputError(f"history is a {type(history).__name__}; make one by History.from_pairs")
    if isinstance(history, History):
        history.require_complete("learn_kernel")
    if not isinstance(base, KernelDictionary) or base.p == 0:
        found = "empty" if isinstance(base, KernelDictionary) else f"a {type(base).__name__}"
        raise InputError(
            f"base is {found}; expected a dictionary of at least one base kernel, "
            'e.g. legendre(20, scaling="l2")'
        )
    if base.d0 not in (None, history.d0):
        raise ShapeError(f"the base kernels take {base.d0} inputs but the tasks have {history.d0}")
