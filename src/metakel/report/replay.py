"""A run told value by value: best so far, band, certificate, trust, alarm."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

from metakel._arrays import Array
from metakel.priors import Prior
from metakel.tuner import AlarmRaised, Trial, Trials
from metakel.tuner.journal_reader import JournalReader
from metakel.tuner.monitor import Monitor
from metakel.tuner.options import Settings, refuse_differences


@dataclass(frozen=True, eq=False)
class RunStory:
    """Arrays (t,), one entry per value told.

    Parameters
    ----------
    told : tuple of Trial
    best : (t,) array
        Best value so far.
    lower, upper : (t,) arrays
        Band of the configuration that is certainly best; infinite where there is none.
    regret : (t,) array
        The certificate.
    trust : (t,) array
        Weight of the history against a cold start.
    alarm : AlarmRaised or None
    failed, pending : int
    no_band : str
        Why there is no band; empty where there is one.
    delta : float
    """

    told: tuple[Trial, ...]
    best: Array
    lower: Array
    upper: Array
    regret: Array
    trust: Array
    alarm: AlarmRaised | None
    failed: int
    pending: int
    no_band: str
    delta: float


def follow(prior: Prior, trials: Trials, settings: Settings) -> RunStory:
    """Go through a run again."""
    watch = Monitor(prior, settings)
    rows = []
    pick = min if prior.info.minimize else max
    best = inf if prior.info.minimize else -inf
    for trial in trials.told:
        watch.tell(trial)
        best = pick(best, float(trial.value or 0.0))
        certificate = watch.certificate
        # After a correction, nobody may have noted yet whether the alarm stands.
        raised = trials.alarm or watch.alarm
        gone = raised is not None and watch.t >= raised.told
        trust = 0.0 if gone else watch.trust
        rows.append((best, certificate.lower, certificate.upper, certificate.regret, trust))
    columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    best_so_far, lower, upper, regret, trusts = columns
    return RunStory(
        told=trials.told,
        best=best_so_far,
        lower=lower,
        upper=upper,
        regret=regret,
        trust=trusts,
        alarm=trials.alarm or watch.alarm,
        failed=len(trials.failed),
        pending=len(trials.pending),
        no_band=watch.no_band,
        delta=settings.delta,
    )


def follow_journal(prior: Prior, path: str | Path) -> RunStory:
    """Go through a journal; it must have been begun with this prior."""
    record = JournalReader(path)
    head = record.header
    settings = Settings(
        int(head["seed"]), float(head["delta"]), dict(head["fixed"]), bool(head["outside"])
    )
    expected = {**settings.header(prior), "candidates": head["candidates"]}
    refuse_differences(expected, head, str(path))
    return follow(prior, record.trials, settings)
