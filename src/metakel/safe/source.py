"""A prior with limits: what `Tuner`, the command line and the report know of safe search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.charts import number
from metakel.confidence import ConfidenceSequence
from metakel.errors import Hint, InputError
from metakel.optimize import GPUCB, Optimizer, Trial
from metakel.optimize.model import Model
from metakel.priors import PastOutputs
from metakel.safe.limits import OBJECTIVE, Range, SafeStart
from metakel.safe.model import DELTA_HINT, START_HINT, Limited
from metakel.safe.start import start_of
from metakel.search import Domain
from metakel.tuner.source import PriorSource, RunOptions, named_domain

DELTA = 0.1  # by default, the probability that any limit is violated in the whole run


@dataclass(frozen=True, eq=False)
class SafePrior(PriorSource):
    """A prior whose runs ask only for configurations that respect limits, for `Tuner`.

    With probability 1 - delta all configurations of a run respect all limits. It decides by the
    confidence bounds of kernels learned from half of the past tasks, not by the mixture of the
    prior, which promises nothing of single configurations.

    Parameters
    ----------
    prior : Prior
        With records of the limited outputs (`learn_outputs`).
    limits : dict of pairs
        Smallest and largest allowed value by the names of outputs, as in
        ``{"temperature": (None, 90)}``; the objective may be among them.
    start : sequence of dicts
        Configurations that you know to respect the limits. By default past tasks vouch for some.
    """

    limits: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    start: Sequence[Mapping[str, Any]] = ()
    ranges: Mapping[str, Range] = field(init=False)

    def __post_init__(self) -> None:
        space, start = self.prior.space, tuple(self.prior.space.normalize(r) for r in self.start)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "ranges", {str(n): _range(n, e) for n, e in self.limits.items()})
        if not self.ranges:
            raise InputError("SafePrior without a limit; expected limits={name: (low, high)}")
        for name in self.ranges:
            if name in space.names:
                raise InputError(
                    f"{name!r} is a parameter ({space[name].describe()}), and limits are about "
                    "what is measured",
                    Hint("hold it", f"fixed={{{name!r}: value}}", f"--fix {name}=VALUE"),
                    Hint("learn with a smaller range", "space=...", "metakel learn --space"),
                )

    @property
    def delta(self) -> float:
        return DELTA

    def optimizer(self, options: RunOptions) -> Optimizer:
        if options.extrapolate:
            raise InputError(
                "extrapolate beside limits: past tasks vouch for nothing beyond recorded ranges"
            )
        domain = named_domain(self.space, options)
        return self.search(domain, np.random.default_rng(options.seed), options.delta)

    def search(self, domain: Domain, rng: np.random.Generator, delta: float) -> Optimizer:
        """The search on a domain."""
        past = self._past
        found = start_of(past, self.ranges, domain, delta=delta)
        if not self.start:
            _refuse_empty(found, domain)
        low, high = self.ranges.get(past.names[0], Range()).to_list()
        sequence = ConfidenceSequence(
            found.kernel,
            noise_std=found.outputs[OBJECTIVE].noise_std,
            norm_bound=found.norm_bound,
            norm_of="kernel",
            center=found.center,
            delta=delta,
            delta_learning=found.delta if self.start else 0.0,
        )
        start = list(self.start) or found
        limited = Limited(sequence, at_least=low, at_most=high, limits=found.limits(), start=start)
        return GPUCB(limited, domain, rng=rng, minimize=self.minimize)

    @property
    def _past(self) -> PastOutputs:
        if self.prior.past is None:
            raise InputError(
                "the prior has no records of measured outputs, which limits need",
                Hint(
                    "learn it with them",
                    "replace(prior, past=learn_outputs(...))",
                    "metakel learn with --limit-output NAME, also for the objective itself",
                ),
            )
        return self.prior.past

    # In words

    def __str__(self) -> str:
        return ", ".join(f"{name} {allowed}" for name, allowed in self.ranges.items())

    @property
    def rules(self) -> Mapping[str, Any]:
        return {
            "text": f"the limits {self}",
            "outputs": [name for name in self.ranges if name != self.output],
            "limits": {name: allowed.to_list() for name, allowed in self.ranges.items()},
            "start": list(self.start),
        }

    def promise(self, delta: float) -> str:
        whose = "you vouch for" if self.start else "past tasks vouch for"
        return (
            f"limits: {self}. The search begins where {whose} it, and tries no configuration that "
            f"violates one, with probability {1 - delta:g} for the whole run, if the next task is "
            "like the past ones and the learned kernels and noise levels hold for it"
        )

    def remarks(self, trials: Sequence[Trial], number: int) -> list[str]:
        this = next(trial for trial in trials if trial.number == number)
        said = []
        # A run that is stuck looks like one that makes progress slowly.
        first = next(trial.number for trial in trials if trial.point == this.point)
        if first != number:
            said.append(
                f"the same as {first}: no other configuration is known to respect the limits, and "
                "measuring it again averages the noise. More past tasks, or more configurations "
                "that you vouch for (--start), widen the search"
            )
        for name, allowed in self.ranges.items():
            value = self._measured(this, name)
            if value is not None and not allowed.low <= value <= allowed.high:
                said.append(
                    f"measured beyond a limit: {name} {value:.6g} is not {allowed} (the limits are "
                    "about values without noise)"
                )
        return said

    def account(
        self, trials: Sequence[Trial], models: tuple[Model, Model], points: Array, delta: float
    ) -> tuple[str, list[tuple[str, ...]]]:
        rows: list[tuple[str, ...]] = [("limited output", "allowed", "measured", "measured beyond")]
        for name, allowed in self.ranges.items():
            found = [self._measured(trial, name) for trial in trials]
            values = [value for value in found if value is not None]
            beyond = sum(not allowed.low <= value <= allowed.high for value in values)
            spread = f"{number(min(values))} to {number(max(values))}" if values else "never"
            rows.append((name, str(allowed), spread, str(beyond)))
        before, after = (float(model.allowed(points).mean()) for model in models)
        text = (
            f"Known to be safe: {before:.0%} of the space before the run, {after:.0%} after it. "
            "All configurations that were asked for respect the limits, with probability "
            f"{1 - delta:g} for the whole run, if the learned kernels and noise levels hold for "
            "this task. This is about values without noise: a measurement slightly beyond a limit "
            "is no violation."
        )
        return text, rows

    def _measured(self, trial: Trial, name: str) -> float | None:
        return trial.value if name == self.output else trial.outputs.get(name)


def _range(name: str, ends: Sequence[float | None]) -> Range:
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise InputError(
            f"the limit of {name!r} is {ends!r}; expected a pair (smallest, largest), with None "
            "where there is no limit"
        )
    allowed = Range.of(f"limit of {name!r}", *ends)
    if not allowed.bounded:
        raise InputError(f"the limit of {name!r} allows everything; leave it out")
    return allowed


def _refuse_empty(start: SafeStart, domain: Domain) -> None:
    """Say what is missing where past tasks vouch for no configuration at all."""
    if start.rank > start.tasks:
        raise InputError(
            f"{start.tasks} past tasks are left to calibrate the first configuration, and "
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
            f"by the past tasks no configuration is safe: the safest is {best}, on average "
            f"{scores.max():.3g} standard deviations of past tasks within the limits, and more "
            f"than {start.level:.3g} are needed",
            START_HINT,
            DELTA_HINT,
        )
