"""OptunaSearchCV with a history: pip install optuna-integration.

Without a history, or for a model of the library, MetaKelSearchCV needs less.
"""

from __future__ import annotations

import optuna
from optuna.distributions import FloatDistribution
from optuna_integration import OptunaSearchCV
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from metakel.integrations.optuna import MetaKelSampler

NAME = "logisticregression__C"


def search(data: tuple, study: optuna.Study, trials: int) -> OptunaSearchCV:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    ranges = {NAME: FloatDistribution(1e-4, 1e2, log=True)}
    made = OptunaSearchCV(
        model, ranges, cv=3, n_trials=trials, scoring="neg_log_loss", study=study, verbose=0
    )
    return made.fit(*data)


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    past = []
    for seed, load in enumerate((load_iris, load_wine, load_breast_cancer)):
        sampler = optuna.samplers.RandomSampler(seed=seed)
        past.append(optuna.create_study(direction="maximize", sampler=sampler))
        search(load(return_X_y=True), past[-1], 12)
    study = optuna.create_study(direction="maximize", sampler=MetaKelSampler(past, seed=0))
    X, y = load_digits(return_X_y=True)
    found = search((X[:400], y[:400]), study, 5)
    print(f"best log loss {-found.best_score_:.4f} with C = {found.best_params_[NAME]:.3g}")


if __name__ == "__main__":
    main()
