"""The models of the library: how others spell their parameters, and what a fit needs beside them.

Names of parameters are those of the model's scikit-learn interface. A run of the library and a
search of a user set a model up alike: `Entry.arguments` turns a configuration into arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any


def _same(configuration: Mapping[str, Any]) -> dict[str, Any]:
    return dict(configuration)


@dataclass(frozen=True, eq=False)
class Entry:
    """A model of the library.

    Parameters
    ----------
    name, title : str
        By which it is loaded, and as people call it.
    estimators : tuple of str
        Classes whose parameters it speaks of.
    defaults : dict
        What the package takes where nothing is said, as a configuration of the library.
    aliases : dict
        Other names of parameters, and the name here.
    constants : dict
        By a parameter, the arguments without which it has no effect, where none is set.
    needs : dict
        Parameters that matter only where the estimator has this argument at this value.
    dense : tuple of str
        Parameters that sparse features leave at the value of the estimator.
    arguments : callable
        From a configuration to arguments of the estimator, where they differ.
    scaled : bool
        Whether its runs had features of mean 0 and variance 1.
    names : tuple of str
        What people call it, too.
    """

    name: str
    title: str
    estimators: tuple[str, ...]
    defaults: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    dense: tuple[str, ...] = ()
    arguments: Callable[[Mapping[str, Any]], dict[str, Any]] = _same
    scaled: bool = False
    names: tuple[str, ...] = ()

    def spelled(self, name: str) -> str:
        """The name here of a parameter, however it is spelled; itself where it is not known."""
        bare = name.rpartition("__")[2]
        found = self.aliases.get(bare, bare)
        return found if found in self.parameters else name

    def beside(self, searched: Container[str], set_to: Mapping[str, Any]) -> dict[str, Any]:
        """What a fit sets beside the parameters that are searched, by what the estimator has."""
        return {
            argument: value
            for name, needed in self.constants.items()
            for argument, value in needed.items()
            if name in searched and not any(set_to.get(n) for n in self.spellings(argument))
        }

    def spellings(self, name: str) -> tuple[str, ...]:
        """A parameter or an argument as it is called here, and its other names."""
        return (name, *(other for other, own in self.aliases.items() if own == name))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters."""
        return tuple(self.defaults)


def _without_none(configuration: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if value == "none" else value for name, value in configuration.items()}


def _layers(configuration: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(configuration)
    width, depth = found.pop("width", None), found.pop("depth", None)
    if width is not None or depth is not None:
        found["hidden_layer_sizes"] = (width or 100,) * (depth or 1)
    return found


BOOSTED = {
    "eta": "learning_rate",
    "lr": "learning_rate",
    "shrinkage_rate": "learning_rate",
    "num_boost_round": "n_estimators",
    "num_iterations": "n_estimators",
    "num_trees": "n_estimators",
    "num_round": "n_estimators",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "lambda_l1": "reg_alpha",
    "lambda_l2": "reg_lambda",
    "l1_regularization": "reg_alpha",
    "l2_regularization": "reg_lambda",
    "bagging_fraction": "subsample",
    "feature_fraction": "colsample_bytree",
    "sub_feature": "colsample_bytree",
}
LIGHTGBM = {
    **BOOSTED,
    "max_leaves": "num_leaves",
    "min_data_in_leaf": "min_child_samples",
    "min_data": "min_child_samples",
    "bagging_freq": "subsample_freq",
}
XGBOOST = {**BOOSTED, "min_split_loss": "gamma"}
CATBOOST = {
    "eta": "learning_rate",
    "lr": "learning_rate",
    "n_estimators": "iterations",
    "num_boost_round": "iterations",
    "num_trees": "iterations",
    "max_depth": "depth",
    "reg_lambda": "l2_leaf_reg",
}
FOREST = {
    "n_estimators": 100,
    "max_features": 0.3,
    "min_samples_leaf": 1,
    "max_depth": 40,
    "bootstrap": True,
}
TREES = {"num_trees": "n_estimators", "ntree": "n_estimators"}

ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(
            "lightgbm",
            "LightGBM",
            ("LGBMClassifier", "LGBMRegressor"),
            {
                "learning_rate": 0.1,
                "n_estimators": 100,
                "num_leaves": 31,
                "min_child_samples": 20,
                "subsample": 1.0,
                "colsample_bytree": 1.0,
                "reg_alpha": 1e-6,
                "reg_lambda": 1e-6,
            },
            LIGHTGBM,
            {"subsample": {"subsample_freq": 1}},
            needs={"subsample": ("boosting_type", "gbdt")},
            names=("lgbm", "lgb"),
        ),
        Entry(
            "xgboost",
            "XGBoost",
            ("XGBClassifier", "XGBRegressor"),
            {
                "learning_rate": 0.3,
                "n_estimators": 100,
                "max_depth": 6,
                "min_child_weight": 1.0,
                "gamma": 1e-6,
                "subsample": 1.0,
                "colsample_bytree": 1.0,
                "reg_alpha": 1e-6,
                "reg_lambda": 1.0,
            },
            XGBOOST,
            names=("xgb",),
        ),
        Entry(
            "catboost",
            "CatBoost",
            ("CatBoostClassifier", "CatBoostRegressor"),
            {
                "learning_rate": 0.03,
                "iterations": 500,
                "depth": 6,
                "l2_leaf_reg": 3.0,
                "random_strength": 1.0,
                "bagging_temperature": 1.0,
            },
            CATBOOST,
        ),
        Entry(
            "hist_gradient_boosting",
            "Histogram gradient boosting",
            ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
            {
                "learning_rate": 0.1,
                "max_iter": 100,
                "max_leaf_nodes": 31,
                "min_samples_leaf": 20,
                "l2_regularization": 1e-6,
                "max_features": 1.0,
            },
            {"eta": "learning_rate", "lr": "learning_rate", "n_estimators": "max_iter"},
        ),
        Entry(
            "random_forest",
            "Random forest",
            ("RandomForestClassifier", "RandomForestRegressor"),
            FOREST,
            TREES,
            names=("rf",),
        ),
        Entry(
            "extra_trees",
            "Extra trees",
            ("ExtraTreesClassifier", "ExtraTreesRegressor"),
            {**FOREST, "bootstrap": False},
            TREES,
        ),
        Entry(
            "logistic_regression",
            "Logistic regression",
            ("LogisticRegression",),
            {"C": 1.0, "l1_ratio": 0.0, "class_weight": "none"},
            needs={"l1_ratio": ("solver", "saga")},
            arguments=_without_none,
            scaled=True,
        ),
        Entry(
            "elastic_net", "Elastic net", ("ElasticNet",), {"alpha": 1.0, "l1_ratio": 0.5},
            {"lambda": "alpha"}, scaled=True,
        ),
        Entry("ridge", "Ridge", ("Ridge",), {"alpha": 1.0}, {"lambda": "alpha"}, scaled=True),
        Entry("lasso", "Lasso", ("Lasso",), {"alpha": 1.0}, {"lambda": "alpha"}, scaled=True),
        Entry(
            "knn",
            "k nearest neighbours",
            ("KNeighborsClassifier", "KNeighborsRegressor"),
            {"n_neighbors": 5, "weights": "uniform", "p": 2.0},
            {"k": "n_neighbors"},
            needs={"p": ("metric", "minkowski")},
            dense=("p",),
            scaled=True,
        ),
        Entry(
            "svm",
            "Support vector machine",
            ("SVC", "SVR"),
            {"C": 1.0, "kernel": "rbf", "gamma": 0.1, "degree": 3},
            {"cost": "C"},
            scaled=True,
            names=("svc", "svr"),
        ),
        Entry(
            "mlp",
            "Multi-layer perceptron",
            ("MLPClassifier", "MLPRegressor"),
            {
                "width": 100,
                "depth": 1,
                "alpha": 1e-4,
                "learning_rate_init": 1e-3,
                "batch_size": 200,
                "activation": "relu",
            },
            {"lr": "learning_rate_init", "learning_rate": "learning_rate_init"},
            arguments=_layers,
            scaled=True,
        ),
        Entry(
            "sgd",
            "Linear model by stochastic gradient descent",
            ("SGDClassifier", "SGDRegressor"),
            {"alpha": 1e-4, "l1_ratio": 0.15, "eta0": 0.01, "learning_rate": "invscaling"},
            needs={"l1_ratio": ("penalty", "elasticnet")},
            scaled=True,
        ),
    )
}  # fmt: skip
