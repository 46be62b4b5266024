"""Regression with a kernel learned from all tasks, as an estimator of scikit-learn."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from metakel._arrays import Array
from metakel.confidence import ConfidenceSequence
from metakel.errors import InputError
from metakel.gp import Posterior
from metakel.integrations.sklearn.dictionary import (
    default_base,
    given_base,
    with_level,
    with_names,
)
from metakel.integrations.sklearn.kernel import SklearnKernel
from metakel.integrations.sklearn.labels import as_labels, check_within, rows_by_label
from metakel.integrations.sklearn.model_selection import choose_lam_ratio, learn
from metakel.integrations.sklearn.problem import Belief, MultiTaskProblem
from metakel.kernels import KernelDictionary, KernelSum

logger = logging.getLogger("metakel")


class MetaKernelRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a sparse kernel from all tasks, and predict each of them with it.

    Rows belong to tasks (`fit(X, y, task=labels)`); without labels all rows are one task. Tasks
    share which base kernels they are made of, and have coefficients of their own. A new task is
    predicted from a few rows of it by `adapt`.

    Parameters
    ----------
    base : KernelDictionary or callable, optional
        Base kernels on the scaled inputs, or a function from the number of features to them. By
        default Legendre polynomials of single features and of pairs (`default_base`). A constant
        is added for the level of a task.
    order : int, optional
        Largest total order of the default base kernels; by default as large as 100 of them allow.
    feature_range : (low, high) or None
        Every feature is mapped from its range in `fit` to this interval, and what lies outside
        later is moved to the nearest end. None takes inputs as they are.
    noise_std : float, optional
        Noise level of ``y``, estimated by default.
    lam : "cv", str, float or array
        "cv" is the lambda that predicts rows best from other rows of their task; others are those
        of `metakel.learn_kernel`, whose rules ("self-normalised", ...) select less; all but this
        one and "square-root" need ``noise_std``.
    delta : float
        For the rules.
    random_state : int
        Seed of rules that simulate; the default needs none.

    Attributes
    ----------
    learned_ : LearnedKernel
        What was selected, with its certificate: ``print(model.learned_)``.
    kernel_ : SklearnKernel
        The kernel of predictions, on scaled inputs: the selected base kernels, weighted with the
        variance that they have in the tasks.
    noise_std_ : float
    level_ : float
        Mean of the task means, from which predictions start.
    scaler_ : MinMaxScaler or None
    tasks_ : list
        Labels in the order in which they appeared; ``[None]`` for a single task.
    n_features_in_, feature_names_in_
    """

    def __init__(
        self,
        base: KernelDictionary | Callable[[int], KernelDictionary] | None = None,
        *,
        order: int | None = None,
        feature_range: tuple[float, float] | None = (-1.0, 1.0),
        noise_std: float | None = None,
        lam: str | ArrayLike = "cv",
        delta: float = 0.1,
        random_state: int = 0,
    ) -> None:
        self.base = base
        self.order = order
        self.feature_range = feature_range
        self.noise_std = noise_std
        self.lam = lam
        self.delta = delta
        self.random_state = random_state

    def fit(self, X: Any, y: Any, task: Any = None) -> Self:
        """Learn from rows ``X`` (n, d0) with values ``y`` (n,) and task labels ``task`` (n,).

        A single label is that of all rows, and names the only task.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        labels = as_labels(task, y)
        self.scaler_ = None
        if self.feature_range is not None:
            self.scaler_ = MinMaxScaler(self.feature_range, clip=True).fit(X)
        points = self._scaled(X)
        values = np.asarray(y, np.float64)
        d0 = points.shape[1]
        own = default_base(d0, self.order) if self.base is None else given_base(self.base, d0)
        base = with_names(with_level(own, d0), getattr(self, "feature_names_in_", None))
        lesson = MultiTaskProblem.of(points, values, labels, base)
        lam_ratio = None
        if isinstance(self.lam, str) and self.lam == "cv":
            lam_ratio = choose_lam_ratio(points, values, labels, base, self.noise_std)
        self.learned_ = learn(
            lesson,
            lam_ratio,
            noise_std=self.noise_std,
            lam=self.lam,
            delta=self.delta,
            rng=np.random.default_rng(self.random_state),
        )
        self._belief: Belief = lesson.belief(self.learned_.solution, self.noise_std)
        self.kernel_ = SklearnKernel(self._belief.kernel, scale_bounds="fixed")
        self.noise_std_, self.level_ = self._belief.noise_std, self._belief.level
        self.tasks_ = list(dict.fromkeys(labels))
        self._posteriors = {
            name: self._belief.posterior(points[rows], values[rows])
            for name, rows in rows_by_label(labels).items()
        }
        self._adapted_from: Array | None = None
        return self

    def adapt(self, X: Any, y: Any) -> Self:
        """A copy that predicts a new task from these rows of it; what was learned stays.

        Rows are those of one task, at least one.
        """
        check_is_fitted(self)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=False)
        adapted = copy(self)
        adapted.tasks_ = [None]
        adapted._posteriors = {None: self._belief.posterior(self._scaled(X), y)}
        adapted._adapted_from = X
        return adapted

    def predict(self, X: Any, task: Any = None, return_std: bool = False) -> Any:
        """(n,) posterior means, and with ``return_std`` a pair of them and their deviations.

        Parameters
        ----------
        X : (n, d0) array
        task : (n,) labels or one label, optional
            Whose rows these are; one label is that of all rows. A row without a label, or with one
            that was not fitted, may come from any of the fitted tasks alike: its mean and deviation
            are those of that mixture. With one task, or after `adapt`, they are those of the task.
        return_std : bool
            Deviations are those of the function, without the noise of an observation.
        """
        check_is_fitted(self)
        if task is None and len(self._posteriors) > 1 and self._awaits_task():
            warnings.warn(
                "set_predict_request(task=True) asks for task labels, but predict got none, so it "
                f"averages over {len(self._posteriors)} tasks. Scorers of scikit-learn, "
                'scoring="r2" among them, hand no labels to predict: leave scoring out, or give a '
                "scorer that does (guide: scikit-learn)",
                stacklevel=2,
            )
        mean, std = self._predicted(X, task)
        return (mean, std) if return_std else mean

    def score(self, X: Any, y: Any, sample_weight: Any = None, task: Any = None) -> float:
        """Coefficient of determination of `predict`."""
        check_is_fitted(self)
        return float(r2_score(y, self._predicted(X, task)[0], sample_weight=sample_weight))

    def confidence(
        self, X: Any, *, delta: float = 0.1, norm_bound: float | None = None
    ) -> tuple[Array, Array]:
        """(n,) lower and upper bounds of the function of an adapted task, for all points at once.

        They are those of `ConfidenceSequence`, and hold with probability 1 - ``delta`` if

        - the selected base kernels and the level make up the function: an alarm watches this, and
          falls back to all base kernels;
        - the noise is sub-Gaussian of at most ``noise_std_`` (an estimate unless it was given),
          and independent of the rows of `fit`.

        Parameters
        ----------
        X : (n, d0) array
            Within the ranges of `fit`; the function is not modelled elsewhere.
        delta : float
        norm_bound : float, optional
            Of the function minus ``level_``, in the kernel with weight 1 on the level and on every
            selected base kernel. None asks for nothing: the bounds are infinite until the rows
            tell all selected features apart, and base kernels without features are refused.
        """
        check_is_fitted(self)
        if self._adapted_from is None:
            raise InputError(
                "confidence: the kernel was learned from these very values, so it cannot vouch for "
                "them; adapt(X, y) to rows that fit has not seen (or hold some back from fit)"
            )
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if self.scaler_ is not None:
            low, high = self.scaler_.data_min_, self.scaler_.data_max_
            names = getattr(self, "feature_names_in_", range(X.shape[1]))
            check_within(self._adapted_from, low, high, "adapt", names)
            check_within(X, low, high, "confidence", names)
        (known,) = self._posteriors.values()
        learned, unit = self.learned_, self.noise_std_
        kernel = KernelSum.uniform(learned.kernel.base, active=np.union1d(learned.active, [0]))
        sequence = ConfidenceSequence(
            kernel,
            noise_std=1.0,  # in units of the noise, so that the units of y do not matter
            norm_bound=None if norm_bound is None else norm_bound / unit,
            delta=delta,
        )
        sequence.tell(known.X, known.y / unit)
        if sequence.alarm is not None:
            logger.warning("%s", sequence.alarm.reason)
        lower, upper = sequence.interval(self._scaled(X))
        return self.level_ + unit * lower, self.level_ + unit * upper

    def _predicted(self, X: Any, task: Any) -> tuple[Array, Array]:
        """(n,) means and deviations."""
        points = self._scaled(validate_data(self, X, dtype=np.float64, reset=False))
        labels = as_labels(task, points)
        mean, std = np.empty(len(points)), np.empty(len(points))
        for name, rows in rows_by_label(labels).items():
            known = [self._posteriors[name]] if name in self._posteriors else None
            mean[rows], std[rows] = _mixture(known or [*self._posteriors.values()], points[rows])
        return mean + self.level_, std

    def _awaits_task(self) -> bool:
        """Whether the user told metadata routing to hand labels to `predict`."""
        return self.get_metadata_routing().predict.requests.get("task") is True

    def _scaled(self, X: Array) -> Array:
        return X if self.scaler_ is None else np.asarray(self.scaler_.transform(X))


def _mixture(posteriors: list[Posterior], Z: Array) -> tuple[Array, Array]:
    """Means and deviations of a function that is any of these, with equal probability."""
    means = np.array([known.mean(Z) for known in posteriors])  # (m, n)
    variance = np.mean([known.var(Z) for known in posteriors], axis=0) + means.var(axis=0)
    return means.mean(axis=0), np.sqrt(variance)
