"""Workers of Dask on one study: pip install "dask[distributed]" optuna-integration."""

from __future__ import annotations

import optuna
from distributed import Client, LocalCluster, wait
from optuna_integration import DaskStorage
from past import objective, past_studies

from metakel.integrations.optuna import MetaKelSampler


def main() -> None:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        sampler = MetaKelSampler(past_studies(), seed=0)
        study = optuna.create_study(storage=DaskStorage(), sampler=sampler)
        pieces = [
            client.submit(study.optimize, lambda trial: objective(trial, 99), 4, pure=False)
            for _ in range(2)
        ]
        wait(pieces)
        print(f"{len(study.trials)} trials of 2 workers, best {study.best_value:.4f}")


if __name__ == "__main__":
    main()
