"""A worker on a study in a storage, released by a line on its input.

``optuna_worker.py URL PRIOR TRIALS [--seed N] [--together N] [--hang-at N]``. PRIOR is a file, or
the URL of a storage of past studies; then the last line says which prior was used.
"""

from __future__ import annotations

import argparse
import sys
import time
from hashlib import sha256

import optuna

from metakel import Prior
from metakel._files import encode
from metakel.integrations.optuna import MetaKelSampler

optuna.logging.set_verbosity(optuna.logging.WARNING)


def whole(trial) -> float:
    """On 10 x 10 x 3 configurations, so that equal choices would be likely."""
    i, j = trial.suggest_int("i", 0, 9), trial.suggest_int("j", 0, 9)
    kind = trial.suggest_categorical("kind", ["a", "b", "c"])
    return (i - 3) ** 2 + (j - 3) ** 2 + 5 * (kind != "b")


def smooth(trial) -> float:
    """On a continuous space, where choices may be nearly equal."""
    x, y = trial.suggest_float("x", -1, 1), trial.suggest_float("y", -1, 1)
    return (x + 0.5) ** 2 + (y + 0.3) ** 2


def wait_for(study: optuna.Study, count: int) -> None:
    """Return once so many trials have been chosen; nobody has a result before."""
    while sum(len(trial.params) > 1 for trial in study.get_trials(deepcopy=False)) < count:
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("prior")
    parser.add_argument("trials", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--together", type=int, help="so many choose before any has a result")
    parser.add_argument("--hang-at", type=int, help="the first trial that never ends")
    options = parser.parse_args()
    past = options.prior if "://" in options.prior else None
    prior = None if past else Prior.load(options.prior)
    sampler = MetaKelSampler(past, prior=prior, seed=options.seed)
    study = optuna.load_study(study_name="shared", storage=options.url, sampler=sampler)

    def objective(trial) -> float:
        value = whole(trial) if "kind" in sampler.prior.space.names else smooth(trial)
        if options.together is not None:
            wait_for(study, options.together)
        if options.hang_at is not None and trial.number >= options.hang_at:
            print("hangs", flush=True)  # noqa: T201
            time.sleep(600)
        time.sleep(0.01)
        return value

    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    study.optimize(objective, n_trials=options.trials)
    if past:
        print(sha256(repr(encode(sampler.prior)).encode()).hexdigest(), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
