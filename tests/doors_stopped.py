"""Runs that are stopped early, through every door: a row of the table in `test_doors`.

A door plays the same runs. Their curves depend on the number of a run alone: six go to their end,
one is hopeless, one more goes to its end, and the next one is pending. The law of every cell is
that the door stops the same run after the same step for the same reason as ``prior.optimizer``,
asks for the same configurations, shows the same numbers and loses nothing; or that it refuses in
words of ours, with what to do instead.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from numpy.testing import assert_allclose
from tuning_history import past_curves

import metakel as mk
from doors_features import Shell, prior_of, table_of
from metakel.curves import CurveModel, Decision
from metakel.errors import InputError
from metakel.integrations.optuna import MetaKelPruner, MetaKelSampler
from metakel.optimize import Optimizer
from metakel.optimize.record import Record
from metakel.report import write_report
from metakel.report.run import replay_journal
from metakel.tuner import Store

FEATURE = "category"  # the space of the search
STEPS, BAD, RUNS = 20, 6, 8


@cache
def model() -> CurveModel:
    return past_curves(STEPS)


def value_at(number: int, step: int) -> float:
    level = -50 if number == BAD else 0.3 * number
    return float(level - 2.0**-step)


@dataclass(frozen=True)
class Played:
    """Every configuration that was asked for, and what became of the runs."""

    asked: list[dict[str, Any]]
    curves: tuple[dict[int, float], ...]
    stopped: list[tuple[int, str]]  # numbers, and why
    saved: int


def play(
    ask: Callable[[], dict[str, Any]],
    decide: Callable[[dict[str, Any], Mapping[int, float]], Decision],
    tell: Callable[..., None],
    stop: Callable[[dict[str, Any], Mapping[int, float], str], None],
) -> list[dict[str, Any]]:
    asked = []
    for number in range(RUNS):
        x = ask()
        asked.append(x)
        curve: dict[int, float] = {}
        for step in range(1, STEPS + 1):
            curve[step] = value_at(number, step)
            found = decide(x, curve)
            if found:
                stop(x, curve, found.reason)
                break
        else:
            tell(x, curve[STEPS], curve=curve)
    return [*asked, ask()]


def became(record: Record, reasons: Mapping[int, str] | None = None) -> Played:
    why = {t.number: t.note.reason for t in record.stopped} if reasons is None else reasons
    return Played(
        [dict(trial.point) for trial in record],
        tuple(dict(curve) for curve in record.curves),
        [(trial.number, why[trial.number]) for trial in record.stopped],
        record.saved,
    )


@cache
def reference() -> Played:
    optimizer = prior_of(FEATURE).optimizer(curves=model())
    reasons: dict[int, str] = {}

    def stop(x: dict[str, Any], curve: Mapping[int, float], reason: str) -> None:
        reasons[len(optimizer.record) - 1] = reason
        optimizer.tell(x, curve=curve)

    play(optimizer.ask, optimizer.should_stop, optimizer.tell, stop)
    return became(optimizer.record, reasons)


def assert_same(found: Played) -> None:
    wanted, space = reference(), prior_of(FEATURE).space
    ours, theirs = (space.encode(p.asked) for p in (found, wanted))
    assert_allclose(ours, theirs, atol=1e-6)
    assert (found.curves, found.stopped, found.saved) == (
        wanted.curves,
        wanted.stopped,
        wanted.saved,
    )


def begun(where: Path) -> Path:
    """A journal in which the runs were played."""
    path = where / "run.jsonl"
    tuner = mk.Tuner(prior_of(FEATURE), path, adopt_after="never")
    play(
        lambda: tuner.ask(),
        lambda x, curve: model().decide(curve, tuner.trials.curves),
        tuner.tell,
        tuner.stop,
    )
    return path


def shown_count() -> str:
    return f"7 values, 0 failed, 1 pending, 1 stopped early ({reference().saved} steps saved)"


# Doors


def by_optimizer(where: Path, shell: Shell, caplog: Any) -> None:
    found = reference()
    assert [number for number, _ in found.stopped] == [BAD]
    assert [len(curve) == STEPS for curve in found.curves] == [k != BAD for k in range(RUNS)]
    assert found.saved == STEPS - len(found.curves[BAD]) > 0
    assert len({json.dumps(x) for x in found.asked}) == RUNS + 1  # it is not asked again
    optimizer = prior_of(FEATURE).optimizer()
    x = optimizer.ask()
    with pytest.raises(InputError, match=r"prior\.optimizer\(curves="):
        optimizer.should_stop(x, {1: 0.5})
    with pytest.raises(InputError, match="whole numbers > 0"):
        optimizer.tell(x, curve={0: 0.5})
    with pytest.raises(InputError, match="expected one point"):
        optimizer.tell([x, x], curve={1: 0.5})
    with pytest.raises(InputError, match="the curves were maximised"):
        prior_of("minimize").optimizer(curves=model())
    optimizer = prior_of(FEATURE).optimizer(curves=model())
    with pytest.raises(InputError, match="not pending"):
        optimizer.should_stop(x, {1: 0.5})


def by_save_and_load(where: Path, shell: Shell, caplog: Any) -> None:
    prior_of(FEATURE).save(where / "prior.json")
    model().save(where / "curves.json")
    curves = CurveModel.load(where / "curves.json")
    state = [mk.Prior.load(where / "prior.json").optimizer(curves=curves)]
    reasons: dict[int, str] = {}

    def again() -> Optimizer:
        state[0].save(where / "optimizer.json")
        state[0] = Optimizer.load(where / "optimizer.json")
        return state[0]

    def stop(x: dict[str, Any], curve: Mapping[int, float], reason: str) -> None:
        reasons[len(state[0].record) - 1] = reason
        again().tell(x, curve={**curve, len(curve) + 1: float("nan")})

    play(
        lambda: again().ask(),
        lambda x, curve: state[0].should_stop(x, curve),
        lambda x, value, curve: again().tell(x, value, curve=curve),
        stop,
    )
    found, wanted = became(again().record, reasons), reference()
    assert np.isnan(found.curves[BAD][len(wanted.curves[BAD]) + 1])
    del found.curves[BAD][len(wanted.curves[BAD]) + 1]
    assert (found.asked, found.curves, found.stopped) == (
        wanted.asked,
        wanted.curves,
        wanted.stopped,
    )


def by_tuner(where: Path, shell: Shell, caplog: Any) -> None:
    """What another Tuner reads from the journal."""
    tuner = mk.Tuner(prior_of(FEATURE), begun(where), adopt_after="never")
    assert_same(became(tuner.trials))
    assert tuner.best.value == value_at(RUNS - 1, STEPS)


def by_sampler(where: Path, shell: Shell, caplog: Any) -> None:
    """A pruned trial is evidence there, so that what is asked next is another configuration."""
    caplog.set_level(logging.INFO, logger="metakel")
    study = optuna.create_study(
        direction="maximize",
        sampler=MetaKelSampler(prior=prior_of(FEATURE), seed=0),
        pruner=MetaKelPruner(model=model()),
    )

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        trial.suggest_categorical("kind", ["tree", "line"])
        for step in range(1, STEPS + 1):
            trial.report(value_at(trial.number, step), step - 1)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value_at(trial.number, STEPS)

    study.optimize(objective, n_trials=RUNS)
    wanted = reference()
    states = [trial.state.name for trial in study.trials]
    assert states == ["PRUNED" if k == BAD else "COMPLETE" for k in range(RUNS)]
    for trial, curve in zip(study.trials, wanted.curves, strict=True):
        assert {s + 1: v for s, v in trial.intermediate_values.items()} == curve
    ((_, reason),) = wanted.stopped
    assert f"trial {BAD} is pruned: {reason}" in caplog.text
    space = prior_of(FEATURE).space
    first, theirs = study.trials[0].params, wanted.asked[0]
    assert_allclose(space.encode([first]), space.encode([theirs]), atol=1e-6)
    assert study.best_value == value_at(RUNS - 1, STEPS)


def by_notebook(where: Path, shell: Shell, caplog: Any) -> None:
    tuner = mk.Tuner(prior_of(FEATURE), begun(where), adopt_after="never")
    assert shown_count() in tuner._repr_html_()
    assert ">stopped<" in tuner.trials._repr_html_()
    assert list(tuner.trials.to_frame()["state"])[BAD] == "stopped"
    assert "t=7, stopped=1" in repr(tuner.optimizer)
    assert repr(model()).startswith("CurveModel(30 tasks, 20 steps")


def assert_page(text: str) -> None:
    text, ((_, reason),) = unescape(text), reference().stopped
    saved = reference().saved
    for part in (shown_count(), reason, "Learning curves", f"saved {saved} steps"):
        assert part in text


def by_report(where: Path, shell: Shell, caplog: Any) -> None:
    path, prior = begun(where), prior_of(FEATURE)
    page = write_report(prior, where / "page.html", run=replay_journal(prior, path, None))
    assert_page(page.read_text(encoding="utf-8"))
    prior.save(where / "prior.json")
    shell("report", "prior.json", "--journal", path.name)
    assert_page((where / "report.html").read_text(encoding="utf-8"))


def by_status(where: Path, shell: Shell, caplog: Any) -> None:
    text, ((_, reason),) = shell("status", begun(where)), reference().stopped
    assert shown_count() in text
    assert f"stopped: {reason}" in text


def by_status_json(where: Path, shell: Shell, caplog: Any, *more: str) -> None:
    found, wanted = json.loads(shell("status", begun(where), *more)), reference()
    assert (found["complete"], found["failed"], found["stopped"], found["saved"]) == (
        *(RUNS - 1, 0, 1),
        wanted.saved,
    )
    trials = found["trials"]
    curves = [{int(s): v for s, v in t["curve"].items()} for t in trials[:-1]]
    assert tuple(curves) == wanted.curves
    assert (trials[BAD]["state"], trials[BAD]["reason"]) == ("stopped", wanted.stopped[0][1])


# The hopeless run waits after what says so, until it is ended.
PROGRAM = f"""
import os, time
number = int(os.environ["METAKEL_NUMBER"])
level = -50 if number == {BAD} else 0.3 * number
for step in range(1, {STEPS + 1}):
    for _ in range(60_000 if number == {BAD} and step == 15 else 0):
        time.sleep(0.01)
    print(f"epoch={{step}} val={{level - 2.0**-step!r}}")
print(level - 2.0**-{STEPS})
"""


def tuned(where: Path, shell: Shell, *more: str) -> str:
    (where / "train.py").write_text(PROGRAM, encoding="utf-8")
    prior_of(FEATURE).save(where / "prior.json")
    model().save(where / "curves.json")
    text = shell(
        *("tune", "prior.json", "--budget", RUNS, "--curves", "curves.json", *more),
        *("--step-pattern", "epoch={step} val={value}", "--", sys.executable, "train.py"),
        *("{x}", "{kind}"),
    )
    record = Store.open(where / "metakel-run.jsonl").run.record
    shell("suggest", "prior.json", "--journal", "metakel-run.jsonl")  # the pending one
    assert len(record) == RUNS
    assert_same(became(Store.open(where / "metakel-run.jsonl").run.record))
    return text


def by_tune(where: Path, shell: Shell, caplog: Any) -> None:
    text, wanted = tuned(where, shell), reference()
    assert f"1 runs were stopped early; {wanted.saved} steps were saved" in text
    assert f"stopped after step {STEPS - wanted.saved}: {wanted.stopped[0][1]}" in text


def by_tune_json(where: Path, shell: Shell, caplog: Any, *more: str) -> None:
    *lines, end = map(json.loads, tuned(where, shell, *more).splitlines())
    wanted = reference()
    assert [x["event"] == "stopped" for x in lines] == [k == BAD for k in range(RUNS)]
    assert tuple({int(s): v for s, v in x["curve"].items()} for x in lines) == wanted.curves
    assert (lines[BAD]["value"], lines[BAD]["reason"]) == (None, wanted.stopped[0][1])
    assert (end["complete"], end["failed"], end["stopped"]) == (RUNS - 1, 0, 1)


def by_suggest(where: Path, shell: Shell, caplog: Any, *more: str) -> None:
    """It goes on where the search stands."""
    path = begun(where)
    prior_of(FEATURE).save(where / "prior.json")
    answer = shell("suggest", "prior.json", "--journal", path.name, *more)
    record = Store.open(path).run.record
    assert (len(record.stopped), len(record.pending)) == (1, 2)
    asked = dict(record[-1].point)
    assert asked not in reference().asked
    assert not more or json.loads(answer)[0]["configuration"] == asked


def by_tell(where: Path, shell: Shell, caplog: Any, *more: str) -> None:
    """A value of a run that was stopped is a correction, and it says so."""
    path = begun(where)
    with pytest.raises(InputError, match="it was stopped early") as refused:
        shell("tell", path, "0.25", "--number", BAD)
    assert "--correct" in str(refused.value)
    answer = shell("tell", path, "0.25", "--number", BAD, "--correct", *more)
    assert (json.loads(answer)["value"] == 0.25) if more else ("0.25" in answer)
    record = Store.open(path).run.record
    assert record[BAD].value == 0.25
    assert not record.stopped


def by_learn(where: Path, shell: Shell, caplog: Any) -> None:
    """Journals with stopped runs teach a prior; a stopped one counts by its expected end."""
    table, path = table_of(FEATURE, where), begun(where)
    (where / "other.jsonl").write_bytes(path.read_bytes())
    words = ["learn", table, "--task", "task", "--output", "score", "--maximize"]
    shell(*words, "--journals", path.name, "--journals", "other.jsonl")
    learned = mk.Prior.load(where / "prior.json")
    assert learned.info.runs == prior_of(FEATURE).info.runs + 2 * RUNS


CELLS: dict[str, Callable[..., None]] = {
    "optimizer": by_optimizer,
    "save and load": by_save_and_load,
    "Tuner": by_tuner,
    "sampler": by_sampler,
    "report": by_report,
    "notebook": by_notebook,
    "learn": by_learn,
    "suggest": by_suggest,
    "tell": by_tell,
    "status": by_status,
    "tune": by_tune,
    "suggest --json": by_suggest,
    "tell --json": by_tell,
    "status --json": by_status_json,
    "tune --json": by_tune_json,
}
