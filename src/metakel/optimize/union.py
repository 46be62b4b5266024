r"""Several kernels, of which one holds the objective: nobody says which.

Every kernel has a confidence sequence whose mixture has all of the others in it, so its radius is
small as soon as one of them explains the values, and the sets of kernels that do not fit become
empty. Those are dropped. The bounds are the union of what is left,

.. math:: l(x) = \min_{J\ \text{alive}} l_J(x), \qquad u(x) = \max_{J\ \text{alive}} u_J(x).

If the objective lies in the space of one of the kernels, with its norm bound, then with probability
1 - delta that one is never dropped, and its interval is within the union: the bounds hold for all
points and times (Statement 13 of ``docs/guide/decide.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from metakel._arrays import Array
from metakel.confidence.fallback import AlarmEvent
from metakel.errors import InputError
from metakel.kernels.sum import KernelSum, as_kernel
from metakel.optimize.certified import CertifiedModel, load_certified, most_certain
from metakel.optimize.model import Model, Score
from metakel.optimize.record import Outcomes
from metakel.search import Domain, StartPoints


class UnionModel(Model):
    """The objective lies in the space of one of several kernels; `make` makes it.

    Parameters
    ----------
    members : sequence of CertifiedModel
        One for every kernel.
    """

    kind: ClassVar[str] = "union"

    def __init__(self, members: Sequence[CertifiedModel]) -> None:
        self.members = tuple(members)
        self.alive = tuple(range(len(self.members)))
        self._alarm: AlarmEvent | None = None

    @classmethod
    def make(cls, kernels: Sequence[KernelSum], domain: Domain | None, **options: Any) -> Self:
        """With the arguments of `CertifiedModel.make`."""
        if not len(kernels):
            raise InputError("no kernel was given; expected one, or several to choose from")
        given = [as_kernel(f"kernel[{i}]", kernel) for i, kernel in enumerate(kernels)]
        for i, kernel in enumerate(given):
            if not len(kernel.active):
                raise InputError(f"kernel[{i}] has no active base kernel; leave it out")
        if options.get("nu") is not None or options.get("on_alarm") != "widen":
            raise InputError(
                "several kernels decide by their confidence bounds; expected no nu, and on_alarm "
                '"widen" or "stop"'
            )
        members = []
        for i, kernel in enumerate(given):
            rivals = tuple(given[:i] + given[i + 1 :])
            members.append(CertifiedModel.make(kernel, domain, rivals=rivals, **options))
        return cls(members)

    @property
    def d0(self) -> int | None:
        known = [member.d0 for member in self.members if member.d0 is not None]
        return known[0] if known else None

    # How it learns

    def prepare(self, start: StartPoints) -> Self:
        return self._with([member.prepare(start) for member in self.members])

    def observe(self, X: Array, y: Array, noise_std: Array) -> Self:
        """After the observations of one call, without the kernels that do not fit any more.

        The first one always goes on: where none is left, its sequence has fallen back to all base
        kernels, and which one falls back must not depend on the values.
        """
        kept = {0, *self.alive}
        model = self._with(
            [
                member.observe(X, y, noise_std) if i in kept else member
                for i, member in enumerate(self.members)
            ]
        )
        model.alive = tuple(i for i in self.alive if model.members[i].alarm is None)
        last = model.members[0].alarm
        if last is not None and not model.alive:
            if self.alive:  # when the last one was dropped
                time = max(m.alarm.time for m in model.members if m.alarm is not None)
                assumed = model.members[0].describe()
                reason = (
                    f"none of the {len(self.members)} kernels fits; assumed from here on: {assumed}"
                )
                model._alarm = AlarmEvent(time, reason)
            elif self._alarm is not None and last.time > self._alarm.time:
                model._alarm = last
        return model

    def condition(self, outcomes: Outcomes) -> Self:
        model = super().condition(outcomes)
        members = [copy(member) for member in model.members]
        for member in members:
            member.outcomes = outcomes
        return model._with(members)

    def with_fantasies(self, X: Array) -> Self:
        return self._with([member.with_fantasies(X) for member in self.members])

    def _with(self, members: Sequence[CertifiedModel]) -> Self:
        model = copy(self)
        model.members = tuple(members)
        return model

    # What it answers

    @property
    def believed(self) -> tuple[CertifiedModel, ...]:
        """The models of the kernels that still fit; of all base kernels where none does."""
        return tuple(self.members[i] for i in self.alive) or self.members[:1]

    @property
    def no_bounds(self) -> str:
        return ""

    @property
    def delta(self) -> float:
        return self.members[0].delta

    @property
    def alarm(self) -> AlarmEvent | None:
        """Set where no kernel is left, or what is assumed then does not fit either."""
        return self._alarm

    @property
    def transfer_weight(self) -> float:
        """The share of the kernels that still fit."""
        return len(self.alive) / len(self.members)

    @property
    def scale(self) -> float:
        """The largest range of the upper bounds over the start points."""
        return max(member.scale for member in self.believed)

    def first_score(self) -> Score | None:
        """The standard deviation with all base kernels, for the probes; then None."""
        return self.members[0].first_score()

    def upper_bound(self) -> Score:
        """The largest of the upper bounds, less wide around fantasies (Eq. 11)."""
        scores = [member.upper_bound() for member in self.believed]

        def values(Z: Array) -> Array:
            return np.asarray(np.max([score.values(Z) for score in scores], axis=0))

        def with_gradient(Z: Array) -> tuple[Array, Array]:
            found = [score.gradient(Z) for score in scores if score.gradient is not None]
            heights = np.array([height for height, _ in found])
            best, each = heights.argmax(axis=0), np.arange(len(Z))
            return heights[best, each], np.array([slope for _, slope in found])[best, each]

        smooth = all(score.gradient is not None for score in scores)
        return Score(values, with_gradient if smooth else None)

    def bounds(self, Z: Array) -> tuple[Array, Array]:
        return _union([member.bounds(Z) for member in self.believed])

    def bounds_within(self, Z: Array) -> tuple[Array, Array]:
        return _union([member.bounds_within(Z) for member in self.believed])

    def predict(self, Z: Array) -> tuple[Array, Array]:
        """(n,) means and standard deviations of the models that are left, in equal parts."""
        means, sds = np.transpose([member.predict(Z) for member in self.believed], (1, 0, 2))
        return means.mean(axis=0), np.sqrt((sds**2).mean(axis=0) + means.var(axis=0))

    def largest_upper(self, domain: Domain, start: StartPoints) -> float:
        """The largest upper bound in the domain, of all that are left."""
        return max(member.largest_upper(domain, start) for member in self.believed)

    def best(self, outcomes: Outcomes) -> tuple[int, float, float, float]:
        """The observed point with the largest lower bound; where all are infinite, mean."""
        lower, upper = self.bounds_within(outcomes.X)
        return most_certain(outcomes, self.predict(outcomes.X)[0], lower, upper)

    def certain(self, outcomes: Outcomes) -> tuple[int, float, float]:
        """The same point as `best`."""
        chosen, _, lower, upper = self.best(outcomes)
        return chosen, lower, upper

    def describe(self) -> str:
        """How many kernels are left."""
        if not self.alive:
            return self.members[0].describe()
        return f"{len(self.alive)} of {len(self.members)} kernels fit"

    # How it is kept

    def to_dict(self) -> dict[str, Any]:
        first = self if self._first is None else self._first
        members = [member.to_dict() for member in first.members]
        return {"kind": self.kind, "members": members, "stops": self.stops}


def load_union(
    data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
) -> UnionModel:
    """Inverse of `UnionModel.to_dict`."""
    kernels = [KernelSum.from_json(m["kernel"], functions) for m in data["members"]]
    model = UnionModel(
        [
            load_certified(member, functions, kernels[:i] + kernels[i + 1 :])
            for i, member in enumerate(data["members"])
        ]
    )
    model.stops = bool(data.get("stops", False))
    return model


def _union(intervals: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    lower, upper = zip(*intervals, strict=True)
    return np.min(lower, axis=0), np.max(upper, axis=0)
