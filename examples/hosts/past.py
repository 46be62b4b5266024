"""Past studies that the other scripts learn from: six tasks, 20 random trials each."""

from __future__ import annotations

import numpy as np
import optuna

RANGES = {"rate": (1e-4, 1.0), "depth": (2, 10)}


def loss(rate: float, depth: int, task: int) -> float:
    """A training run, in place of yours; the optimum differs from task to task."""
    best = -2 + 0.3 * np.random.default_rng(task).normal()
    return float(0.1 + 0.05 * (np.log10(rate) - best) ** 2 + 0.004 * (depth - 6) ** 2)


def objective(trial: optuna.Trial, task: int) -> float:
    rate = trial.suggest_float("rate", *RANGES["rate"], log=True)
    return loss(rate, trial.suggest_int("depth", *RANGES["depth"]), task)


def past_studies(storage: str | None = None) -> list[optuna.Study]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    studies = []
    for task in range(6):
        sampler = optuna.samplers.RandomSampler(seed=task)
        study = optuna.create_study(storage=storage, study_name=f"task {task}", sampler=sampler)
        study.optimize(lambda trial, task=task: objective(trial, task), n_trials=20)
        studies.append(study)
    return studies
