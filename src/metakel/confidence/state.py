"""Where a confidence sequence stands; telling it something gives the next state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from metakel.confidence.build_set import Assessment, assess
from metakel.confidence.fallback import AlarmEvent, Hypothesis, hypotheses
from metakel.confidence.intersection import Intersection
from metakel.confidence.observation_log import Batch, ObservationLog
from metakel.confidence.observations import Observations, no_observations
from metakel.confidence.options import Settings
from metakel.kernels.sum import KernelSum


@dataclass(frozen=True, eq=False)
class State:
    """What was told, what is believed of f after it, and the bounds that follow.

    Parameters
    ----------
    settings : Settings
    hypotheses : tuple of Hypothesis
        What may be believed of f, from narrow to wide.
    observations : tuple of Observations
        The same data for every kernel of the mixture.
    now : Assessment
        The set of the present time.
    intersection : Intersection
        What is kept of the sets before it.
    told : ObservationLog
    stage : int
        Which hypothesis is believed; one past the last for none.
    alarms : tuple of AlarmEvent
    """

    settings: Settings
    hypotheses: tuple[Hypothesis, ...]
    observations: tuple[Observations, ...]
    now: Assessment
    intersection: Intersection
    told: ObservationLog = field(default_factory=ObservationLog)
    stage: int = 0
    alarms: tuple[AlarmEvent, ...] = ()

    @classmethod
    def first(
        cls,
        settings: Settings,
        kernel: KernelSum,
        full: KernelSum | None,
        intersection: Intersection,
        stage: int = 0,
    ) -> State:
        """Before anything is told."""
        ladder = tuple(hypotheses(settings, kernel, full))
        kernels = (kernel,) if full is None else (kernel, full)
        observations = tuple(no_observations(k) for k in kernels)
        now = assess(settings, ladder, stage, observations, 0)
        kept, _ = intersection.narrowed(now.set)
        return cls(settings, ladder, observations, now, kept, stage=stage)

    @property
    def t(self) -> int:
        """How many observations were told."""
        return self.told.t

    @property
    def hypothesis(self) -> Hypothesis | None:
        """What is believed of f; None if nothing that was tried fits the data."""
        return self.hypotheses[self.stage] if self.stage < len(self.hypotheses) else None

    def with_told(self, batch: Batch) -> State:
        """After one more batch; where no function fits, after the alarm and what it leads to."""
        kept = self._kept()
        state = self.with_observations(batch).assessed()
        intersection, agreed = kept.narrowed(state.now.set)
        while (state.now.empty or not agreed) and state.hypothesis is not None:
            ignored = self.settings.on_alarm == "ignore"
            state = state._ignoring() if ignored else state._fallen_back()
            intersection, agreed = kept.forgetting().narrowed(state.now.set)
            if ignored:
                break
        return replace(state, intersection=intersection)

    def with_observations(self, batch: Batch) -> State:
        """The data of one more batch, not assessed yet."""
        observations = tuple(o.append(batch) for o in self.observations)
        return replace(self, observations=observations, told=self.told.with_batch(batch))

    def assessed(self) -> State:
        """With the set that the present data and hypothesis give."""
        now = assess(self.settings, self.hypotheses, self.stage, self.observations, self.t)
        return replace(self, now=now)

    def _kept(self) -> Intersection:
        """What the next set is intersected with: for closed forms and a growing B nothing."""
        if self.settings.method != "dmm" or callable(self.settings.norm_bound):
            return self.intersection.forgetting()
        if not self.t:
            return self.intersection
        return self.intersection.keeping(self.t, self.told.t_before_last, self.now.set)

    def _ignoring(self) -> State:
        return self if self.alarms else self._ringing("ignored")

    def _fallen_back(self) -> State:
        wider = self.hypotheses[self.stage + 1 : self.stage + 2]
        assumed = wider[0] if wider else "nothing (check noise_std)"
        rung = self._ringing(f"assumed from here on: {assumed}")
        return replace(rung, stage=self.stage + 1).assessed()

    def _ringing(self, consequence: str) -> State:
        event = AlarmEvent(self.t, f"{self.hypothesis} does not fit; {consequence}")
        return replace(self, alarms=(*self.alarms, event))
