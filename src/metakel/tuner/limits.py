"""Limits of a run: what must hold at every configuration that is asked for, and where to begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metakel.errors import Hint, InputError
from metakel.optimize import GPUCB, Optimizer
from metakel.optimize.limits import Range
from metakel.optimize.start_set import SafeStart
from metakel.priors import PastOutputs, Prior
from metakel.search import Domain
from metakel.tuner.configurations import Configuration, plain

START_HINT = Hint(
    "name configurations that you vouch for", "start=[{...}]", "--start name=value,name=value"
)
DELTA_HINT = Hint("accept a larger risk", "delta=...", "--delta")


@dataclass(frozen=True)
class RunLimits:
    """What a run must respect.

    Parameters
    ----------
    ranges : dict of Range
        By the names of outputs, the objective among them if it is limited.
    start : tuple of dict
        Configurations that the user vouches for; without them past tasks have to.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    start: tuple[Configuration, ...] = ()

    @classmethod
    def of(
        cls,
        limits: Mapping[str, Sequence[float | None]] | None,
        start: Sequence[Mapping[str, Any]] | None,
    ) -> RunLimits:
        """From pairs (smallest, largest) by the names of outputs; None for no limit."""
        ranges = {}
        for name, ends in dict(limits or {}).items():
            if not isinstance(ends, list | tuple) or len(ends) != 2:
                raise InputError(
                    f"the limit of {name!r} is {ends!r}; expected a pair (smallest, largest), with "
                    "None where there is no limit"
                )
            ranges[str(name)] = Range.of(f"limit of {name!r}", *ends)
        for name, allowed in ranges.items():
            if not allowed.bounded:
                raise InputError(f"the limit of {name!r} allows everything; leave it out")
        rows = tuple(plain(row) for row in start or ())
        if rows and not ranges:
            raise InputError("start is given without a limit; expected limits too")
        return cls(ranges, rows)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def header(self) -> dict[str, Any]:
        """What a journal notes; nothing where nothing is limited."""
        if not self:
            return {}
        limits = {name: allowed.to_list() for name, allowed in self.ranges.items()}
        return {"limits": limits, **({"start": list(self.start)} if self.start else {})}

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> RunLimits:
        """Inverse of `header`."""
        return cls.of(header.get("limits"), header.get("start"))

    def __str__(self) -> str:
        return ", ".join(f"{name} {allowed}" for name, allowed in self.ranges.items())


def safe_optimizer(
    prior: Prior, limits: RunLimits, domain: Domain, *, rng: np.random.Generator, delta: float
) -> Optimizer:
    """A search that asks only for configurations that respect the limits.

    It decides by the confidence bounds of kernels learned from half of the past tasks, not by the
    mixture of the prior, which promises nothing of single configurations. With probability
    1 - delta all configurations that are ever asked for respect all limits.
    """
    past = _past_of(prior)
    found = past.start(limits.ranges, domain, delta=delta)
    if not limits.start:
        _refuse_empty(found, domain)
    low, high = limits.ranges.get(past.names[0], Range()).to_list()
    return GPUCB(
        found.kernel,
        domain,
        rng=rng,
        noise_std=found.outputs["objective"].noise_std,
        norm_bound=found.norm_bound,
        norm_of="kernel",
        centre=found.centre,
        at_least=low,
        at_most=high,
        limits=found.limits(),
        start=list(limits.start) or found,
        delta=delta,
        # The norm bounds are those of the start set, whose delta counts where they are used.
        delta_learning=found.delta if limits.start else 0.0,
        maximize=not prior.info.minimize,
    )


def _past_of(prior: Prior) -> PastOutputs:
    if prior.past is None:
        raise InputError(
            "the prior has no records of measured outputs, which limits need",
            Hint(
                "learn it with them",
                "replace(prior, past=learn_outputs(...))",
                "metakel learn with --limit-output NAME, also for the objective itself",
            ),
        )
    return prior.past


def _refuse_empty(start: SafeStart, domain: Domain) -> None:
    """Say what is missing where past tasks vouch for no configuration at all."""
    if start.rank > start.tasks:
        raise InputError(
            f"{start.tasks} past tasks are left to vouch for the first configuration, and "
            f"{start.needed} are needed at this delta ({2 * (start.needed - start.tasks)} more "
            "past tasks, as half of them teach)",
            START_HINT,
            DELTA_HINT,
        )
    X = domain.start_points(np.random.default_rng(0)).X
    scores = start.score(X)
    if not (scores > start.level).any():
        best = domain.decode(X[int(np.argmax(scores))])
        raise InputError(
            f"past tasks vouch for no configuration: the safest is {best}, on average "
            f"{scores.max():.3g} standard deviations of past tasks within the limits, and more "
            f"than {start.level:.3g} are needed",
            START_HINT,
            DELTA_HINT,
        )
