"""Three finished studies make a fourth one faster."""

from __future__ import annotations

import optuna
import optunahub


MetaKelSampler = optunahub.load_module("samplers/metakel").MetaKelSampler


def objective(trial: optuna.Trial, best_x: float) -> float:
    x = trial.suggest_float("x", -10, 10)
    y = trial.suggest_int("y", 1, 100, log=True)
    return (x - best_x) ** 2 + 0.01 * (y - 20) ** 2


past_studies = []
for best_x in (1.5, 2.0, 2.5):
    past = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    past.optimize(lambda trial, best_x=best_x: objective(trial, best_x), n_trials=30)
    past_studies.append(past)

sampler = MetaKelSampler(source_studies=past_studies, seed=0)
study = optuna.create_study(sampler=sampler)
study.optimize(lambda trial: objective(trial, 1.8), n_trials=15)
print(f"best {study.best_value:.3f}, trust {sampler.trust(study):.2f}")
