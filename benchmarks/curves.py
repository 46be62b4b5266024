"""Runs that are stopped early: what it saves, and how often the best one is lost.

``python -m benchmarks.curves [--sections NAME ...] [--update-docs]``

Curves of the library (LightGBM and XGBoost, classification and regression; epochs of perceptrons as
a second source), a quarter of the data sets left out at a time. All pruners see the same
configurations in the same order (seed 0), each curve at 20 steps of equal length; those of Optuna
are as it ships them. Of every search: the share of all steps that was made, whether the
configuration with the best last value was stopped, and the regret, as a share of the distance from
the best to the median. Then curves of another kind, and searches (`benchmarks.curves_searches`).
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import optuna
from optuna.pruners import BasePruner

from benchmarks import curves_searches as searches
from benchmarks.curves_searches import STEPS, at_shares
from benchmarks.docs import markdown, update_section
from library.permuted import read_permuted
from library.run import drawn_runs
from metakel.curves import CurveModel

FOLDS = 4
PARTS = (
    ("lightgbm", "classification"),
    ("lightgbm", "regression"),
    ("xgboost", "classification"),
    ("xgboost", "regression"),
    ("mlp", "classification"),
)
SEARCHED = (PARTS[0], PARTS[-1])
Curves = list[list[float]]
THEIRS: dict[str, Callable[[], BasePruner]] = {
    "Optuna MedianPruner(5, 4)": lambda: optuna.pruners.MedianPruner(5, 4),
    "Optuna SuccessiveHalvingPruner(3, 3)": lambda: optuna.pruners.SuccessiveHalvingPruner(
        min_resource=3, reduction_factor=3
    ),
    "Optuna HyperbandPruner": lambda: optuna.pruners.HyperbandPruner(1, STEPS),
}


def curves_of(model: str, kind: str, rng: np.random.Generator) -> list[Curves]:
    """By data set, in a random order of its runs: values at equal shares of the steps."""
    found: dict[str, Curves] = defaultdict(list)
    rows = read_permuted() if model == "permuted" else drawn_runs(model)
    for row in rows:
        curve = at_shares(row["curve"])
        if row.get("kind", kind) == kind and curve is not None:
            found[row["dataset"]].append(curve)
    return [[task[i] for i in rng.permutation(len(task))] for _, task in sorted(found.items())]


def played(curves: Curves, model: CurveModel) -> tuple[float, bool, float]:
    """The same with a model of curves: what `MetaKelPruner` does, without a study around it."""
    seen: list[dict[int, float]] = []
    for values in curves:
        decide, part = model.beside(seen, STEPS), dict[int, float]()
        for step, value in enumerate(values, 1):
            part[step] = value
            if step < STEPS and decide(part):
                break
        seen.append(part)
    return outcome(curves, [len(part) for part in seen])


def searched(curves: Curves, pruner: BasePruner) -> tuple[float, bool, float]:
    """Share of steps, whether the best was stopped, and the regret."""
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        curve = curves[trial.number]
        for step, value in enumerate(curve, 1):
            trial.report(value, step)
            if step < STEPS and trial.should_prune():
                raise optuna.TrialPruned
        return curve[-1]

    study.optimize(objective, n_trials=len(curves))
    return outcome(curves, [len(trial.intermediate_values) for trial in study.trials])


def outcome(curves: Curves, made: list[int]) -> tuple[float, bool, float]:
    """From how many steps of each run were made."""
    finals = np.array([curve[-1] for curve in curves])
    best = int(np.argmin(finals))
    whole = finals[np.array(made) == STEPS]
    regret = (whole.min() - finals.min()) / max(np.median(finals) - finals.min(), 1e-12)
    return sum(made) / (STEPS * len(curves)), made[best] < STEPS, float(regret)


HEAD = ["curves (data sets)", "pruner", "steps made", "best stopped", "regret"]


def our_rows() -> str:
    rows = []
    for model, kind in PARTS:
        rng = np.random.default_rng(0)
        tasks = curves_of(model, kind, rng)
        order = rng.permutation(len(tasks))
        found: dict[str, list[tuple[float, bool, float]]] = defaultdict(list)
        for fold in range(FOLDS):
            left = set(order[fold::FOLDS].tolist())
            past = [
                [dict(enumerate(curve, 1)) for curve in task]
                for s, task in enumerate(tasks)
                if s not in left
            ]
            learned = CurveModel.learn(past, minimize=True)
            ours = {f"metakel, delta {d:g}": learned.at(d) for d in (0.05, 0.2)}
            ours["metakel, margin 0 (negative control)"] = replace(
                learned, margins=0 * learned.margins, surprises=learned.surprises + np.inf
            )
            for s in sorted(left):
                for name, curve_model in ours.items():
                    found[name].append(played(tasks[s], curve_model))
        rows += shown(f"{model}, {kind} ({len(tasks)})", found)
    return markdown(HEAD, rows)


def their_rows() -> str:
    rows = []
    for model, kind in PARTS:
        tasks = curves_of(model, kind, np.random.default_rng(0))
        found = {name: [searched(task, make()) for task in tasks] for name, make in THEIRS.items()}
        rows += shown(f"{model}, {kind} ({len(tasks)})", found)
    return markdown(HEAD, rows)


def shown(part: str, found: Mapping[str, list[tuple[float, bool, float]]]) -> list[list[str]]:
    rows = []
    for name, results in found.items():
        used, killed, regret = np.array(results, dtype=float).mean(axis=0)
        rows.append([part, name, f"{used:.2f}", f"{killed:.3f}", f"{regret:.4f}"])
    return rows


def another_kind() -> str:
    """Learned from LightGBM's classification curves, played on curves of other kinds."""
    rng = np.random.default_rng(0)
    past = curves_of("lightgbm", "classification", rng)
    learned = CurveModel.learn(
        [[dict(enumerate(curve, 1)) for curve in task] for task in past], minimize=True
    )
    others = {
        "LightGBM on permuted labels": curves_of("permuted", "", rng),
        "LightGBM, errors of regression": curves_of("lightgbm", "regression", rng),
        "epochs of perceptrons": curves_of("mlp", "classification", rng),
    }
    rows = []
    for name, tasks in others.items():
        for delta in (0.05, 0.2):
            curve_model = learned.at(delta)
            used, killed, _ = np.mean([played(task, curve_model) for task in tasks], axis=0)
            row = [f"{name} ({len(tasks)})", f"{delta:g}", f"{used:.2f}", f"{killed:.3f}"]
            rows.append([*row, f"{delta + 0.05:g}"])
    return markdown(["curves (data sets)", "delta", "steps made", "best stopped", "floor"], rows)


def searches_table() -> str:
    head = ["proposals of metakel", "without stops: mean; median", "with stops"]
    head += ["ratio: mean; median (floor .95; .75)", "share that took longer"]
    return markdown(head, [searches.beside_metakel(*part) for part in SEARCHED])


def others_table() -> str:
    head = ["curves, proposals", "metakel's pruner", "best pruner of Optuna", "ratio (floor 1.0)"]
    rows = [row for part in SEARCHED for row in searches.beside_others(*part, THEIRS)]
    return markdown(head, rows)


def studies_table() -> str:
    head = ["prior from four past studies", "runs to within 5 %, mean", "median"]
    return markdown(head, searches.pruned_studies())


def time_table() -> str:
    found = f"{searches.decision_time():.1f}"
    return markdown(["a decision after one more value", "ms (floor 5)"], [["60 runs", found]])


# A name of each section in the page, its title, and what makes it.
SECTIONS: dict[str, tuple[str, Callable[[], str]]] = {
    "curves": ("What do early stops save, and lose?", our_rows),
    "kinds": ("Curves of another kind", another_kind),
    "searches": ("Steps to within 5 %, beside metakel's proposals", searches_table),
    "others": ("Steps to within 5 %, with random and TPE proposals", others_table),
    "studies": ("Priors from pruned studies", studies_table),
    "time": ("Time of a decision", time_table),
    "pruners": ("Pruners of Optuna", their_rows),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sections", nargs="*", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("metakel").setLevel(logging.ERROR)
    for name in options.sections:
        title, make = SECTIONS[name]
        found = make()
        sys.stdout.write(f"{title}\n{found}\n\n")
        sys.stdout.flush()
        if options.update_docs:
            update_section(name, title, found)


if __name__ == "__main__":
    main()
