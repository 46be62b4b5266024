"""What to ask next, and whether anything is left to ask: functions of what the journal says."""

from __future__ import annotations

from dataclasses import dataclass

from metakel.errors import InputError
from metakel.priors import Prior
from metakel.tuner.journal import Event
from metakel.tuner.monitor import Monitor
from metakel.tuner.options import Settings
from metakel.tuner.owner import is_dead, this_process
from metakel.tuner.propose import propose
from metakel.tuner.trials import Trial, Trials


@dataclass(frozen=True)
class RunSchedule:
    """When a run ends, and who does the evaluations until then; see `Tuner`."""

    prior: Prior
    settings: Settings
    budget: int | None
    stop_at: float | None
    manual: bool

    def __post_init__(self) -> None:
        if self.budget is not None and self.budget < 1:
            raise InputError(f"budget is {self.budget}; expected at least one evaluation")
        if self.stop_at is not None and not self.stop_at > 0:
            raise InputError(f"stop_at is {self.stop_at}; expected a number > 0")

    def next(self, trials: Trials, watch: Monitor) -> Event | None:
        """What to note for the next configuration; None where nothing is left to ask."""
        by = None if self.manual else this_process()
        orphans = self._orphans(trials)
        if orphans:
            return {"event": "adopted", "number": orphans[0].number, "by": by}
        if self.done(trials, watch):
            return None
        queued = trials.queued[:1]
        chosen = queued[0] if queued else propose(self.prior, trials, self.settings)
        return {"event": "asked", "configuration": chosen, "by": by, "queued": bool(queued)}

    def done(self, trials: Trials, watch: Monitor) -> str:
        """Why nothing more is asked; empty while there is something to do."""
        if self.stop_at is not None and watch.certificate.regret <= self.stop_at:
            return f"no configuration can be better by more than {self.stop_at:g}"
        spent = self.budget is not None and trials.spent >= self.budget
        if spent and not self._orphans(trials):
            return f"the budget of {self.budget} evaluations is spent"
        rows = self.settings.candidates
        if rows is not None and set(range(len(rows.rows))) <= set(map(rows.find, trials.asked_for)):
            return f"all {len(rows.rows)} candidates were asked"
        return ""

    def _orphans(self, trials: Trials) -> list[Trial]:
        """Pending evaluations whose process is gone, or let go of them."""
        if self.manual:
            return []
        return [trial for trial in trials.pending if trial.released or is_dead(trial.owner)]
