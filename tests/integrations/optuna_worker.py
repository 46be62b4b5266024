"""A worker on a study in a storage: ``optuna_worker.py URL PRIOR TRIALS [HANG_AT]``."""

from __future__ import annotations

import sys
import time

import optuna

from metakel import Prior
from metakel.integrations.optuna import MetaKelSampler

optuna.logging.set_verbosity(optuna.logging.WARNING)


def whole(trial) -> float:
    """On 10 x 10 x 3 configurations, so that equal choices would be likely."""
    i, j = trial.suggest_int("i", 0, 9), trial.suggest_int("j", 0, 9)
    kind = trial.suggest_categorical("kind", ["a", "b", "c"])
    return (i - 3) ** 2 + (j - 3) ** 2 + 5 * (kind != "a")


def main(url: str, prior: str, trials: str, hang_at: str = "-1") -> None:
    # All workers have the same seed: it must not make them do the same.
    study = optuna.load_study(
        study_name="shared", storage=url, sampler=MetaKelSampler(prior=Prior.load(prior), seed=0)
    )

    def objective(trial) -> float:
        value = whole(trial)
        if trial.number >= int(hang_at) >= 0:
            print("hangs", flush=True)  # noqa: T201
            time.sleep(600)
        time.sleep(0.01)
        return value

    study.optimize(objective, n_trials=int(trials))


if __name__ == "__main__":
    main(*sys.argv[1:])
