"""Searches with runs that are stopped early: steps until a run is nearly the best.

Part of ``python -m benchmarks.curves``. A search on a data set left out tries the configurations of
its runs, each at most once, until one that was made to its end is within 5 % of the distance from
the best to the median. What counts is the steps of all runs until then; a search that stops the
runs it looks for is charged all steps of the data set.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

import metakel as mk
from library.build import space_of
from library.run import drawn_runs
from metakel.curves import CurveModel
from metakel.integrations.optuna import MetaKelPruner
from metakel.io.optuna import recorded_studies
from metakel.library._entries import ENTRIES

STEPS, CLOSE = 20, 0.05
FOLDS = 4
REPEATS, STUDIES, RUNS, LEFT = 6, 4, 40, 10  # of pruned past studies


@dataclass(frozen=True)
class Runs:
    """Configurations of a data set, and the losses of each at equal shares of its steps."""

    points: list[dict[str, Any]]
    curves: list[list[float]]

    @property
    def target(self) -> float:
        """The last value that is good enough."""
        ends = np.array(self.curves)[:, -1]
        return float(ends.min() + CLOSE * (np.median(ends) - ends.min()))

    @property
    def all_steps(self) -> int:
        """Of all runs."""
        return STEPS * len(self.curves)


def at_shares(text: str) -> list[float] | None:
    """A stored curve at equal shares of its steps; None without one."""
    values = {int(step): v for step, v in json.loads(text or "{}").items()}
    if len(values) < 3:
        return None
    steps = np.array(sorted(values))
    places = np.searchsorted(steps, np.arange(1, STEPS + 1) / STEPS * steps[-1], "right") - 1
    return [values[int(steps[max(i, 0)])] for i in places]


def runs_of(model: str, kind: str, seed: int = 0) -> dict[str, Runs]:
    """By data set, without the defaults, in a random order."""
    space, rng = space_of(ENTRIES[model]), np.random.default_rng(seed)
    found: dict[str, Runs] = defaultdict(lambda: Runs([], []))
    for row in drawn_runs(model):
        curve = at_shares(row["curve"])
        if row["kind"] != kind or curve is None or int(row["configuration"]) == 0:
            continue
        found[row["dataset"]].points.append(json.loads(row["parameters"]))
        found[row["dataset"]].curves.append(curve)
    made = {}
    for name, runs in sorted(found.items()):
        order = rng.permutation(len(runs.points))
        points = space.decode(space.nearest(space.encode([runs.points[i] for i in order])))
        made[name] = Runs(points, [runs.curves[i] for i in order])
    return made


def split(tasks: dict[str, Runs], seed: int = 0) -> list[tuple[dict[str, Runs], dict[str, Runs]]]:
    """Past data sets and those left out."""
    names, order = list(tasks), np.random.default_rng(seed).permutation(len(tasks))
    folds = []
    for fold in range(FOLDS):
        left = {names[i] for i in order[fold::FOLDS]}
        folds.append(
            tuple({n: r for n, r in tasks.items() if (n in left) == held} for held in (False, True))
        )
    return folds  # type: ignore[return-value]


def model_of(past: dict[str, Runs], delta: float = 0.05) -> CurveModel:
    curves = [[dict(enumerate(c, 1)) for c in runs.curves] for runs in past.values()]
    return CurveModel.learn(curves, minimize=True, delta=delta)


def prior_of(model: str, past: dict[str, Runs]) -> mk.Prior:
    rows = [
        {"task": name, **x, "loss": curve[-1]}
        for name, runs in past.items()
        for x, curve in zip(runs.points, runs.curves, strict=True)
    ]
    names = ["task", *space_of(ENTRIES[model]).names, "loss"]
    history = mk.History.from_frame(
        {name: [row.get(name) for row in rows] for name in names},
        task="task", output="loss", minimize=True, space=space_of(ENTRIES[model]),
    )  # fmt: skip
    return mk.learn_prior(history, certify="none", log_output=True)


def by_metakel(prior: mk.Prior, runs: Runs, curves: CurveModel | None) -> tuple[int, int]:
    """Steps and runs until one is good enough, with metakel's proposals."""
    space = prior.space
    place = {space.key(x): i for i, x in enumerate(runs.points)}
    tuner, used, seen = mk.Tuner(prior, candidates=list(runs.points)), 0, []
    for tried in range(1, len(place) + 1):
        x = tuner.ask()
        values, curve = runs.curves[place[space.key(x)]], dict[int, float]()
        stop, decide = None, None if curves is None else curves.beside(seen, STEPS)
        for step, value in enumerate(values, 1):
            curve[step] = value
            stop = None if decide is None else decide(curve)
            if stop:
                break
        used += len(curve)
        seen.append(curve)
        if stop:
            tuner.stop(x, curve, stop.reason)
            continue
        if values[-1] <= runs.target:
            return used, tried
        tuner.tell(x, values[-1])
    return runs.all_steps, len(place)


def by_optuna(sampler: BaseSampler, pruner: BasePruner, runs: Runs, points: Any) -> int:
    """Steps with another sampler: each proposal is the nearest configuration not tried yet."""
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    left, used = list(range(len(runs.points))), 0
    while left:
        trial = study.ask()
        x = np.array([trial.suggest_float(f"x{i}", -1, 1) for i in range(points.shape[1])])
        i = left.pop(int(np.argmin(((points[left] - x) ** 2).sum(axis=1))))
        stopped = False
        for step, value in enumerate(runs.curves[i], 1):
            trial.report(value, step)
            used += 1
            if step < STEPS and trial.should_prune():
                stopped = True
                break
        if stopped:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        study.tell(trial, runs.curves[i][-1])
        if runs.curves[i][-1] <= runs.target:
            return used
    return runs.all_steps


def beside_metakel(model: str, kind: str) -> list[str]:
    """A row: steps with stops over steps without, mean and median, and how often it helped."""
    ratios, whole, early = [], [], []
    for past, left in split(runs_of(model, kind)):
        prior, curves = prior_of(model, past), model_of(past)
        for runs in left.values():
            a, b = (by_metakel(prior, runs, of)[0] for of in (None, curves))
            whole.append(a)
            early.append(b)
            ratios.append(b / a)
    found = (np.mean(early) / np.mean(whole), np.median(early) / np.median(whole))
    name = f"{model}, {kind} ({len(whole)})"
    return [
        name,
        f"{np.mean(whole):.0f}; {np.median(whole):.0f}",
        f"{np.mean(early):.0f}; {np.median(early):.0f}",
        f"{found[0]:.2f}; {found[1]:.2f}",
        f"{np.mean(np.array(ratios) > 1):.2f}",
    ]


def beside_others(
    model: str, kind: str, pruners: dict[str, Callable[[], BasePruner]]
) -> list[list[str]]:
    """Rows: mean steps with random and TPE proposals, with each pruner."""
    samplers: dict[str, Callable[[], BaseSampler]] = {
        "random": lambda: RandomSampler(seed=0),
        "TPE": lambda: TPESampler(seed=0),
    }
    space, found = space_of(ENTRIES[model]), defaultdict[tuple[str, str], list[int]](list)
    for past, left in split(runs_of(model, kind))[:1]:  # it takes long
        curves = model_of(past)
        ways = {"metakel": lambda curves=curves: MetaKelPruner(model=curves, n_steps=STEPS)}
        for runs in left.values():
            points = space.encode(runs.points)
            for proposals, sampler in samplers.items():
                for pruner, make in (ways | pruners).items():
                    steps = by_optuna(sampler(), make(), runs, points)
                    found[proposals, pruner].append(steps)
    rows = []
    for proposals in samplers:
        means = {p: float(np.mean(v)) for (s, p), v in found.items() if s == proposals}
        theirs = {p: m for p, m in means.items() if p != "metakel"}
        best = min(theirs, key=lambda p: theirs[p])
        rows.append(
            [
                f"{model}, {kind} ({len(found[proposals, 'metakel'])}), {proposals}",
                f"{means['metakel']:.0f}",
                f"{theirs[best]:.0f} ({best})",
                f"{means['metakel'] / theirs[best]:.2f}",
            ]
        )
    return rows


def decision_time() -> float:
    """Median milliseconds of a decision after one more value, beside 60 earlier runs."""
    tasks = list(runs_of("lightgbm", "classification").values())
    curves = [[dict(enumerate(c, 1)) for c in runs.curves] for runs in tasks]
    model, took = CurveModel.learn(curves[1:], minimize=True), []
    for curve in curves[0][:20]:
        for step in range(2, STEPS):
            part = {s: v for s, v in curve.items() if s <= step}
            start = time.perf_counter()
            model.decide(part, curves[0], STEPS)  # with all that `beside` computes once
            took.append(1000 * (time.perf_counter() - start))
    return float(np.median(took))


def pruned_studies() -> list[list[str]]:
    """Rows: runs to nearly the best with priors of four past studies, pruned or not."""
    tasks, space = runs_of("lightgbm", "classification"), space_of(ENTRIES["lightgbm"])
    names, rng = list(tasks), np.random.default_rng(0)
    found = defaultdict[str, list[int]](list)
    for _ in range(REPEATS):
        order = [names[i] for i in rng.permutation(len(names))]
        past, left = order[:STUDIES], order[STUDIES : STUDIES + LEFT]
        pruned, whole = (
            recorded_studies([_study(tasks[name], name, space, halving) for name in past])[0]
            for halving in (True, False)
        )
        ways = {
            "unpruned": whole,
            "pruned, by predicted ends": pruned,
            "pruned, dropped": [replace(study, curves=()) for study in pruned],
        }
        for way, studies in ways.items():
            history = mk.History.from_optuna(studies)
            prior = mk.learn_prior(history, certify="none", log_output=True)
            found[way] += [by_metakel(prior, tasks[name], None)[1] for name in left]
    return [[way, f"{np.mean(n):.1f}", f"{np.median(n):.1f}"] for way, n in found.items()]


def _study(runs: Runs, name: str, space: Any, halving: bool) -> optuna.Study:
    pruner = optuna.pruners.SuccessiveHalvingPruner() if halving else optuna.pruners.NopPruner()
    study = optuna.create_study(study_name=name, pruner=pruner)
    for x, curve in [*zip(runs.points, runs.curves, strict=True)][:RUNS]:
        study.enqueue_trial(x)
        trial = study.ask()
        for p in space.parameters:
            if isinstance(p, mk.space.Integer):
                trial.suggest_int(p.name, p.low, p.high, log=p.log)
            else:
                trial.suggest_float(p.name, p.low, p.high, log=p.log)
        for step, value in enumerate(curve):
            trial.report(value, step)
            if step + 1 < STEPS and trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(trial, curve[-1])
    return study
