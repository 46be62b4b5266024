"""One run replayed value by value, and the page's part on it: band, certificate, trust, alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

from metakel._arrays import Array
from metakel.charts import ALARM, LEARNED, OBSERVED, Axis, SvgChart, number
from metakel.confidence import AlarmEvent
from metakel.priors import Prior
from metakel.report.html import cards, figure, figures, paragraph, section, table
from metakel.tuner import JournalReader, JournalTrial, Trials
from metakel.tuner.options import RunOptions, TuningSource
from metakel.tuner.trials import TrialsAsRecord

SHOWN_TRIALS = 10


@dataclass(frozen=True, eq=False)
class RunReplay:
    """What was known after every value: arrays (t,).

    Parameters
    ----------
    trials : tuple of JournalTrial
        Those with a value.
    best : (t,) array
        Best value so far.
    lower, upper : (t,) arrays
        Band of the configuration that is certainly best; infinite where there is none.
    regret : (t,) array
        The certificate.
    trust : (t,) array
        Weight of the history against a cold start.
    alarm : AlarmEvent or None
    failed, pending : int
    no_band : str
        Why there is no band; empty where there is one.
    delta : float
    """

    trials: tuple[JournalTrial, ...]
    best: Array
    lower: Array
    upper: Array
    regret: Array
    trust: Array
    alarm: AlarmEvent | None
    failed: int
    pending: int
    no_band: str
    delta: float


def replay_run(prior: Prior, trials: Trials, options: RunOptions) -> RunReplay:
    """Go through a run again, with the optimizer that decided in it."""
    optimizer = options.optimizer(TuningSource(prior))
    whole = TrialsAsRecord(lambda rows: optimizer.domain.encode(rows, "report"))(trials)
    rows = []
    pick = min if prior.info.minimize else max
    best = inf if prior.info.minimize else -inf
    for step in range(1, len(whole.steps) + 1):
        optimizer.record = whole.until(step)
        value = whole.trials[whole.steps[step - 1][0]].value
        if value is None:
            continue
        best = pick(best, value)
        found = optimizer.certificate
        rows.append((best, found.lower, found.upper, found.regret, optimizer.trust))
    columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    best_so_far, lower, upper, regret, trusts = columns
    return RunReplay(
        trials=trials.complete,
        best=best_so_far,
        lower=lower,
        upper=upper,
        regret=regret,
        trust=trusts,
        alarm=optimizer.alarm,
        failed=len(trials.failed),
        pending=len(trials.pending),
        no_band=optimizer.model.no_bounds,
        delta=options.delta,
    )


def replay_journal(prior: Prior, path: str | Path) -> RunReplay:
    """Go through a journal; it must have been begun with this prior."""
    record = JournalReader(path)
    head = record.header
    options = RunOptions(
        int(head["seed"]), float(head["delta"]), dict(head["fixed"]), bool(head["outside"])
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
        figures(_values(prior, run), *_promises(prior, run), _trust(run)),
        _best_trials(prior, run),
    )


def _cards(prior: Prior, run: RunReplay, counts: str) -> list[tuple[str, str, str]]:
    entries = [(number(float(run.best[-1])), f"best {prior.info.output} ({counts})", "")]
    if np.isfinite(run.regret[-1]):
        sure = f"{1 - run.delta:.0%}"
        band = f"{number(float(run.lower[-1]))} to {number(float(run.upper[-1]))}"
        entries += [
            (band, f"the surest configuration's true value, {sure} sure", ""),
            (number(float(run.regret[-1])), f"nothing is better by more, {sure} sure", ""),
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
    steps = np.arange(1, len(run.trials) + 1)
    values = np.array([trial.value for trial in run.trials], dtype=np.float64)
    tips = [
        f"{trial.number}: {number(float(trial.value or 0.0))}\n"
        + "\n".join(f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}"
                    for k, v in trial.configuration.items())
        for trial in run.trials
    ]  # fmt: skip
    chart = _chart(run, Axis.covering(prior.info.output, values))
    chart.steps(steps, run.best, LEARNED, label="best so far")
    chart.dots(steps, values, OBSERVED, label="each value", tips=tips, size=8)
    return figure(chart, "Values", description="values and the best so far")


def _promises(prior: Prior, run: RunReplay) -> list[str]:
    if not np.isfinite(run.regret).any():
        return [paragraph(f"No band and no certificate: {run.no_band}.", "soft")]
    steps = np.arange(1, len(run.trials) + 1)
    sure = f"{1 - run.delta:.0%}"
    band = _chart(run, Axis.covering(prior.info.output, run.lower, run.upper, run.best))
    band.band(steps, run.lower, run.upper, LEARNED)
    band.steps(steps, run.best, LEARNED, label="best value so far")
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
    """A number after every value."""
    steps = np.arange(1, len(values) + 1)
    tips = [f"after {t}: {text(float(v))}" for t, v in zip(steps, values, strict=True)]
    chart = _chart(run, y)
    return chart.line(steps, values, LEARNED).dots(steps, values, LEARNED, tips=tips, size=6)


def _best_trials(prior: Prior, run: RunReplay) -> str:
    sign = 1.0 if prior.info.minimize else -1.0
    top = sorted(run.trials, key=lambda trial: sign * float(trial.value or 0.0))[:SHOWN_TRIALS]
    rows = [
        [str(t.number), number(float(t.value or 0.0))]
        + [f"{v:.5g}" if isinstance(v, float) else str(v) for v in t.configuration.values()]
        for t in top
    ]
    return table(["trial", prior.info.output, *top[0].configuration], rows)
