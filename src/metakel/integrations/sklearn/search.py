"""`MetaKelSearchCV`: `RandomizedSearchCV` that begins with what others have learned."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

# Not public, but the class that searches of others derive from.
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state

from metakel import library
from metakel.data import History
from metakel.errors import InputError
from metakel.integrations.sklearn.evaluation import Evaluation
from metakel.integrations.sklearn.search_space import (
    MEASURES,
    Choice,
    Measure,
    Searched,
    as_choice,
    model_in,
    searched_with,
)
from metakel.integrations.sklearn.untried import Untried
from metakel.priors import Prior, cold_prior, learn_prior
from metakel.space import Fixed, Space

LOGGER = logging.getLogger("metakel")
OWN_NAMES = library.Entry("", "a prior of one's own", (), {})  # spells as the estimator does
FEWEST_TASKS, FEWEST_RUNS = 3, 5  # of an own history that is learned from


class MetaKelSearchCV(BaseSearchCV):  # type: ignore[misc]
    """Search for hyper-parameters that begins with a prior from other data sets.

    It has the interface of `sklearn.model_selection.RandomizedSearchCV`. For models of
    `metakel.library` it needs no search space and no history: it tries first what was best on
    public data sets, and learns from every fit on yours.

    Parameters
    ----------
    estimator : estimator
        A model, or a pipeline that ends with one.
    param_space : dict or Space, optional
        Distributions of scipy.stats or lists by the names of parameters, as
        `RandomizedSearchCV` takes them, or a `metakel.Space`. By default the ranges of the prior.
        Parameters that the prior does not know are searched beside it; those that it knows and that
        are not given stay at the value of the estimator.
    n_iter : int
        How many configurations are tried at most.
    prior : "auto", str, Prior or None
        "auto" finds the model in the library; without one it is a cold start, said once. A name
        (``"lightgbm"``, ``"library:lightgbm:auc"``), a path, or a prior of your own. None for a
        cold start.
    stop_at : float or str, optional
        Stop when no configuration can be better by more than this, in units of the metric of the
        prior, or as in "5%" of the usual spread, with probability 1 - delta for data sets like the
        past ones (`Optimizer.certificate`).
    history : path or sequence, optional
        A file of JSON lines to which every fit is added. Searches on other data sets in it teach
        this one: beside the library's prior if they began with one, otherwise once there are three
        over the same ``param_space``. Or fitted searches and ``cv_results_`` of others, read only.
    scoring, n_jobs, refit, cv, verbose, pre_dispatch, error_score, return_train_score
        As in `RandomizedSearchCV`. With several scorers, ``refit`` names the one that is searched
        for, otherwise it is the first. ``verbose=1`` shows a progress bar.
    random_state : int or RandomState, optional
        Of the search; by default always the same.

    Attributes
    ----------
    prior_ : Prior
        What the search began with.
    optimizer_ : Optimizer
        What it knew at the end: `Optimizer.certificate`, `Optimizer.explain`, ...
    stop_reason_ : str
        Why it ended.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from metakel.integrations.sklearn import MetaKelSearchCV
    >>> X, y = load_wine(return_X_y=True)
    >>> search = MetaKelSearchCV(KNeighborsClassifier(), n_iter=5, cv=3).fit(X, y)
    >>> sorted(search.best_params_)
    ['n_neighbors', 'p', 'weights']
    """

    def __init__(
        self,
        estimator: Any,
        param_space: Any = None,
        *,
        n_iter: int = 20,
        prior: Any = "auto",
        stop_at: float | str | None = None,
        history: Any = None,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
    ) -> None:
        self.param_space = param_space
        self.n_iter = n_iter
        self.prior = prior
        self.stop_at = stop_at
        self.history = history
        self.random_state = random_state
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )

    def fit(self, X: Any, y: Any = None, **params: Any) -> MetaKelSearchCV:
        """Search, and fit the best configuration on all rows.

        An interrupt (Ctrl-C) ends the search; what was tried until then counts.
        """
        if not isinstance(self.n_iter, int | np.integer) or self.n_iter < 1:
            raise InputError(f"n_iter is {self.n_iter!r}; expected a whole number from 1")
        self._task = _fingerprint(X, y)
        found: MetaKelSearchCV = super().fit(X, y, **params)
        return found

    def _run_search(self, evaluate_candidates: Callable[..., Any]) -> None:
        measure, seed = _measure(self), _seed(self.random_state)
        self.prior_, searched, options = self._set_up(measure)
        self.optimizer_ = self.prior_.optimizer(seed=seed, **options)
        stop_at = self._reachable()
        evaluate = Evaluation(evaluate_candidates, self.verbose, self._scored)
        untried = Untried(searched, self.optimizer_, seed)
        self.stop_reason_ = f"all {self.n_iter} configurations were tried"
        for number in range(self.n_iter):
            ends = self.optimizer_.stop_reason
            if stop_at is not None:
                ends = ends or self.optimizer_.certificate().reached(stop_at)
            if ends:
                self.stop_reason_ = ends
                break
            configuration = untried.next()
            if configuration is None:
                self.stop_reason_ = f"all {number} configurations of param_space were tried"
                break
            arguments = searched.arguments(configuration)
            try:
                score = evaluate(arguments, number + 1, self.n_iter)
            except KeyboardInterrupt:
                if not evaluate.done:
                    raise
                self.stop_reason_ = f"interrupted after {number} configurations"
                warnings.warn(f"{self.stop_reason_}; they count", stacklevel=2)
                break
            if score is None:
                self.optimizer_.tell(configuration, failed=True)
            else:
                self.optimizer_.tell(configuration, measure.of(score))
            self._note(arguments, score, configuration)
        evaluate.finish()

    def _reachable(self) -> float | str | None:
        """``stop_at``, or None with a warning where nothing can be certified."""
        if self.stop_at is None:
            return None
        certificate = self.optimizer_.certificate()
        if certificate.final:
            reason = f"stop_at needs a certificate; there is none: {certificate.reason}"
            warnings.warn(reason, stacklevel=3)
        return None if certificate.final else self.stop_at

    def _scored(self, results: Mapping[str, Any]) -> str:
        """The column of the scorer that is searched for."""
        if isinstance(self.refit, str):
            return f"mean_test_{self.refit}"
        return next(name for name in results if name.startswith("mean_test_"))

    # What it begins with

    def _set_up(self, measure: Measure) -> tuple[Prior, Searched, dict[str, Any]]:
        given, always = _choices(self.param_space)
        found = model_in(self.estimator)
        past = _past(self.history, self._task, type(self.estimator).__name__, _score_name(self))
        of_library = [run for run in past if "configuration" in run]
        if past and given is not None and not (of_library and self.prior is not None):
            own = _learned(past, given, measure)
            if own is not None:
                names = {name: name for name in given}
                return own, Searched(given, names, {}, always), {}
        prior = self._prior(found, measure)
        if prior is None:
            if given is None:
                kind = "classification" if is_classifier(self.estimator) else "regression"
                raise InputError(
                    f"no prior for {type(self.estimator).__name__} with the score "
                    f"{_score_name(self)!r}, and no param_space to search; expected one of them. "
                    f"{_in_the_library(found, kind)}"
                )
            names = {name: name for name in given}
            space = Space(tuple(choice.parameter for choice in given.values()))
            prior = cold_prior(space, measure.metric, minimize=measure.minimize)
            return prior, Searched(given, names, {}, always), {}
        entry = library.ENTRIES.get(prior.info.model) or OWN_NAMES
        if of_library and entry is not OWN_NAMES:
            prior = _joined(prior, of_library, measure)
        prefix = found[0] if found is not None and entry is not OWN_NAMES else ""
        model = clone(self.estimator).set_params(**always)
        searched, space, new = searched_with(prior, entry, prefix, given, model)
        searched = replace(searched, always=always)
        options: dict[str, Any] = {"fixed": dict(searched.held), "new": new}
        if any(p != prior.space[p.name] for p in space.parameters):
            options["space"] = space
        return prior, searched, options

    def _prior(self, found: Any, measure: Measure) -> Prior | None:
        if self.prior is None:
            return None
        if isinstance(self.prior, Prior):
            return _in_units_of(measure, self.prior)
        if self.prior != "auto":
            name = str(self.prior).removeprefix("library:")
            if name in library.ENTRIES:
                return library.load(name, measure.metric)
            return _in_units_of(measure, library.as_prior(self.prior))
        if found is not None:
            with contextlib.suppress(InputError):
                return library.load(found[1].name, measure.metric)
        LOGGER.warning(
            "no prior of the library for %s with the score %r: a cold start",
            type(self.estimator).__name__,
            _score_name(self),
        )
        return None

    # What it leaves for the next time

    def _note(
        self, arguments: Mapping[str, Any], score: float | None, configuration: Mapping[str, Any]
    ) -> None:
        if not isinstance(self.history, str | Path):
            return
        line = {
            "task": self._task,
            "estimator": type(self.estimator).__name__,
            "score_name": _score_name(self),
            "score": score,
            "parameters": {n: v if _plain(v) else repr(v) for n, v in arguments.items()},
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        if self.prior_.info.model:
            known = self.prior_.space.names
            line["configuration"] = {n: v for n, v in configuration.items() if n in known}
        with Path(self.history).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _seed(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _in_units_of(measure: Measure, prior: Prior) -> Prior:
    """The prior, refused where it is of another metric of the library or direction."""
    of_library = prior.info.output in {known.metric for known in MEASURES.values()}
    other = prior.info.model and of_library and prior.info.output != measure.metric
    if other or prior.info.minimize != measure.minimize:
        aim = "minimised" if prior.info.minimize else "maximised"
        raise InputError(
            f"prior is of {prior.info.output!r}, which is {aim}; scoring measures "
            f"{measure.metric!r}, which is {'minimised' if measure.minimize else 'maximised'}"
        )
    return prior


def _in_the_library(found: Any, kind: str) -> str:
    """What there is instead: for this model, or other models."""
    cards = [card for card in library.list() if card.kind == kind]
    metrics = [c.metric for c in cards if found is not None and c.name == found[1].name]
    if metrics:
        return f"For this model the library has priors of {', '.join(metrics)}"
    ending = "Classifier" if kind == "classification" else "Regressor"
    other = "Regressor" if kind == "classification" else "Classifier"
    classes = {e for c in cards for e in library.ENTRIES[c.name].estimators}
    fitting = sorted(e for e in classes if e.endswith(ending) or not e.endswith(other))
    return f"The library has priors for {', '.join(fitting)}"


def _choices(given: Any) -> tuple[dict[str, Choice] | None, dict[str, Any]]:
    """What varies, None for all that a prior knows; and what has one value only."""
    if given is None:
        return None, {}
    if isinstance(given, Space):
        if given.conditions or given.sums:
            raise InputError(
                "param_space has conditions or sums; expected ranges and choices only. The prior "
                "of a history that has them keeps them"
            )
        given = {p.name: p for p in given.parameters}
    if not isinstance(given, Mapping) or not given:
        raise InputError(
            f"param_space is {given!r}; expected a dict of distributions or lists, or a Space"
        )
    found = {str(name): as_choice(str(name), value) for name, value in given.items()}
    always = {
        name: choice.value(choice.parameter.value)
        for name, choice in found.items()
        if isinstance(choice.parameter, Fixed)
    }
    varying = {name: choice for name, choice in found.items() if name not in always}
    if not varying:
        raise InputError(
            "param_space has one value for every parameter; expected something to vary"
        )
    return varying, always


def _score_name(search: MetaKelSearchCV) -> str:
    """Of the scorer that is searched for."""
    scoring = search.scoring
    if isinstance(search.refit, str) and not isinstance(scoring, str):
        name = search.refit
        if isinstance(scoring, Mapping):
            return str(scoring.get(name, name)) if isinstance(scoring.get(name), str) else name
        return name
    if scoring is None:
        return "accuracy" if is_classifier(search.estimator) else "r2"
    if isinstance(scoring, str):
        return scoring
    if isinstance(scoring, Mapping):
        first, value = next(iter(scoring.items()))
        return value if isinstance(value, str) else str(first)
    if isinstance(scoring, Sequence):
        return str(scoring[0])
    named = getattr(scoring, "_score_func", scoring)
    return str(getattr(named, "__name__", type(scoring).__name__))


def _measure(search: MetaKelSearchCV) -> Measure:
    name = _score_name(search)
    return MEASURES.get(name, Measure(name, float))


def _fingerprint(X: Any, y: Any) -> str:
    """A name of the data set that is the same the next time."""
    found = hashlib.sha256(repr(getattr(X, "shape", "")).encode())
    found.update(
        np.ascontiguousarray(np.asarray(y).astype(str)).tobytes() if y is not None else b""
    )
    return found.hexdigest()[:16]


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _past(history: Any, task: str, estimator: str, score: str) -> list[dict[str, Any]]:
    """Runs of other data sets: of a file, of fitted searches, or of ``cv_results_``."""
    if history is None:
        return []
    if isinstance(history, str | Path):
        path = Path(history)
        if not path.exists():
            return []
        found = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                same = (row["estimator"], row["score_name"]) == (estimator, score)
            except (ValueError, KeyError, TypeError):
                raise InputError(
                    f"{path}, line {number}: {line[:60]!r}; expected a line that a search with "
                    "history= has written"
                ) from None
            if same and row["task"] != task and row["score"] is not None:
                found.append(row)
        return found
    found = []
    for number, search in enumerate(history):
        results = getattr(search, "cv_results_", search)
        column = next(name for name in results if str(name).startswith("mean_test_"))
        for parameters, value in zip(results["params"], results[column], strict=True):
            if np.isfinite(value):
                found.append(
                    {
                        "task": f"search {number + 1}",
                        "parameters": parameters,
                        "score": float(value),
                    }
                )
    return found


def _learned(
    past: list[dict[str, Any]], given: Mapping[str, Choice], measure: Measure
) -> Prior | None:
    """A prior from one's own searches; None where they say too little."""
    rows: list[dict[str, Any]] = []
    labels = {name: {repr(v): k for k, v in c.values.items()} for name, c in given.items()}
    for run in past:
        row = {
            name: labels[name].get(repr(run["parameters"].get(name)), run["parameters"].get(name))
            for name in given
        }
        if all(row[name] is not None for name in given):
            rows.append({"task": run["task"], **row, measure.metric: measure.of(run["score"])})
    counts = [sum(row["task"] == task for row in rows) for task in {row["task"] for row in rows}]
    if sum(count >= FEWEST_RUNS for count in counts) < FEWEST_TASKS:
        return None
    space = Space(tuple(choice.parameter for choice in given.values()))
    return _taught(json.dumps(rows), space, measure, None)


def _joined(prior: Prior, past: list[dict[str, Any]], measure: Measure) -> Prior:
    """The library's prior beside searches of one's own that began with it."""
    rows = [
        {"task": run["task"], **run["configuration"], measure.metric: measure.of(run["score"])}
        for run in past
    ]
    return _taught(json.dumps(rows), prior.space, measure, prior)


@lru_cache(maxsize=8)  # the folds of an outer cross-validation learn from the same runs
def _taught(rows: str, space: Space, measure: Measure, beside: Prior | None) -> Prior:
    runs, names = json.loads(rows), ("task", *space.names, measure.metric)
    history = History.from_frame(
        {name: [run.get(name) for run in runs] for name in names},
        task="task",
        output=measure.metric,
        minimize=measure.minimize,
        space=space,
        extrapolate=True,
    )
    return learn_prior(history, library=beside)
