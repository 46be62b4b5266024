"""Runs that are stopped early: what it saves, and how often the best one is lost.

``python -m benchmarks.curves [--quick] [--update-docs]``

Curves of the library (LightGBM and XGBoost, classification and regression), a quarter of the data
sets left out at a time. All pruners see the same configurations in the same order (seed 0), each
curve at 20 steps of equal length; those of Optuna are as it ships them. Of every search: the share
of all steps that was made, whether the configuration with the best last value was stopped, and the
regret, as a share of the distance from the best to the median.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import optuna
from optuna.pruners import BasePruner

from benchmarks.docs import PAGES, markdown, update_section
from library.run import read_runs
from metakel.curves import CurveModel
from metakel.integrations.optuna import MetaKelPruner

STEPS, FOLDS = 20, 4
PARTS = (
    ("lightgbm", "classification"),
    ("lightgbm", "regression"),
    ("xgboost", "classification"),
    ("xgboost", "regression"),
)
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
    for row in read_runs(model):
        values = {int(step): v for step, v in json.loads(row["curve"] or "{}").items()}
        if row["kind"] != kind or len(values) < 3:
            continue
        steps = np.array(sorted(values))
        places = np.searchsorted(steps, np.arange(1, STEPS + 1) / STEPS * steps[-1], "right") - 1
        found[row["dataset"]].append([values[int(steps[max(i, 0)])] for i in places])
    return [[task[i] for i in rng.permutation(len(task))] for _, task in sorted(found.items())]


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
    made = [len(trial.intermediate_values) for trial in study.trials]
    finals = np.array([curve[-1] for curve in curves])
    best = int(np.argmin(finals))
    whole = finals[np.array(made) == STEPS]
    regret = (whole.min() - finals.min()) / max(np.median(finals) - finals.min(), 1e-12)
    return sum(made) / (STEPS * len(curves)), made[best] < STEPS, float(regret)


def measure(parts: tuple[tuple[str, str], ...]) -> str:
    rows = []
    for model, kind in parts:
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
            careless = CurveModel(
                learned.shape, 0 * learned.margins, 1 + learned.misses, STEPS, True
            )
            ours["metakel, margin 0 (negative control)"] = careless
            for s in sorted(left):
                for name, curve_model in ours.items():
                    found[name].append(searched(tasks[s], MetaKelPruner(model=curve_model)))
                for name, make in THEIRS.items():
                    found[name].append(searched(tasks[s], make()))
        for name, results in found.items():
            used, killed, regret = np.array(results, dtype=float).mean(axis=0)
            rows.append(
                [
                    f"{model}, {kind} ({len(tasks)})",
                    name,
                    f"{used:.2f}",
                    f"{killed:.3f}",
                    f"{regret:.4f}",
                ]
            )
    head = ["curves (data sets)", "pruner", "steps made", "best stopped", "regret"]
    return markdown(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one model and kind only")
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found = measure(PARTS[:1] if options.quick else PARTS)
    print(found)
    if options.update_docs:
        update_section(PAGES / "curves.md", "curves", "What do early stops save, and lose?", found)


if __name__ == "__main__":
    main()
