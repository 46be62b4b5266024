"""Searches for the hyper-parameters of one model on one data set: ours and those of others.

Every method gives its *incumbents*: the arguments that it would hand back after 1, 2, ... fits, by
cross-validated loss (of FLAML's AutoML: by its own). All of them use the same folds, and the ranges
of the library where they need ranges. A configuration is trained once, whoever asks for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.library_sets import CLASSES, Split
from metakel import library
from metakel.integrations.sklearn import MetaKelSearchCV
from metakel.library import ENTRIES
from metakel.space import Categorical, Float, Integer

SEED = 0  # of the models that are trained
# Of methods that draw at random; the first configuration of one seed may be lucky on all data sets.
SEEDS = {"RandomizedSearchCV": (0, 1), "Optuna TPE": (0, 1)}
MODELS = ("lightgbm", "xgboost", "random_forest", "extra_trees")
# "xgboost" of FLAML suggests up to 13,499 trees for 400 rows; this one has the depth of ours.
FLAML = dict(zip(MODELS, ("lgbm", "xgb_limitdepth", "rf", "extra_tree"), strict=True))
Arguments = Mapping[str, Any]


def estimator(model: str, kind: str) -> Any:
    """The model with its defaults, one thread and a seed."""
    import lightgbm
    import sklearn.ensemble as trees
    import xgboost

    classes = kind == CLASSES
    if model == "lightgbm":
        made = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
        return made(n_jobs=1, verbose=-1, random_state=SEED)
    if model == "xgboost":
        made = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
        return made(n_jobs=1, verbosity=0, random_state=SEED)
    name = "RandomForest" if model == "random_forest" else "ExtraTrees"
    return getattr(trees, f"{name}{'Classifier' if classes else 'Regressor'}")(random_state=SEED)


class Trained:
    """One model on one data set: losses by arguments, each measured once."""

    def __init__(self, model: str, data: Split) -> None:
        self.model, self.data, self.entry = model, data, ENTRIES[model]
        classes = data.kind == CLASSES
        self.metric = "log_loss" if classes else "rmse"
        self.scoring = "neg_log_loss" if classes else "neg_root_mean_squared_error"
        self.space = library.load(model, self.metric).space
        self._cv: dict[str, tuple[float, float]] = {}
        self._test: dict[str, float] = {}

    @property
    def constants(self) -> dict[str, Any]:
        """What every fit sets beside the parameters."""
        return self.entry.beside(self.space.names, {})

    @property
    def base(self) -> Any:
        return estimator(self.model, self.data.kind)

    def arguments(self, configuration: Arguments) -> dict[str, Any]:
        """Of the estimator, from a configuration of the library."""
        return {**self.constants, **self.entry.arguments(configuration)}

    def loss(self, arguments: Arguments) -> float:
        """Mean over the folds; infinite where a fit fails."""
        from sklearn.model_selection import cross_val_score

        key = _key(arguments)
        if key not in self._cv:
            start = time.perf_counter()
            scores = cross_val_score(
                self.base.set_params(**arguments),
                self.data.X,
                self.data.y,
                scoring=self.scoring,
                cv=self.data.folds,
                error_score=np.nan,
            )
            self.note(arguments, -float(scores.mean()), time.perf_counter() - start)
        return self._cv[key][0]

    def note(self, arguments: Arguments, loss: float, seconds: float) -> None:
        """A loss that a search class has measured on the same folds."""
        self._cv.setdefault(_key(arguments), (loss if np.isfinite(loss) else np.inf, seconds))

    def seconds(self, arguments: Arguments) -> float:
        return self._cv[_key(arguments)][1]

    def test(self, arguments: Arguments) -> float:
        """Loss on the test rows after training on all others."""
        from sklearn.metrics import get_scorer

        key = _key(arguments)
        if key not in self._test:
            fitted = self.base.set_params(**arguments).fit(self.data.X, self.data.y)
            score = get_scorer(self.scoring)(fitted, self.data.X_test, self.data.y_test)
            self._test[key] = -float(score)
        return self._test[key]


def _key(arguments: Arguments) -> str:
    return repr(sorted((name, _plain(value)) for name, value in arguments.items()))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class Found:
    """What a method would hand back after 1, 2, ... fits, and the seconds until then."""

    incumbents: list[Arguments | None]
    seconds: list[float]
    overhead: float  # seconds per fit beside training


def _best_so_far(trained: Trained, tried: list[Arguments], overhead: float) -> Found:
    incumbents: list[Arguments | None] = []
    for arguments in tried:
        last = incumbents[-1] if incumbents else None
        better = last is None or trained.loss(arguments) < trained.loss(last)
        incumbents.append(arguments if better else last)
    per_fit = overhead / len(tried)
    spent = np.cumsum([trained.seconds(arguments) + per_fit for arguments in tried])
    return Found(incumbents, spent.tolist(), per_fit)


def _noted(trained: Trained, search: Any, wall: float, constants: Arguments) -> Found:
    """A fitted search of scikit-learn: its losses are kept."""
    results, tried = search.cv_results_, []
    spent = 3 * (results["mean_fit_time"] + results["mean_score_time"])
    for parameters, score, seconds in zip(
        results["params"], results["mean_test_score"], spent, strict=True
    ):
        tried.append({**constants, **parameters})
        trained.note(tried[-1], -float(score), float(seconds))
    return _best_so_far(trained, tried, max(wall - float(np.nansum(spent)), 0.0))


def metakel(trained: Trained, fits: int, seed: int, **options: Any) -> Found:
    """`MetaKelSearchCV` as a user calls it: without a search space."""
    search = MetaKelSearchCV(
        trained.base, n_iter=fits, scoring=trained.scoring, cv=trained.data.folds, refit=False,
        random_state=seed, **options,
    )  # fmt: skip
    start = time.perf_counter()
    search.fit(trained.data.X, trained.data.y)
    found = _noted(trained, search, time.perf_counter() - start, {})
    missing = fits - len(found.incumbents)  # a search that ended by itself
    return Found(
        found.incumbents + found.incumbents[-1:] * missing,
        found.seconds + found.seconds[-1:] * missing,
        found.overhead,
    )


def cold(trained: Trained, fits: int, seed: int) -> Found:
    """The same class over the same ranges without a prior."""
    return metakel(trained, fits, seed, prior=None, param_space=trained.space)


def portfolio(trained: Trained, fits: int, seed: int) -> Found:
    """The greedy list of configurations of our own runs, gone through in its order."""
    tried = [trained.arguments(c) for c in _greedy(trained.model, trained.metric)[:fits]]
    for arguments in tried:
        trained.loss(arguments)
    return _best_so_far(trained, tried, 0.0)


@cache
def _greedy(model: str, metric: str) -> list[dict[str, Any]]:
    from library import build

    entry = ENTRIES[model]
    _, rows = build.runs_of(entry, metric)
    found = build.portfolio(rows, metric, {row["task"] for row in rows}, entry, count=30)
    space = library.load(model, metric).space
    return [space.round(configuration) for configuration in found]


class _WholeLog:
    """Whole numbers, uniform in their logarithm, as a distribution of scipy."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def rvs(self, random_state: Any = None) -> int:
        from sklearn.utils import check_random_state

        ends = np.log([self.low - 0.5, self.high + 0.5])
        drawn = np.exp(check_random_state(random_state).uniform(*ends))
        return int(np.clip(round(drawn), self.low, self.high))


def _distributions(trained: Trained) -> dict[str, Any]:
    from scipy.stats import loguniform, randint, uniform

    found: dict[str, Any] = {}
    for parameter in trained.space.parameters:
        if isinstance(parameter, Categorical):
            found[parameter.name] = list(parameter.choices)
        elif isinstance(parameter, Integer):
            low, high = int(parameter.low), int(parameter.high)
            log = parameter.log
            found[parameter.name] = _WholeLog(low, high) if log else randint(low, high + 1)
        elif isinstance(parameter, Float):
            low, width = parameter.low, parameter.high - parameter.low
            log = parameter.log
            found[parameter.name] = loguniform(low, parameter.high) if log else uniform(low, width)
    return found


def randomized(trained: Trained, fits: int, seed: int) -> Found:
    from sklearn.model_selection import RandomizedSearchCV

    search = RandomizedSearchCV(
        trained.base.set_params(**trained.constants), _distributions(trained), n_iter=fits,
        scoring=trained.scoring, cv=trained.data.folds, refit=False, random_state=seed,
    )  # fmt: skip
    start = time.perf_counter()
    search.fit(trained.data.X, trained.data.y)
    return _noted(trained, search, time.perf_counter() - start, trained.constants)


def halving(trained: Trained, fits: int, seed: int) -> Found:
    """27 configurations on a ninth of the rows, 9 on a third, 3 on all: the work of nine fits."""
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.model_selection import HalvingRandomSearchCV

    rows = len(trained.data.y)
    search = HalvingRandomSearchCV(
        trained.base.set_params(**trained.constants), _distributions(trained),
        n_candidates=27, factor=3, min_resources=rows // 9, max_resources=rows,
        scoring=trained.scoring, cv=trained.data.folds, refit=False, random_state=seed,
    )  # fmt: skip
    start = time.perf_counter()
    search.fit(trained.data.X, trained.data.y)
    wall, work = time.perf_counter() - start, 9
    best = {**trained.constants, **search.best_params_}
    trained.loss(best)
    return Found([None] * (work - 1) + [best] * (fits - work + 1), [wall] * fits, 0.0)


def _study(trained: Trained, fits: int, sampler: Any) -> Found:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler)
    tried: list[Arguments] = []
    overhead = 0.0
    for _ in range(fits):
        start = time.perf_counter()
        trial = study.ask()
        configuration = {p.name: _suggested(trial, p) for p in trained.space.parameters}
        overhead += time.perf_counter() - start
        tried.append(trained.arguments(configuration))
        loss = trained.loss(tried[-1])
        start = time.perf_counter()
        if np.isfinite(loss):
            study.tell(trial, loss)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        overhead += time.perf_counter() - start
    return _best_so_far(trained, tried, overhead)


def _suggested(trial: Any, parameter: Any) -> Any:
    if isinstance(parameter, Categorical):
        return trial.suggest_categorical(parameter.name, list(parameter.choices))
    if isinstance(parameter, Integer):
        ends = int(parameter.low), int(parameter.high)
        return trial.suggest_int(parameter.name, *ends, log=parameter.log)
    return trial.suggest_float(parameter.name, parameter.low, parameter.high, log=parameter.log)


def tpe(trained: Trained, fits: int, seed: int) -> Found:
    import optuna

    return _study(trained, fits, optuna.samplers.TPESampler(seed=seed, multivariate=True))


def gp_sampler(trained: Trained, fits: int, seed: int) -> Found:
    import optuna

    return _study(trained, fits, optuna.samplers.GPSampler(seed=seed))


def zero_shot(trained: Trained, fits: int, seed: int) -> Found:
    """The configuration that `flaml.default` suggests for these rows: one fit, then nothing."""
    from flaml.default import suggest_hyperparams

    start = time.perf_counter()
    data = trained.data
    found, _ = suggest_hyperparams(data.kind, data.X, data.y, FLAML[trained.model])
    overhead = time.perf_counter() - start
    kept = {n: v for n, v in found.items() if n not in ("verbose", "verbosity", "random_state")}
    trained.loss(kept)
    only = _best_so_far(trained, [kept], overhead)
    return Found(only.incumbents * fits, only.seconds * fits, only.overhead)


def automl(trained: Trained, fits: int, seed: int) -> Found:
    """FLAML's AutoML with this estimator only; its incumbents are trained again on our folds."""
    from flaml import AutoML

    data, name, found = trained.data, FLAML[trained.model], AutoML()
    start = time.perf_counter()
    found.fit(
        data.X, data.y, task=data.kind, estimator_list=[name], max_iter=fits, time_budget=-1,
        metric=trained.metric, eval_method="cv", split_type=data.folds, seed=seed, n_jobs=1,
        verbose=0, retrain_full=False,
    )  # fmt: skip
    wall = time.perf_counter() - start
    made = found._state.learner_classes[name]
    task = found._state.task
    incumbents: list[Arguments | None] = []
    for number in range(fits):
        if number in found.config_history:
            configuration = found.config_history[number][1]
            parameters = made(task=task, n_jobs=1, **configuration).params
            incumbents.append(
                {
                    n: _plain(v)
                    for n, v in parameters.items()
                    if n not in ("n_jobs", "verbose", "verbosity", "random_state")
                }
            )
            trained.loss(incumbents[-1])
        else:
            incumbents.append(incumbents[-1] if incumbents else None)
    return Found(incumbents, (np.arange(1, fits + 1) * wall / fits).tolist(), 0.0)


METHODS: dict[str, Callable[[Trained, int, int], Found]] = {
    "metakel": metakel,
    "cold start": cold,
    "portfolio of our runs": portfolio,
    "RandomizedSearchCV": randomized,
    "HalvingRandomSearchCV": halving,
    "Optuna TPE": tpe,
    "Optuna GPSampler": gp_sampler,
    "FLAML zero-shot": zero_shot,
    "FLAML AutoML": automl,
}
