"""One run replayed value by value: the best so far, certificate, trust, and what comes next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.charts import number
from metakel.confidence import Alarm, AlarmEvent
from metakel.errors import InputError
from metakel.optimize import Certificate, NoSafePoint, Optimizer, Reasons
from metakel.optimize.thinning import BLOCK, LIMIT
from metakel.priors import Prior
from metakel.report.html import paragraph, table
from metakel.search import StartPoints
from metakel.tuner import JournalReader, JournalTrial, Trials
from metakel.tuner.configurations import Candidates
from metakel.tuner.options import RunLimits, RunOptions, TuningSource
from metakel.tuner.trials import TrialsAsRecord


@dataclass(frozen=True)
class SafeSet:
    """Limits of a run, and which share of the space was known to be safe.

    Parameters
    ----------
    limits : RunLimits
    shares : tuple of float
        Before the run and after every step that was looked at; empty without limits.
    """

    limits: RunLimits = field(default_factory=RunLimits)
    shares: tuple[float, ...] = ()

    def after(self, optimizer: Optimizer, start: StartPoints) -> SafeSet:
        """With the share at one more step."""
        if not self.limits:
            return self
        share = float(optimizer.model.safe(start.X).mean())
        return SafeSet(self.limits, (*self.shares, share))


def limits_part(output: str, trials: Sequence[JournalTrial], safe: SafeSet, delta: float) -> str:
    """A table of the limits; nothing for a run without limits."""
    if not safe.limits:
        return ""
    rows = []
    for name, allowed in safe.limits.ranges.items():
        found = [t.value if name == output else t.outputs.get(name) for t in trials]
        values = [value for value in found if value is not None]
        beyond = sum(not allowed.low <= value <= allowed.high for value in values)
        spread = f"{number(min(values))} to {number(max(values))}" if values else "never"
        rows.append((name, str(allowed), spread, str(beyond)))
    promise = (
        f"Known to be safe: {safe.shares[0]:.0%} of the space before the run, "
        f"{safe.shares[-1]:.0%} after it. All configurations that were asked for respect the "
        f"limits, with probability {1 - delta:g} for the whole run, if the learned "
        "kernels and noise levels hold for this task. This is about values without "
        "noise: a measurement slightly beyond a limit is no violation."
    )
    head = ("limited output", "allowed", "measured", "measured beyond")
    return paragraph(promise) + table(head, rows)


STEPS = 100  # after at most so many of its values a run is looked at


@dataclass(frozen=True, eq=False)
class RunReplay:
    """What was known after every value, or of many values after some.

    Parameters
    ----------
    trials : tuple of JournalTrial
        Those with a value.
    best : (t,) array
        Best value so far.
    steps : (k,) array of int
        The numbers of values after which the run was looked at.
    regret : (k,) array
        The certificate at these times; inf where nothing was promised.
    trust : (k,) array
        Weight of the history against a cold start.
    alarm : AlarmEvent or None
    failed, pending : int
    certificate : Certificate
        At the end.
    typical : float
        What the model expects at the median of the space, at the end.
    next : Reasons or None
        What to try next, and why; None where nothing is left to try.
    about : dict
        What run this is: task, command, and when it began and ended, as far as it is known.
    delta : float
    safe : SafeSet
        Limits, and which share of the space was known to respect them.
    """

    trials: tuple[JournalTrial, ...]
    best: Array
    steps: NDArray[np.intp]
    regret: Array
    trust: Array
    alarm: AlarmEvent | None
    failed: int
    pending: int
    certificate: Certificate
    typical: float
    next: Reasons | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    delta: float = 0.2
    safe: SafeSet = field(default_factory=SafeSet)


def replay_run(prior: Prior, trials: Trials, options: RunOptions) -> RunReplay:
    """Go through a run again, with the optimizer that decided in it."""
    optimizer = options.optimizer(TuningSource(prior))
    whole = TrialsAsRecord(lambda rows: optimizer.domain.encode(rows, "report"))(trials)
    values = np.array([trial.value for trial in trials.complete], dtype=np.float64)
    best = (np.minimum if prior.info.minimize else np.maximum).accumulate(values)
    # Calls with a value; a record is looked at after so many of them.
    calls = [i + 1 for i, (n,) in enumerate(whole.steps) if whole.trials[n].value is not None]
    steps, rows = _looked_at(len(calls)), []
    start = optimizer.domain.start_points(np.random.default_rng(0))
    safe = SafeSet(options.limits).after(optimizer, start)
    for t in steps:
        optimizer.record = whole.until(calls[t - 1])
        rows.append((optimizer.certificate.regret, optimizer.trust))
        safe = safe.after(optimizer, start)
    optimizer.record = whole.until(len(whole.steps))
    regret, trust = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    upcoming = _next(optimizer)
    some = upcoming
    if some is None and trials.all:
        some = optimizer.explain(trials.all[0].configuration)
    return RunReplay(
        trials=trials.complete,
        best=best,
        steps=steps,
        regret=regret,
        trust=trust,
        alarm=optimizer.alarm,
        failed=len(trials.failed),
        pending=len(trials.pending),
        certificate=optimizer.certificate,
        typical=nan if some is None else some.typical,
        next=upcoming,
        about=_about(trials, options),
        delta=options.delta,
        safe=safe,
    )


def _next(optimizer: Optimizer) -> Reasons | None:
    try:
        return optimizer.explain(optimizer.suggest())
    except (InputError, Alarm, NoSafePoint):  # nothing may be asked for
        return None


def _about(trials: Trials, options: RunOptions) -> dict[str, str]:
    times = sorted(trial.since for trial in trials.all if trial.since)
    found = {
        "task": options.task,
        "command": shlex.join(options.command),
        "first suggestion": _minute(times[0]) if times else "",
        "last suggestion": _minute(times[-1]) if times else "",
    }
    return {name: text for name, text in found.items() if text}


def _minute(stamp: str) -> str:
    """A time of a journal, as people read it."""
    return stamp[:16].replace("T", " ")


def _looked_at(t: int) -> NDArray[np.intp]:
    """Numbers of values: all up to `STEPS`; of more, closer together at the beginning.

    Those of a long record are where a model selects its values anew, which is fast.
    """
    if t <= STEPS:
        return np.arange(1, t + 1)
    steps = np.geomspace(1, t, STEPS).round().astype(np.intp)
    return np.append(np.unique(np.where(steps > LIMIT, steps // BLOCK * BLOCK, steps)[:-1]), t)


def replay_journal(prior: Prior, path: str | Path, candidates: Any = None) -> RunReplay:
    """Go through a journal; it must have been begun with this prior.

    The candidates of a run are not in its journal: without them, nothing is said of what comes
    next, and there is no certificate.
    """
    record = JournalReader(path)
    head = record.header
    listed = None if candidates is None else Candidates.of(candidates, prior.space)
    options = RunOptions(
        int(head["seed"]),
        float(head["delta"]),
        dict(head["fixed"]),
        bool(head["outside"]),
        listed,
        limits=record.limits,
        task=str(head.get("task", "")),
        command=tuple(head.get("command", ())),
    )
    lacking = listed is None and head.get("candidates") is not None
    known = {**head, "candidates": None} if lacking else head
    options.refuse_another(TuningSource(prior), known, str(path))
    found = replay_run(prior, record.trials, options)
    if not lacking:
        return found
    reason = "the candidates of the run are not in its journal; --candidates names their file"
    return replace(
        found,
        next=None,
        regret=np.full_like(found.regret, inf),
        certificate=Certificate(inf, delta=options.delta, reason=reason),
    )
