"""One run replayed value by value, and the page's part on it: band, certificate, trust, alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.charts import ALARM, LEARNED, OBSERVED, Axis, SvgChart, number
from metakel.confidence import AlarmEvent
from metakel.optimize.thinning import BLOCK, LIMIT
from metakel.priors import Prior
from metakel.report.html import cards, figure, figures, paragraph, section, table
from metakel.report.limits import SafeSet, limits_part
from metakel.tuner import JournalReader, JournalTrial, Trials
from metakel.tuner.options import RunOptions, TuningSource
from metakel.tuner.trials import TrialsAsRecord

SHOWN_TRIALS = 10
STEPS = 100  # after at most so many of its values a run is looked at
CROWDED = 200  # more dots than this are small
DOTS = 1000  # of at most so many values the configuration is shown


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
    lower, upper : (k,) arrays
        Band of the configuration that is certainly best; infinite where there is none.
    regret : (k,) array
        The certificate.
    trust : (k,) array
        Weight of the history against a cold start.
    alarm : AlarmEvent or None
    failed, pending : int
    no_band : str
        Why there is no band; empty where there is one.
    delta : float
    safe : SafeSet
        Limits, and which share of the space was known to respect them.
    """

    trials: tuple[JournalTrial, ...]
    best: Array
    steps: NDArray[np.intp]
    lower: Array
    upper: Array
    regret: Array
    trust: Array
    alarm: AlarmEvent | None
    failed: int
    pending: int
    no_band: str
    delta: float
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
        found = optimizer.certificate
        rows.append((found.lower, found.upper, found.regret, optimizer.trust))
        safe = safe.after(optimizer, start)
    optimizer.record = whole.until(len(whole.steps))
    lower, upper, regret, trust = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return RunReplay(
        trials=trials.complete,
        best=best,
        steps=steps,
        lower=lower,
        upper=upper,
        regret=regret,
        trust=trust,
        alarm=optimizer.alarm,
        failed=len(trials.failed),
        pending=len(trials.pending),
        no_band=optimizer.model.no_bounds or optimizer.certificate.reason,
        delta=options.delta,
        safe=safe,
    )


def _looked_at(t: int) -> NDArray[np.intp]:
    """Numbers of values: all up to `STEPS`; of more, closer together at the beginning.

    Those of a long record are where a model selects its values anew, which is fast.
    """
    if t <= STEPS:
        return np.arange(1, t + 1)
    steps = np.geomspace(1, t, STEPS).round().astype(np.intp)
    return np.append(np.unique(np.where(steps > LIMIT, steps // BLOCK * BLOCK, steps)[:-1]), t)


def replay_journal(prior: Prior, path: str | Path) -> RunReplay:
    """Go through a journal; it must have been begun with this prior."""
    record = JournalReader(path)
    head = record.header
    options = RunOptions(
        int(head["seed"]),
        float(head["delta"]),
        dict(head["fixed"]),
        bool(head["outside"]),
        limits=record.limits,
    )
    options.refuse_another(TuningSource(prior), {**head, "candidates": None}, str(path))
    return replay_run(prior, record.trials, options)


def run_section(prior: Prior, run: RunReplay) -> str:
    """How the run went."""
    counts = f"{len(run.trials)} values, {run.failed} failed, {run.pending} pending"
    if not run.trials:
        return section("The run", paragraph(f"{counts}: nothing to show yet."))
    return section(
        "The run",
        cards(_cards(prior, run, counts)),
        _alarm(run),
        limits_part(prior.info.output, run.trials, run.safe, run.delta),
        figures(_values(prior, run), *_promises(prior, run), _trust(run)),
        _best_trials(prior, run),
    )


def _cards(prior: Prior, run: RunReplay, counts: str) -> list[tuple[str, str, str]]:
    entries = [(number(float(run.best[-1])), f"best {prior.info.output} ({counts})", "")]
    if np.isfinite(run.regret[-1]):
        sure, safe = f"{1 - run.delta:.0%}", "safe " if run.safe.limits else ""
        band = f"{number(float(run.lower[-1]))} to {number(float(run.upper[-1]))}"
        entries += [
            (band, f"the surest configuration's true value, {sure} sure", ""),
            (number(float(run.regret[-1])), f"nothing {safe}is better by more, {sure} sure", ""),
        ]
    alarm = ("none", "alarm", "good") if run.alarm is None else ("ALARM", "see below", "bad")
    return [*entries, alarm]


def _alarm(run: RunReplay) -> str:
    if run.alarm is not None:
        text = f"Alarm after {run.alarm.time} values: {run.alarm.reason}. "
        return paragraph(
            text + "The certificate ends there; decisions go on by the evidence of the values.",
            "bad",
        )
    return paragraph("No value contradicts the history.", "good")


def _chart(run: RunReplay, y: Axis) -> SvgChart:
    chart = SvgChart(Axis("values observed", 1, max(len(run.trials), 2)), y)
    if run.alarm is not None:
        chart.rule(float(run.alarm.time), ALARM, "alarm")
    return chart


def _values(prior: Prior, run: RunReplay) -> str:
    values = np.array([trial.value for trial in run.trials], dtype=np.float64)
    shown, improved = _shown(run), _changes(run.best)
    tips = [_tip(run.trials[i]) for i in shown]
    chart = _chart(run, Axis.covering(prior.info.output, values))
    chart.steps(improved + 1, run.best[improved], LEARNED, label="best so far")
    size = 8 if len(shown) <= CROWDED else 4
    chart.dots(shown + 1, values[shown], OBSERVED, label="each value", tips=tips, size=size)
    left_out = len(values) - len(shown)
    caption = f"{left_out} of {len(values)} values are not drawn." if left_out else ""
    return figure(chart, "Values", caption, "values and the best so far")


def _tip(trial: JournalTrial) -> str:
    settings = (
        f"{name} = {v:.4g}" if isinstance(v, float) else f"{name} = {v}"
        for name, v in trial.configuration.items()
    )
    return f"{trial.number}: {number(float(trial.value or 0.0))}\n" + "\n".join(settings)


def _shown(run: RunReplay) -> NDArray[np.intp]:
    """Rows of values to draw: all, or those that improved and others evenly spaced."""
    t = len(run.trials)
    if t <= DOTS:
        return np.arange(t)
    spaced = np.linspace(0, t - 1, DOTS // 2).round().astype(np.intp)
    return np.union1d(spaced, _changes(run.best)[-DOTS // 2 :])


def _changes(best: Array) -> NDArray[np.intp]:
    """Rows at which the best value changes, the first and the last one included."""
    changed = np.flatnonzero(np.diff(best)) + 1
    return np.unique(np.concatenate([[0], changed, [len(best) - 1]])).astype(np.intp)


def _promises(prior: Prior, run: RunReplay) -> list[str]:
    if not np.isfinite(run.regret).any():
        return [paragraph(f"No band and no certificate: {run.no_band}.", "soft")]
    sure, improved = f"{1 - run.delta:.0%}", _changes(run.best)
    band = _chart(run, Axis.covering(prior.info.output, run.lower, run.upper, run.best))
    band.band(run.steps, run.lower, run.upper, LEARNED)
    band.steps(improved + 1, run.best[improved], LEARNED, label="best value so far")
    return [
        figure(
            band,
            "Band around the surest configuration",
            f"Its value without noise lies in the band, at all times together, {sure} sure.",
            "band of the surest configuration",
        ),
        figure(
            _followed(run, Axis("can be better by", 0, Axis.covering("", run.regret).high),
                      run.regret, number),
            "Certificate",
            "No configuration looked at is better than the surest one by more than this, "
            f"{sure} sure, if the task is like the past ones.",
            "certificate over time",
        ),
    ]  # fmt: skip


def _trust(run: RunReplay) -> str:
    chart = _followed(run, Axis("trust in the history", 0, 1), run.trust, "{:.0%}".format)
    return figure(
        chart, "Trust", "Weight of the history against a cold start, moved by every value."
    )


def _followed(run: RunReplay, y: Axis, values: Array, text: Callable[[float], str]) -> SvgChart:
    """A number after every value that was looked at."""
    tips = [f"after {t}: {text(float(v))}" for t, v in zip(run.steps, values, strict=True)]
    chart = _chart(run, y)
    return chart.line(run.steps, values, LEARNED).dots(
        run.steps, values, LEARNED, tips=tips, size=6
    )


def _best_trials(prior: Prior, run: RunReplay) -> str:
    sign = 1.0 if prior.info.minimize else -1.0
    top = sorted(run.trials, key=lambda trial: sign * float(trial.value or 0.0))[:SHOWN_TRIALS]
    rows = [
        [str(t.number), number(float(t.value or 0.0))]
        + [f"{v:.5g}" if isinstance(v, float) else str(v) for v in t.configuration.values()]
        for t in top
    ]
    return table(["trial", prior.info.output, *top[0].configuration], rows)
