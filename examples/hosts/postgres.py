"""Several processes on one study in a PostgreSQL server: python postgres.py URL [--workers 4]."""

from __future__ import annotations

import argparse
from multiprocessing import get_context

import optuna
from past import objective, past_studies

from metakel.integrations.optuna import MetaKelSampler, Studies


def work(url: str, trials: int) -> None:
    # The first worker learns the prior and stores it with the study; the others read it.
    past = Studies(url, where=lambda summary: summary.study_name.startswith("task "))
    study = optuna.load_study(study_name="new", storage=url, sampler=MetaKelSampler(past))
    study.optimize(lambda trial: objective(trial, 99), n_trials=trials)


def main(url: str, workers: int) -> None:
    past_studies(url)
    study = optuna.create_study(study_name="new", storage=url)
    context = get_context("spawn")
    processes = [context.Process(target=work, args=(url, 4)) for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print(f"{len(study.trials)} trials of {workers} processes, best {study.best_value:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--workers", type=int, default=4)
    main(**vars(parser.parse_args()))
