"""Weights & Biases beside an Optuna study: its page shows what was tried and what was expected.

pip install wandb. W&B's own sweeps choose by themselves, so the study takes their place. Set
WANDB_MODE=offline to try it without an account.
"""

from __future__ import annotations

import optuna
import wandb
from past import objective, past_studies

from metakel.integrations.optuna import MetaKelSampler


def main() -> None:
    study = optuna.create_study(sampler=MetaKelSampler(past_studies(), seed=0))
    for _ in range(6):
        trial = study.ask()
        value = objective(trial, 99)
        study.tell(trial, value)
        expected = study.trials[-1].user_attrs.get("metakel:expected", {})
        with wandb.init(project="metakel", group="new", config=trial.params) as run:
            told = {"expected": expected.get("value"), "trust": expected.get("trust")}
            run.log({"loss": value, **told})
    print(f"{len(study.trials)} runs, best {study.best_value:.4f}")


if __name__ == "__main__":
    main()
