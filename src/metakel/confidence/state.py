"""Where a confidence sequence stands: each batch of observations gives the next state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel._files import Content
from metakel.confidence.fallback import (
    AlarmEvent,
    Hypothesis,
    hypotheses,
    rival_hypotheses,
    watched,
)
from metakel.confidence.observations import (
    Batch,
    ObservationLog,
    Observations,
    Spectrum,
    no_observations,
)
from metakel.confidence.radius import (
    Centre,
    ConfidenceOptions,
    centre_at,
    log_evidence,
    regulariser_and_nu,
    squared_radius,
)
from metakel.confidence.set import (
    ROUNDING,
    ConfidenceSet,
    Intersection,
    closed_form_set,
    dual_set,
    smallest_squared_radius,
)
from metakel.errors import InputError
from metakel.kernels.sum import KernelSum


@dataclass(frozen=True, eq=False)
class BuiltSet:
    """The confidence set of one time.

    Parameters
    ----------
    set : ConfidenceSet
    radius : float
        R_t in units of the noise, or nu_t for the closed forms.
    alpha : float
        Regulariser of the posterior mean, in units of the noise variance.
    empty : bool
        Whether no function fits; ``set`` is then enlarged until one does.
    """

    set: ConfidenceSet
    radius: float
    alpha: float
    empty: bool


@dataclass(frozen=True, eq=False)
class State:
    """Observations, the hypothesis that is assumed after them, and the resulting bounds.

    Parameters
    ----------
    options : ConfidenceOptions
    hypotheses : tuple of Hypothesis
        From narrow to wide.
    mixture : tuple of Hypothesis
        One for every kernel of the mixture: of those above, and neighbours of the first.
    observations : tuple of Observations
        The same data for every kernel of the mixture.
    now : BuiltSet
        The set of the present time.
    intersection : Intersection
        What is kept of the earlier sets.
    log : ObservationLog
    stage : int
        Index of the hypothesis that is assumed; one past the last for none.
    alarms : tuple of AlarmEvent
    centre : (n, d0) -> (n,), optional
        The sets are about f minus this function.
    """

    options: ConfidenceOptions
    hypotheses: tuple[Hypothesis, ...]
    mixture: tuple[Hypothesis, ...]
    observations: tuple[Observations, ...]
    now: BuiltSet
    intersection: Intersection
    log: ObservationLog = field(default_factory=ObservationLog)
    stage: int = 0
    alarms: tuple[AlarmEvent, ...] = ()
    centre: Centre | None = None

    @classmethod
    def first(
        cls,
        options: ConfidenceOptions,
        kernel: KernelSum,
        wider: Sequence[KernelSum],
        intersection: Intersection,
        stage: int = 0,
        centre: Centre | None = None,
        rivals: Sequence[KernelSum] = (),
    ) -> State:
        """The state before the first observation."""
        ladder = tuple(hypotheses(options, kernel, wider, len(rivals)))
        others = rival_hypotheses(options, rivals, ladder[0].share)
        mixture = (*ladder[: 1 + len(wider)], *watched(options, ladder[0]), *others)
        observations = tuple(no_observations(member.kernel) for member in mixture)
        now = build_set(options, ladder, stage, mixture, observations, ObservationLog())
        kept, _ = intersection.narrowed(now.set)
        return cls(options, ladder, mixture, observations, now, kept, stage=stage, centre=centre)

    @property
    def t(self) -> int:
        """Number of observations."""
        return self.log.t

    @property
    def hypothesis(self) -> Hypothesis | None:
        """What is assumed of f; None if nothing that was tried fits the data."""
        return self.hypotheses[self.stage] if self.stage < len(self.hypotheses) else None

    def observed(self, batch: Batch) -> State:
        """The state after one more batch; where no function fits, after an alarm and fallback."""
        kept = self._kept()
        state = self._with_data(batch)._rebuilt()
        intersection, agreed = kept.narrowed(state.now.set)
        while (state.now.empty or not agreed) and state.hypothesis is not None:
            ignored = self.options.on_alarm == "ignore"
            state = state._ignoring() if ignored else state._fallen_back()
            intersection, agreed = kept.forgetting().narrowed(state.now.set)
            if ignored:
                break
        return replace(state, intersection=intersection)

    def _with_data(self, batch: Batch) -> State:
        """With the data of one more batch, but still the old set."""
        rest = batch
        if self.centre is not None:
            rest = replace(batch, y=batch.y - centre_at(self.centre, batch.X))
        observations = tuple(o.append(rest) for o in self.observations)
        return replace(self, observations=observations, log=self.log.with_batch(batch))

    def _rebuilt(self) -> State:
        """With the set of the present data and hypothesis."""
        now = build_set(
            self.options, self.hypotheses, self.stage, self.mixture, self.observations, self.log
        )
        return replace(self, now=now)

    def _kept(self) -> Intersection:
        """What the next set is intersected with: nothing for closed forms and a growing B."""
        if self.options.method != "dmm" or callable(self.options.norm_bound):
            return self.intersection.forgetting()
        if not self.t:
            return self.intersection
        return self.intersection.keeping(self.t, self.log.t_before_last, self.now.set)

    def _ignoring(self) -> State:
        return self if self.alarms else self._with_alarm("ignored")

    def _fallen_back(self) -> State:
        wider = self.hypotheses[self.stage + 1 : self.stage + 2]
        assumed = wider[0] if wider else "nothing (check noise_std)"
        state = self._with_alarm(f"assumed from here on: {assumed}")
        return replace(state, stage=self.stage + 1)._rebuilt()

    def _with_alarm(self, consequence: str) -> State:
        event = AlarmEvent(self.t, f"{self.hypothesis} does not fit; {consequence}")
        return replace(self, alarms=(*self.alarms, event))

    def to_content(self) -> Content:
        """Exact JSON form."""
        if callable(self.options.norm_bound):
            raise InputError("a norm_bound that is a function cannot be stored; store the data")
        kept = self.intersection
        return {
            "options": {**asdict(self.options), "remember": kept.remember},
            "points": None if kept.points is None else kept.points.tolist(),
            "told": self.log.to_list(),
            "stage": self.stage,
            "alarms": [asdict(event) for event in self.alarms],
            "past": [time for time, _, _ in kept.past],
            "running": kept.running and [_finite(bound) for bound in kept.running],
        }

    def restored(self, content: Mapping[str, Any]) -> State:
        """From the state before the first observation to the one that was stored."""
        alarms = tuple(AlarmEvent(**event) for event in content["alarms"])
        stage, last = int(content["stage"]), len(self.hypotheses)
        if not self.stage <= stage <= last:  # below the first: an empty kernel, by an older version
            raise InputError(
                f"stored sequence is at stage {stage}; expected {self.stage} to {last}. Make a new "
                "sequence from its data"
            )
        state = replace(self, stage=stage, alarms=alarms)
        kept = self.intersection
        for batch in ObservationLog.from_list(content["told"], self.hypotheses[0].kernel).batches:
            state = state._with_data(batch)
            if state.t in content["past"]:
                past = state._rebuilt().now.set
                kept = kept.keeping(state.t, state.log.t_before_last, past)
        if content["running"] is not None:
            lower, upper = (np.array(bound, dtype=np.float64) for bound in content["running"])
            running = np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=np.inf)
            kept = replace(kept, running=running)
        return replace(state._rebuilt(), intersection=kept)


def _finite(bound: Array) -> list[float | None]:
    return [float(b) if np.isfinite(b) else None for b in bound]


def build_set(
    options: ConfidenceOptions,
    hypotheses: Sequence[Hypothesis],
    stage: int,
    mixture: Sequence[Hypothesis],
    observations: Sequence[Observations],
    log: ObservationLog,
) -> BuiltSet:
    """The confidence set after the observations of the log: a pure function.

    Parameters
    ----------
    options : ConfidenceOptions
    hypotheses : sequence of Hypothesis
        From narrow to wide.
    stage : int
        Index of the hypothesis that is assumed; one past the last for none.
    mixture : sequence of Hypothesis
        One for every kernel of the mixture.
    observations : sequence of Observations
        The same data for every kernel of the mixture.
    log : ObservationLog
        How many there are, and how precise.
    """
    t = log.t
    if options.method != "dmm":
        return _closed_form(options, hypotheses[0], observations[0].spectrum(), t)
    assumed = hypotheses[stage] if stage < len(hypotheses) else None
    spectra, evidences, weights = [], [], []
    for data, hypothesis in zip(observations, mixture, strict=True):
        if assumed is not None and data.kernel is assumed.kernel:
            spectrum = data.spectrum()
            spectra.append(spectrum)
            eigen = spectrum.values, spectrum.targets**2, spectrum.rest
        else:
            eigen = data.eigen(float(hypothesis.scales.max()))
        evidences.append(log_evidence(*eigen, hypothesis.scales))
        weights.append(hypothesis.log_weights)
    shares = [hypothesis.share for hypothesis in mixture]
    radius = squared_radius(evidences, options.delta_deciding, weights, shares)
    # R_t bounds the distance of f from the values. That of a function within the slack of f is
    # larger by at most slack / noise_std for every value.
    reach = (_root(radius) + options.slack * sqrt(log.precision)) ** 2 if options.slack else radius
    if assumed is None:
        nothing = no_observations(hypotheses[-1].kernel).spectrum()
        free = dual_set(nothing, squared_radius=radius, norm_bound=inf, norm_scales=np.ones(1))
        return BuiltSet(free, _root(radius), 1.0, empty=False)
    own = next(i for i, data in enumerate(observations) if data.kernel is assumed.kernel)
    alpha = _best_scale(assumed, evidences[own]) ** -2.0
    found = _dual(options, assumed, spectra[0], reach, t, alpha=alpha)
    return replace(found, radius=_root(radius))


def _best_scale(assumed: Hypothesis, evidence: Array) -> float:
    """The scale with the largest evidence among those that the norm bound allows."""
    largest = max(assumed.norm_bound, float(assumed.norm_scales.max()))
    allowed = assumed.scales <= largest
    return float(assumed.scales[allowed][int(np.argmax(evidence[allowed]))])


def _closed_form(
    options: ConfidenceOptions, hypothesis: Hypothesis, spectrum: Spectrum, t: int
) -> BuiltSet:
    rho, nu = regulariser_and_nu(options, spectrum, t=t, norm_bound=hypothesis.norm_bound)
    alpha = rho / options.noise_std**2
    return BuiltSet(closed_form_set(spectrum, alpha=alpha, nu=nu), nu, alpha, empty=False)


def _dual(
    options: ConfidenceOptions,
    assumed: Hypothesis,
    spectrum: Spectrum,
    radius: float,
    t: int,
    *,
    alpha: float,
) -> BuiltSet:
    bound = assumed.norm_bound
    if callable(options.norm_bound) and isfinite(bound):
        bound = _grown_bound(bound * options.norm_at(t) / options.norm_at(0), spectrum, radius)
    smallest = smallest_squared_radius(spectrum, squared_radius=radius, norm_bound=bound)
    empty = smallest < -_tolerance(spectrum, radius)
    enlarged = radius - smallest + 2 * log(1 / options.delta_deciding) if empty else radius
    found = dual_set(
        spectrum, squared_radius=enlarged, norm_bound=bound, norm_scales=assumed.norm_scales
    )
    return BuiltSet(found, _root(radius), alpha, empty)


def _grown_bound(bound: float, spectrum: Spectrum, radius: float) -> float:
    """Double a norm bound that the data contradict, as long as a larger one can help."""
    free = smallest_squared_radius(spectrum, squared_radius=radius, norm_bound=inf)
    while (
        free > 0 and smallest_squared_radius(spectrum, squared_radius=radius, norm_bound=bound) < 0
    ):
        bound *= 2
    return bound


def _tolerance(spectrum: Spectrum, radius: float) -> float:
    """How far rounding may move a radius of 0."""
    return ROUNDING * (1 + abs(radius) + spectrum.rest)


def _root(squared_radius: float) -> float:
    return sqrt(max(squared_radius, 0.0))
