"""The safety arguments of `GPUCB`: what is limited, where to begin, and who gets which delta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metakel.errors import InputError
from metakel.optimize.certified import CertifiedModel
from metakel.optimize.limits import Limit, Range, refuse_growing, shares
from metakel.optimize.safe import SafeModel
from metakel.optimize.start_set import SafeStart, StartSet, VouchedPoints
from metakel.search import Domain


@dataclass(frozen=True, eq=False)
class Safety:
    """Limits, a start set, and shares of delta that add up.

    Parameters
    ----------
    range : Range
        Limits of the objective, in the sign of the values.
    limits : dict of Limit
    start : StartSet or None
    delta : float
        Of everything together.
    objective_share : float
        What the bounds of the objective get for deciding.
    limit_shares : dict
        What the bounds of the other outputs get.
    """

    range: Range
    limits: Mapping[str, Limit]
    start: StartSet | None
    delta: float
    objective_share: float
    limit_shares: Mapping[str, float]

    @classmethod
    def of(
        cls,
        domain: Domain,
        *,
        at_least: float | None,
        at_most: float | None,
        limits: Mapping[str, Limit] | None,
        start: Any,
        delta: float,
        delta_learning: float,
    ) -> Safety | None:
        """From the arguments of `GPUCB`; None where nothing is limited."""
        allowed, others = Range.of("GPUCB", at_least, at_most), dict(limits or {})
        for name, limit in others.items():
            if not isinstance(limit, Limit):
                raise InputError(f"limit {name!r} is a {type(limit).__name__}; expected mk.Limit")
        if not (allowed.bounded or others):
            if start is not None:
                raise InputError(
                    "start is given without a limit; expected at_least, at_most or limits too"
                )
            return None
        first = as_start_set(start, domain)
        spent = delta_learning + (0.0 if first is None else first.delta)
        return cls(allowed, others, first, delta, *shares(delta, spent, others))

    def check(self, *, nu: Any, method: str, norm_bound: Any, on_alarm: str) -> None:
        """Refuse options of `GPUCB` under which nothing can be promised."""
        if nu is not None:
            raise InputError("nu promises nothing, so it cannot keep limits; leave it out")
        if method != "dmm":
            raise InputError(f'method is {method!r}; limits need "dmm", which holds at all times')
        if on_alarm == "ignore":
            raise InputError(
                'on_alarm is "ignore", after which nothing holds; with limits expected "stop"'
            )
        refuse_growing(norm_bound)

    def around(
        self, objective: CertifiedModel, domain: Domain | None, *, on_alarm: str, maximize: bool
    ) -> SafeModel:
        """The safe model of an objective, which is in the sign to be maximised."""
        outputs = {}
        for name, limit in self.limits.items():
            options = limit.sequence_options(self.limit_shares[name])
            outputs[name] = CertifiedModel.make(limit.kernel, domain, on_alarm=on_alarm, **options)
        return SafeModel.around(
            objective,
            range=self.range if maximize else -self.range,
            outputs=outputs,
            ranges={name: limit.range for name, limit in self.limits.items()},
            start=self.start,
            delta=self.delta,
        )


def as_start_set(start: Any, domain: Domain) -> StartSet | None:
    """A start set as it is, or points of the domain that the user vouches for."""
    if start is None or isinstance(start, SafeStart):
        return start
    points = domain.encode(start, "start")
    if not len(points):
        raise InputError("start has no points; expected at least one that you vouch for")
    return VouchedPoints(points)
