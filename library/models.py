"""The models of the library: their parameters, wide ranges, and how one is trained.

A range is (low, high), ("log", low, high) or a list of choices; whole numbers where both ends are.
Names are those of scikit-learn's interface of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Range = tuple[Any, ...] | list[Any]
EPOCHS = 30


@dataclass(frozen=True)
class Model:
    """What is trained.

    Parameters
    ----------
    name : str
    kinds : tuple of str
        "classification", "regression", or both.
    ranges : dict
        By the names of parameters.
    defaults : dict
        What the package takes where nothing is said; parameters it does not set are left out.
    make : callable
        From kind and parameters to an estimator.
    scaled : bool
        Whether the features are imputed and scaled to mean 0 and variance 1 first.
    steps : str
        The parameter that counts rounds or epochs, where the model has a learning curve.
    active : callable
        Whether a parameter matters beside the others of a configuration.
    """

    name: str
    kinds: tuple[str, ...]
    ranges: Mapping[str, Range]
    defaults: Mapping[str, Any]
    make: Callable[..., Any]
    scaled: bool = False
    steps: str = ""
    active: Callable[[str, Mapping[str, Any]], bool] = field(default=lambda name, others: True)

    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        """A configuration, uniform in the ranges or in their logarithms."""
        drawn = {name: _draw(found, rng) for name, found in self.ranges.items()}
        return {name: value for name, value in drawn.items() if self.active(name, drawn)}


def _draw(found: Range, rng: np.random.Generator) -> Any:
    if isinstance(found, list):
        return found[int(rng.integers(len(found)))]
    low, high = found[-2:]
    whole = isinstance(low, int) and isinstance(high, int)
    # Every whole number has a share of its own, the ends too.
    ends = (low - 0.5, high + 0.5) if whole else (low, high)
    if found[0] == "log":
        value = float(np.exp(rng.uniform(*np.log(ends))))
    else:
        value = float(rng.uniform(*ends))
    return int(np.clip(round(value), low, high)) if whole else float(f"{value:.6g}")


BOTH = ("classification", "regression")
TREES = ("log", 20, 500)


def _lightgbm(kind: str, seed: int, **parameters: Any) -> Any:
    import lightgbm

    made = lightgbm.LGBMClassifier if kind == "classification" else lightgbm.LGBMRegressor
    return made(**parameters, subsample_freq=1, n_jobs=1, verbose=-1, random_state=seed)


def _xgboost(kind: str, seed: int, **parameters: Any) -> Any:
    import xgboost

    made = xgboost.XGBClassifier if kind == "classification" else xgboost.XGBRegressor
    return made(**parameters, n_jobs=1, verbosity=0, random_state=seed, tree_method="hist")


def _catboost(kind: str, seed: int, **parameters: Any) -> Any:
    import catboost

    made = catboost.CatBoostClassifier if kind == "classification" else catboost.CatBoostRegressor
    fixed = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
    return made(**parameters, **fixed, random_seed=seed)


def _ensemble(classifier: str, regressor: str) -> Callable[..., Any]:
    def make(kind: str, seed: int, **parameters: Any) -> Any:
        import sklearn.ensemble

        made = getattr(sklearn.ensemble, classifier if kind == "classification" else regressor)
        return made(**parameters, random_state=seed)

    return make


def _svm(kind: str, seed: int, **parameters: Any) -> Any:
    from sklearn.svm import SVC, SVR

    if kind == "classification":
        return SVC(**parameters, random_state=seed, cache_size=500, max_iter=200_000)
    return SVR(**parameters, cache_size=500, max_iter=200_000)


def _logistic(kind: str, seed: int, **parameters: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(**parameters, solver="saga", max_iter=300, random_state=seed)


def _linear(name: str) -> Callable[..., Any]:
    def make(kind: str, seed: int, **parameters: Any) -> Any:
        import sklearn.linear_model

        return getattr(sklearn.linear_model, name)(**parameters, random_state=seed)

    return make


def _neighbors(kind: str, seed: int, **parameters: Any) -> Any:
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    return (KNeighborsClassifier if kind == "classification" else KNeighborsRegressor)(**parameters)


def _mlp(kind: str, seed: int, *, width: int, depth: int, **parameters: Any) -> Any:
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    made = MLPClassifier if kind == "classification" else MLPRegressor
    return made(hidden_layer_sizes=(width,) * depth, **parameters, random_state=seed)


def _sgd(kind: str, seed: int, **parameters: Any) -> Any:
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    if kind == "classification":
        return SGDClassifier(loss="log_loss", **parameters, random_state=seed)
    return SGDRegressor(**parameters, random_state=seed)


REGULARISED = {"reg_alpha": ("log", 1e-6, 10.0), "reg_lambda": ("log", 1e-6, 30.0)}
SAMPLED = {"subsample": (0.4, 1.0), "colsample_bytree": (0.3, 1.0)}
FOREST = {
    "n_estimators": ("log", 20, 300),
    "max_features": (0.05, 1.0),
    "min_samples_leaf": ("log", 1, 30),
    "max_depth": ("log", 2, 40),
    "bootstrap": [True, False],
}

MODELS = {
    model.name: model
    for model in (
        Model(
            "lightgbm",
            BOTH,
            {
                "learning_rate": ("log", 0.005, 0.5),
                "n_estimators": TREES,
                "num_leaves": ("log", 3, 255),
                "min_child_samples": ("log", 1, 100),
                **SAMPLED,
                **REGULARISED,
            },
            {},
            _lightgbm,
            steps="n_estimators",
        ),
        Model(
            "xgboost",
            BOTH,
            {
                "learning_rate": ("log", 0.005, 0.5),
                "n_estimators": TREES,
                "max_depth": (1, 12),
                "min_child_weight": ("log", 0.1, 50.0),
                "gamma": ("log", 1e-6, 5.0),
                **SAMPLED,
                **REGULARISED,
            },
            {},
            _xgboost,
            steps="n_estimators",
        ),
        Model(
            "hist_gradient_boosting",
            BOTH,
            {
                "learning_rate": ("log", 0.005, 0.5),
                "max_iter": ("log", 20, 400),
                "max_leaf_nodes": ("log", 3, 255),
                "min_samples_leaf": ("log", 1, 100),
                "l2_regularization": ("log", 1e-6, 30.0),
                "max_features": (0.3, 1.0),
            },
            {},
            _ensemble("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
            steps="max_iter",
        ),
        Model(
            "random_forest",
            BOTH,
            FOREST,
            {},
            _ensemble("RandomForestClassifier", "RandomForestRegressor"),
        ),
        Model(
            "logistic_regression",
            ("classification",),
            {
                "C": ("log", 1e-4, 1e3),
                "l1_ratio": (0.0, 1.0),
                "class_weight": ["none", "balanced"],
            },
            {},
            lambda kind, seed, class_weight="none", **rest: _logistic(
                kind, seed, class_weight=None if class_weight == "none" else class_weight, **rest
            ),
            scaled=True,
        ),
        Model(
            "elastic_net",
            ("regression",),
            {"alpha": ("log", 1e-4, 10.0), "l1_ratio": (0.01, 1.0)},
            {},
            _linear("ElasticNet"),
            scaled=True,
        ),
        Model(
            "knn",
            BOTH,
            {
                "n_neighbors": ("log", 1, 60),
                "weights": ["uniform", "distance"],
                "p": (1.0, 4.0),
            },
            {},
            _neighbors,
            scaled=True,
        ),
        Model(
            "svm",
            BOTH,
            {
                "C": ("log", 1e-3, 1e3),
                "kernel": ["rbf", "linear", "poly"],
                "gamma": ("log", 1e-5, 10.0),
                "degree": (2, 5),
            },
            {},
            _svm,
            scaled=True,
            active=lambda name, others: (
                others["kernel"] != "linear"
                if name == "gamma"
                else others["kernel"] == "poly"
                if name == "degree"
                else True
            ),
        ),
        Model(
            "extra_trees",
            BOTH,
            FOREST,
            {},
            _ensemble("ExtraTreesClassifier", "ExtraTreesRegressor"),
        ),
        Model(
            "mlp",
            BOTH,
            {
                "width": ("log", 8, 256),
                "depth": (1, 3),
                "alpha": ("log", 1e-7, 0.1),
                "learning_rate_init": ("log", 1e-4, 0.1),
                "batch_size": ("log", 16, 200),
                "activation": ["relu", "tanh"],
            },
            {"width": 100, "depth": 1},
            _mlp,
            scaled=True,
            steps="epochs",
        ),
        Model("ridge", ("regression",), {"alpha": ("log", 1e-4, 1e4)}, {}, _linear("Ridge"), True),
        Model("lasso", ("regression",), {"alpha": ("log", 1e-5, 10.0)}, {}, _linear("Lasso"), True),
        Model(
            "sgd",
            BOTH,
            {
                "alpha": ("log", 1e-7, 0.1),
                "l1_ratio": (0.0, 1.0),
                "eta0": ("log", 1e-4, 1.0),
                "learning_rate": ["constant", "invscaling", "adaptive"],
            },
            {},
            lambda kind, seed, **rest: _sgd(
                kind, seed, **{"eta0": 0.01, "penalty": "elasticnet", **rest}
            ),
            scaled=True,
            steps="epochs",
        ),
        Model(
            "catboost",
            BOTH,
            {
                "learning_rate": ("log", 0.005, 0.5),
                "iterations": ("log", 20, 500),
                "depth": (2, 8),
                "l2_leaf_reg": ("log", 0.1, 30.0),
                "random_strength": ("log", 1e-3, 10.0),
                "bagging_temperature": (0.0, 2.0),
            },
            {},
            _catboost,
            steps="iterations",
        ),
    )
}
