"""`MetaKelSearchCV`: `RandomizedSearchCV` that begins with what others have learned."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

# Not public, but the class that searches of others derive from.
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state

from metakel import library
from metakel.errors import InputError, first_of
from metakel.integrations.sklearn.past import (
    MEASURES,
    Measure,
    joined_with,
    learned_from,
    measure_of,
    past_runs,
    rows_of,
    score_name,
)
from metakel.integrations.sklearn.search_space import (
    Choice,
    Searched,
    Untried,
    as_choice,
    features_are_sparse,
    model_in,
    model_name,
    searched_with,
    wider,
)
from metakel.priors import Prior, cold_prior
from metakel.space import Fixed, Space

LOGGER = logging.getLogger("metakel")
OWN_NAMES = library.Entry("", "a prior of one's own", (), {})  # spells as the estimator does
PLAIN = str | int | float | bool | None
CLASSIFIERS = ("Classifier", "SVC", "LogisticRegression")  # how names of classes end
NO_PRIOR = "no prior of the library for %s with the score %r: a cold start%s"

# What the arguments of other searches are called here.
NAMED_HERE = {
    "param_distributions": "param_space",
    "param_grid": "param_space",
    "search_spaces": "param_space",
    "n_trials": "n_iter",
}


def _knowing_other_names(init: Callable[..., None]) -> Callable[..., None]:
    """`init`, which says what is expected in place of an argument of another search."""

    @wraps(init)  # scikit-learn reads the arguments of `init` from this one
    def checked(*arguments: Any, **named: Any) -> None:
        for name in NAMED_HERE.keys() & named:
            raise InputError(f"MetaKelSearchCV takes no {name}=; expected {NAMED_HERE[name]}=")
        init(*arguments, **named)

    return checked


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
        are not given stay at the value of the estimator. Without a ``param_space``, what you have
        set on the estimator is searched like the rest, which a warning in the log says.
    n_iter : int
        How many configurations are tried at most.
    prior : "auto", str, Prior or None
        "auto" finds the model in the library; without one it is a cold start, said once, over the
        ranges of the library where it knows the model by other scores only. A name
        (``"lightgbm"``, ``"library:lightgbm:auc"``), a path, or a prior of your own. None for a
        cold start.
    stop_at : float or str, optional
        Stop when no configuration can be better by more than this, in units of the metric of the
        prior, or as in "5%" of the usual spread, with probability 1 - delta for data sets like the
        past ones (`Optimizer.certificate`).
    history : path or sequence, optional
        A file of JSON lines to which every fit is added. Searches on other data sets in it teach
        this one: beside the library's prior of the model, otherwise once there are three over the
        same ``param_space``. Or a fitted search of others, its ``cv_results_``, or a list of them.
    scoring, n_jobs, cv, pre_dispatch, error_score, return_train_score
        As in `RandomizedSearchCV`.
    refit : bool, str or callable
        As there. With several scorers, a name is the one that is searched for, otherwise it is the
        first.
    verbose : int
        1 shows a progress bar.
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

    @_knowing_other_names
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
        self._rows = rows_of(X, y) if isinstance(self.history, str | Path) else []
        self._sparse = self.param_space is None and features_are_sparse(self.estimator, X, y)
        found: MetaKelSearchCV = super().fit(X, y, **params)
        return found

    def _run_search(self, evaluate_candidates: Callable[..., Any]) -> None:
        measure, seed = measure_of(self), _seed(self.random_state)
        self.prior_, searched, options = self._set_up(measure)
        self.optimizer_ = self.prior_.optimizer(seed=seed, **options)
        stop_at = self._reachable()
        evaluate = Evaluation(evaluate_candidates, self)
        untried = Untried(searched, self.optimizer_, seed)
        # scikit-learn's headline would come before every configuration.
        verbose: int = self.verbose  # type: ignore[has-type]
        self.verbose = 0
        try:
            self.stop_reason_ = self._tried(untried, evaluate, measure, stop_at)
            evaluate.finish()
        except KeyboardInterrupt:
            if not evaluate.done:
                raise
            self.stop_reason_ = f"interrupted after {evaluate.number} configurations"
            warnings.warn(f"{self.stop_reason_}; they count", stacklevel=2)
        finally:
            self.verbose = verbose

    def _tried(
        self, untried: Untried, evaluate: Evaluation, measure: Measure, stop_at: float | str | None
    ) -> str:
        """Try configurations; gives why it ended."""
        for number in range(self.n_iter):
            ends = self.optimizer_.stop_reason
            if stop_at is not None:
                ends = ends or self.optimizer_.certificate().reached(stop_at)
            if ends:
                return str(ends)
            configuration = untried.next()
            if configuration is None:
                return f"all {number} configurations of param_space were tried"
            arguments = untried.searched.arguments(configuration)
            score = evaluate(arguments)
            if score is None:
                self.optimizer_.tell(configuration, failed=True)
            else:
                self.optimizer_.tell(configuration, measure.of(score))
            self._note(arguments, score, configuration)
        return f"n_iter = {self.n_iter} configurations were tried"

    def _format_results(
        self, candidates: Any, n_splits: int, out: Any, more_results: Any = None
    ) -> Any:
        """Without the one that was evaluated again at the end (`Evaluation.finish`)."""
        if any(found is candidates[-1] for found in candidates[:-1]):
            candidates, out = candidates[:-1], out[:-n_splits]
        return super()._format_results(candidates, n_splits, out, more_results)

    def _reachable(self) -> float | str | None:
        """``stop_at``, or None with a warning where nothing can be certified."""
        if self.stop_at is None:
            return None
        certificate = self.optimizer_.certificate()
        if certificate.final:
            reason = f"stop_at needs a certificate; there is none: {certificate.reason}"
            warnings.warn(reason, stacklevel=3)
        return None if certificate.final else self.stop_at

    # What it begins with

    def _set_up(self, measure: Measure) -> tuple[Prior, Searched, dict[str, Any]]:
        given, always = _choices(self.param_space)
        found, name, score = model_in(self.estimator), model_name(self.estimator), score_name(self)
        past = past_runs(self.history, self._task, self._rows, name, score)
        of_library = self.prior is not None and any("configuration" in run for run in past)
        own = None
        if past and given is not None and not of_library:
            own = learned_from(past, given, measure)
        prior = None if own is not None else self._prior(found, measure)
        if prior is None:
            if given is None:
                raise InputError(
                    f"no prior for {name} with the score {score!r}, and no param_space to search; "
                    f"expected one of them. {_in_the_library(name, self._kind)}"
                )
            if own is None:
                if self.prior is not None:
                    LOGGER.warning(NO_PRIOR, name, score, "")
                space = Space(tuple(choice.parameter for choice in given.values()))
                own = cold_prior(space, measure.metric, minimize=measure.minimize)
            return own, Searched(given, {known: known for known in given}, {}, always), {}
        entry = library.ENTRIES.get(prior.info.model) or OWN_NAMES
        if entry is not OWN_NAMES and (found is None or found[1] is not entry):
            _refuse_another_model(entry, self.estimator)
        if past and entry is not OWN_NAMES and prior.info.tasks:
            prior = joined_with(prior, past, entry, measure)
        prefix = found[0] if found is not None and entry is not OWN_NAMES else ""
        searched, space, new = searched_with(
            prior, entry, prefix, given, always, self.estimator, sparse=self._sparse
        )
        options: dict[str, Any] = {"fixed": dict(searched.held), "new": new}
        if any(p != prior.space[p.name] for p in space.parameters):
            options["space"] = space
            options["extrapolate"] = any(wider(p, prior.space[p.name]) for p in space.parameters)
        return prior, searched, options

    def _prior(self, found: Any, measure: Measure) -> Prior | None:
        if self.prior is None:
            return None
        if isinstance(self.prior, Prior):
            return _in_units_of(measure, self.prior)
        if self.prior != "auto":
            name = str(self.prior).removeprefix("library:")
            if ":" not in name and not Path(name).suffix and not Path(name).exists():
                return library.load(name, measure.metric)
            return _in_units_of(measure, library.as_prior(self.prior))
        if found is None:
            return None
        with contextlib.suppress(InputError):
            return library.load(found[1].name, measure.metric)
        cards = [c for c in library.list() if (c.name, c.kind) == (found[1].name, self._kind)]
        if not cards:
            return None
        # Where the library has another score only, its ranges and what to try first are of use.
        other = library.load(cards[0].name, cards[0].metric)
        cold = cold_prior(other.space, measure.metric, minimize=measure.minimize)
        about = f" over the ranges of {cards[0].name}, by {cards[0].metric} at first"
        LOGGER.warning(NO_PRIOR, model_name(self.estimator), score_name(self), about)
        first = other.info.tried_first
        return replace(cold, info=replace(cold.info, model=cards[0].name, tried_first=first))

    @property
    def _kind(self) -> str:
        return "classification" if is_classifier(self.estimator) else "regression"

    # What it leaves for the next time

    def _note(
        self, arguments: Mapping[str, Any], score: float | None, configuration: Mapping[str, Any]
    ) -> None:
        if not isinstance(self.history, str | Path):
            return
        line = {
            "task": self._task,
            "rows": self._rows,
            "estimator": model_name(self.estimator),
            "score_name": score_name(self),
            "score": score,
            "parameters": {
                name: value if isinstance(value, PLAIN) else repr(value)
                for name, value in arguments.items()
            },
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        if self.prior_.info.model:
            known = self.prior_.space.names
            line["configuration"] = {n: v for n, v in configuration.items() if n in known}
        with Path(self.history).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class SameSplits:
    """The first splits of a splitter, for every configuration: it may shuffle anew each time."""

    def __init__(self, splitter: Any) -> None:
        self._splitter = splitter
        self._found: list[Any] | None = None

    def split(self, X: Any, y: Any = None, **params: Any) -> list[Any]:
        """As a splitter of scikit-learn."""
        self._found = self._found or list(self._splitter.split(X, y, **params))
        return self._found


class Evaluation:
    """Calls scikit-learn for one configuration at a time, and shows how far it is.

    scikit-learn refuses a call in which every fit fails. A configuration that fails is therefore
    evaluated again beside the next one that does not, so that ``cv_results_`` has it.
    """

    def __init__(self, evaluate: Callable[..., Any], search: MetaKelSearchCV) -> None:
        splits = SameSplits(search.cv) if hasattr(search.cv, "split") else None
        self._evaluate = partial(evaluate, cv=splits)
        self._bar, self._total, self._refit = search.verbose == 1, search.n_iter, search.refit
        self._failed: list[dict[str, Any]] = []
        self._good: dict[str, Any] = {}
        self.done: int = 0  # configurations that were fitted
        self.number: int = 0  # all that were tried
        self._best = -np.inf

    def __call__(self, arguments: dict[str, Any]) -> float | None:
        score = self._score(arguments)
        self.number += 1
        if self._bar:
            self._show(score)
        return score

    def _score(self, arguments: dict[str, Any]) -> float | None:
        try:
            results = self._evaluate([*self._failed, arguments])
        except ValueError as error:
            if "fits failed" not in str(error):
                raise
            self._failed.append(arguments)
            return None
        self._failed, self._good = [], arguments
        self.done += 1
        means = (name for name in results if name.startswith("mean_test_"))
        column = f"mean_test_{self._refit}" if isinstance(self._refit, str) else next(means)
        score = float(results[column][-1])
        return score if np.isfinite(score) else None

    def _show(self, score: float | None) -> None:
        self._best = max(self._best, -np.inf if score is None else score)
        bar = "=" * (20 * self.number // self._total)
        shown = "failed" if score is None else f"{score:.4g}"
        best = "" if np.isinf(self._best) else f", best {self._best:.4g}"
        end = "\n" if self.number == self._total or not sys.stderr.isatty() else "\r"
        sys.stderr.write(f"[{bar:20}] {self.number}/{self._total}: {shown}{best}{end}")
        sys.stderr.flush()

    def finish(self) -> None:
        """Have ``cv_results_`` hold the last failures, beside one that is dropped from it again.

        Where nothing could be fitted, scikit-learn refuses the search.
        """
        if self._failed:
            self._evaluate([*self._failed, self._good] if self.done else self._failed)


def _seed(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _refuse_another_model(entry: library.Entry, estimator: Any) -> None:
    """A prior is for a model that has its parameters."""
    present = {name.rpartition("__")[2] for name in estimator.get_params()}
    missing = [name for name in entry.arguments(entry.defaults) if name not in present]
    if missing:
        raise InputError(
            f"prior is of {entry.title}, and {model_name(estimator)} has no {first_of(missing)}; "
            f'expected a prior of this model, prior="auto", or None for a cold start'
        )


def _in_units_of(measure: Measure, prior: Prior) -> Prior:
    """The prior, refused where it is of another metric of the library or direction."""
    of_library = prior.info.output in {known.metric for known in MEASURES.values()}
    other = prior.info.model and of_library and prior.info.output != measure.metric
    if other or prior.info.minimize != measure.minimize:
        aim = "minimised" if prior.info.minimize else "maximised"
        raise InputError(
            f"prior is of {prior.info.output!r}, which is {aim}; scoring measures "
            f"{measure.metric!r}, which is {'minimised' if measure.minimize else 'maximised'}. "
            'prior="auto" takes what the library has for this score'
        )
    return prior


def _in_the_library(name: str, kind: str) -> str:
    """Other models of this kind that there are priors for, and which of them is called alike."""
    cards = [card for card in library.list() if card.kind == kind]
    classes = sorted({e for c in cards for e in library.ENTRIES[c.name].estimators})
    ours = [e for e in classes if e.endswith(CLASSIFIERS) == (kind == "classification")]
    ending = re.compile("Classifier$|Regressor$")
    bare = {ending.sub("", e): e for e in ours}
    near = get_close_matches(ending.sub("", name), bare, n=1, cutoff=0.75)
    nearest = f". The nearest by name is {bare[near[0]]}" if near else ""
    return f"For {kind} the library has priors for {', '.join(ours)}{nearest}"


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
        kind = "an empty dict" if isinstance(given, Mapping) else f"a {type(given).__name__}"
        raise InputError(
            f"param_space is {kind}; expected one dict of distributions or lists, or a Space. Of "
            "several dicts, make a search of each and compare their best_score_"
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


def _fingerprint(X: Any, y: Any) -> str:
    """A name of the data set that is the same the next time."""
    found = hashlib.sha256(repr(getattr(X, "shape", "")).encode())
    if y is not None:
        found.update(np.ascontiguousarray(np.asarray(y).astype(str)).tobytes())
    return found.hexdigest()[:16]
