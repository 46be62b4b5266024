"""An Optuna user's story: nine studies of a classifier in SQLite help with the tenth data set.

Real data from scikit-learn: handwritten digits in pairs, breast cancer and wine. A support vector
machine is tuned by cross-validation. Run ``python examples/stories/optuna_user.py``; with
``--past 8 --trials 6`` it is quick.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from functools import cache, partial
from pathlib import Path

import numpy as np
import optuna
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from metakel.integrations.optuna import MetaKelSampler, StopAtCallback

PAIRS = ("1 7", "2 3", "3 5", "3 8", "4 9", "5 8", "8 9")
PAST = (*PAIRS, "cancer", "wine")
NEXT = "1 8"
ROWS = 180


@cache
def data_set(name: str) -> tuple[np.ndarray, np.ndarray]:
    """At most 180 rows: this is about tuning, not about the classifier."""
    if name in ("cancer", "wine"):
        X, y = (load_breast_cancer if name == "cancer" else load_wine)(return_X_y=True)
    else:
        X, y = load_digits(return_X_y=True)
        wanted = np.isin(y, [int(digit) for digit in name.split()])
        X, y = X[wanted], y[wanted]
    rows = np.random.default_rng(0).permutation(len(X))[:ROWS]
    return X[rows], y[rows]


def objective(trial: optuna.Trial, name: str, reduce: bool = False) -> float:
    """Error in three-fold cross-validation; with ``reduce``, after a projection."""
    X, y = data_set(name)
    model = SVC(
        C=trial.suggest_float("C", 1e-3, 1e3, log=True),
        gamma=trial.suggest_float("gamma", 1e-6, 1e1, log=True),
    )
    steps = [StandardScaler(), model]
    if reduce:
        steps.insert(1, PCA(trial.suggest_int("components", 2, 30), random_state=0))
    return 1 - float(cross_val_score(make_pipeline(*steps), X, y, cv=3).mean())


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
        print(f"  {trial.number:2}  error {trial.value:.3f}  {expected:38}  {params}")
    print(f"  best {study.best_value:.3f} after {len(study.trials)} trials")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--past", type=int, default=30, help="trials of each past study")
    parser.add_argument("--trials", type=int, default=12, help="trials of the new one, at most")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    logging.getLogger("metakel").setLevel(logging.INFO)

    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{Path(folder, 'past.db')}"
        tune_the_past(storage, options.past)
        sampler = MetaKelSampler(storage, seed=0, output_range=(0, 1))  # an error rate
        study = optuna.create_study(study_name=f"digits {NEXT}", sampler=sampler)
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
