"""Regression with a kernel learned from all tasks, as an estimator of scikit-learn."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from metakel._arrays import Array
from metakel.confidence import ConfidenceSequence
from metakel.errors import InputError
from metakel.gp import mixture_moments
from metakel.integrations.sklearn.kernel import SklearnKernel
from metakel.integrations.sklearn.model_selection import choose_lam_ratio, learn
from metakel.kernels import KernelDictionary, KernelSum, from_features, tensor_product
from metakel.kernels.base import Family
from metakel.kernels.custom import Custom
from metakel.learn.select import MultiTaskProblem, TaskPrior, rows_by_label

LARGEST_ORDER = 10
# A lasso over this many functions takes a fraction of a second on thousands of rows.
MOST_KERNELS = 100


def base_kernels(
    given: Any, *, d0: int, order: int | None, names: Sequence[str] | None
) -> KernelDictionary:
    """Base kernels for tables of ``d0`` columns; number 0 is a constant, the level of a task.

    Parameters
    ----------
    given : KernelDictionary, callable or None
        From the user: a dictionary, a function from d0 to one, or None for `default_base`.
    d0 : int
    order : int or None
        Largest total order of the default base kernels.
    names : (d0,) sequence of str or None
        Column names, which replace x0, x1, ... in the names of the kernels.
    """
    base = default_base(d0, order) if given is None else _given_base(given, d0)
    if base.d0 not in (None, d0):
        raise InputError(f"the base kernels take {base.d0} inputs; X has {d0} features")
    base = from_features(_one, 1, name="level", d0=d0, sup=1.0) + base
    return base if names is None else NamedInputs(base.families, base.d0, tuple(names))


def default_base(d0: int, order: int | None = None) -> KernelDictionary:
    """Legendre polynomials of single inputs and of pairs of inputs, each its own base kernel.

    Without an ``order``, the largest total order up to 10 that gives at most 100 kernels. If even
    pairs of order 2 are more, only polynomials of single inputs are used.
    """
    if order is not None:
        return tensor_product(d0, order, scaling="l2", max_interaction=2)
    for largest in range(LARGEST_ORDER, 1, -1):
        if largest * d0 + comb(largest, 2) * comb(d0, 2) <= MOST_KERNELS:
            return tensor_product(d0, largest, scaling="l2", max_interaction=2)
    largest = min(LARGEST_ORDER, max(1, MOST_KERNELS // d0))
    return tensor_product(d0, largest, scaling="l2", max_interaction=1)


def _given_base(given: Any, d0: int) -> KernelDictionary:
    if isinstance(given, KernelDictionary):
        return deepcopy(given)  # it caches results, and scikit-learn's parameters may not change
    made = given(d0) if callable(given) and not isinstance(given, KernelSum) else given
    if isinstance(made, KernelDictionary):
        return made
    remedy = ""
    if isinstance(made, KernelSum):
        remedy = ": give kernel.base"
    elif hasattr(made, "kernel"):  # a LearnedKernel, say
        remedy = ": give learned.kernel.base"
    raise InputError(
        f"base is a {type(made).__name__}; expected a KernelDictionary, or a function from the "
        f"number of features to one{remedy}"
    )


@dataclass(frozen=True, eq=False, repr=False)
class NamedInputs(KernelDictionary):
    """Base kernels of named columns: ``P2(heat)`` instead of ``P2(x1)``."""

    inputs: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the p kernels in reports."""
        return tuple(name for family in self.families for name in self._names(family))

    def _names(self, family: Family) -> tuple[str, ...]:
        if isinstance(family, Custom):  # named by the user
            return family.names
        return tuple(re.sub(r"\bx(\d+)\b", self._column, name) for name in family.names)

    def _column(self, found: re.Match[str]) -> str:
        return self.inputs[int(found[1])]


def _one(X: Array) -> Array:
    return np.ones((len(X), 1))


logger = logging.getLogger("metakel")


class MetaKernelRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process regression with a sparse kernel that is learned from several tasks.

    Rows belong to tasks (``fit(X, y, task=labels)``); without labels all rows are one task. Tasks
    share the base kernels that explain them, and have coefficients of their own. `adapt` predicts
    a new task from a few of its rows.

    Parameters
    ----------
    base : KernelDictionary or callable, optional
        Base kernels on the scaled inputs, or a function from the number of features to them. By
        default Legendre polynomials of single features and of pairs of features. A constant is
        added for the level of a task.
    order : int, optional
        Largest total order of the default base kernels. By default the largest order up to 10
        that gives at most 100 kernels.
    feature_range : (low, high) or None
        Features are scaled from their range in `fit` to this interval, and later values outside
        are clipped. None leaves the inputs unscaled.
    noise_std : float, optional
        Noise level of ``y``, estimated by default.
    lam : "cv", str, float or array
        Strength of the group lasso. "cv" is the lambda that predicts rows best from other rows of
        their task. Otherwise as in `metakel.learn_kernel`, whose rules select less; they need
        ``noise_std``, except "self-normalised" and "square-root".
    delta : float
        Failure probability of the rules for lambda.
    random_state : int
        Seed of the rules that simulate; "cv" needs none.

    Attributes
    ----------
    learned_ : LearnedKernel
        The selected base kernels, with a certificate: ``print(model.learned_)``.
    kernel_ : SklearnKernel
        The kernel of predictions, on scaled inputs: the selected base kernels, weighted with the
        variance that they have in the tasks.
    noise_std_ : float
    level_ : float
        Mean of the task means, the prior mean of a task.
    scaler_ : MinMaxScaler or None
    tasks_ : list
        Labels in order of appearance; ``[None]`` for a single task without a label.
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
        """Learn from rows ``X`` (n, d0), values ``y`` (n,) and task labels ``task`` (n,).

        A single label is the label of all rows.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        labels = _as_labels(task, y)
        self.scaler_ = None
        if self.feature_range is not None:
            self.scaler_ = MinMaxScaler(self.feature_range, clip=True).fit(X)
        points = self._scaled(X)
        values = np.asarray(y, np.float64)
        base = base_kernels(
            self.base,
            d0=points.shape[1],
            order=self.order,
            names=getattr(self, "feature_names_in_", None),
        )
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
        self._task_prior: TaskPrior = lesson.task_prior(self.learned_.solution, self.noise_std)
        self.kernel_ = SklearnKernel(self._task_prior.kernel, scale_bounds="fixed")
        self.noise_std_, self.level_ = self._task_prior.noise_std, self._task_prior.level
        self.tasks_ = list(dict.fromkeys(labels))
        self._posteriors = {
            name: self._task_prior.posterior(points[rows], values[rows])
            for name, rows in rows_by_label(labels).items()
        }
        self._adapted_from: Array | None = None
        return self

    def adapt(self, X: Any, y: Any) -> Self:
        """Return a copy that predicts a new task from rows of it, at least one.

        The kernel, the noise and the level stay as `fit` has learned them.
        """
        check_is_fitted(self)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=False)
        adapted = copy(self)
        adapted.tasks_ = [None]
        adapted._posteriors = {None: self._task_prior.posterior(self._scaled(X), y)}
        adapted._adapted_from = X
        return adapted

    def predict(self, X: Any, task: Any = None, return_std: bool = False) -> Any:
        """(n,) posterior means; with ``return_std`` a pair of means and standard deviations.

        Parameters
        ----------
        X : (n, d0) array
        task : (n,) labels or one label, optional
            The task of every row, or of all rows. A row without a label, or with one that `fit`
            has not seen, belongs to each of the fitted tasks with equal probability: the mean and
            the standard deviation are those of this mixture. With one task, or after `adapt`, they
            are those of the task.
        return_std : bool
            Standard deviations are those of the function, without the noise of an observation.
        """
        check_is_fitted(self)
        if task is None and len(self._posteriors) > 1 and self._awaits_task():
            warnings.warn(
                "set_predict_request(task=True) asks for task labels, but predict got none, so it "
                f"averages over {len(self._posteriors)} tasks. scikit-learn's scorers, such as "
                'scoring="r2", pass no labels to predict: leave scoring out, or write a scorer '
                "that passes them (see the guide to scikit-learn)",
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
        """(n,) lower and upper confidence bounds of the function of an adapted task.

        The bounds are those of `ConfidenceSequence`. With probability 1 - ``delta`` they hold at
        all points together, if

        - the function is a sum of the selected base kernels and the level. An alarm watches this,
          and falls back to all base kernels;
        - the noise is sub-Gaussian with parameter ``noise_std_`` (an estimate unless it was given)
          and independent of the rows of `fit`.

        Parameters
        ----------
        X : (n, d0) array
            Within the ranges of `fit`; the function is not modelled elsewhere.
        delta : float
        norm_bound : float, optional
            Bound on the norm of the function minus ``level_``, in the kernel with weight 1 on the
            level and on every selected base kernel. Without it, the bounds are infinite until the
            rows determine the coefficients of all selected features, and base kernels without
            features are refused.
        """
        check_is_fitted(self)
        if self._adapted_from is None:
            raise InputError(
                "confidence: the kernel was learned from the values of these tasks, so bounds "
                "from them would not hold; adapt(X, y) to rows that fit has not seen (hold some "
                "rows back from fit if there is only one task)"
            )
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if self.scaler_ is not None:
            low, high = self.scaler_.data_min_, self.scaler_.data_max_
            names = getattr(self, "feature_names_in_", range(X.shape[1]))
            _check_within(self._adapted_from, low, high, "adapt", names)
            _check_within(X, low, high, "confidence", names)
        (known,) = self._posteriors.values()
        learned, unit = self.learned_, self.noise_std_
        kernel = KernelSum.uniform(learned.kernel.base, active=np.union1d(learned.active, [0]))
        sequence = ConfidenceSequence(
            kernel,
            noise_std=1.0,  # in units of the noise, so that the units of y do not matter
            norm_bound=None if norm_bound is None else norm_bound / unit,
            delta=delta,
        )
        sequence.tell(known.X, (known.y - known.prior_mean) / unit)
        if sequence.alarm is not None:
            logger.warning("%s", sequence.alarm.reason)
        lower, upper = sequence.interval(self._scaled(X))
        return self.level_ + unit * lower, self.level_ + unit * upper

    def _predicted(self, X: Any, task: Any) -> tuple[Array, Array]:
        """(n,) means and standard deviations."""
        points = self._scaled(validate_data(self, X, dtype=np.float64, reset=False))
        mean, std = np.empty(len(points)), np.empty(len(points))
        everyone = list(self._posteriors.values())
        for name, rows in rows_by_label(_as_labels(task, points)).items():
            own = [self._posteriors[name]] if name in self._posteriors else everyone
            mean[rows], std[rows] = mixture_moments(own, points[rows])
        return mean, std

    def _awaits_task(self) -> bool:
        """Whether metadata routing was asked to pass task labels to `predict`."""
        return self.get_metadata_routing().predict.requests.get("task") is True

    def _scaled(self, X: Array) -> Array:
        return X if self.scaler_ is None else np.asarray(self.scaler_.transform(X))


def _as_labels(task: Any, rows: Any) -> list[Any]:
    """One checked task label per row; a single label, or None, is the label of all rows."""
    if task is None:
        return [None] * len(rows)
    labels = np.asarray(task, dtype=object)
    if labels.ndim == 0:
        labels = np.full(len(rows), labels)
    if labels.ndim != 1:
        raise InputError(
            f"task has shape {labels.shape}; expected one label for every row, or one for all"
        )
    check_consistent_length(rows, labels)
    for i, label in enumerate(labels):
        if _is_missing(label):
            raise InputError(f"row {i} has no task label (found {label})")
    return list(labels)


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    same = label == label  # False for NaN and NaT; NA for the NA of pandas
    return not (isinstance(same, bool | np.bool_) and same)


def _check_within(X: Array, low: Array, high: Array, where: str, names: Sequence[object]) -> None:
    """Refuse rows outside of the ranges of `fit`."""
    outside = (low > X) | (high < X)
    if outside.any():
        row, column = (int(i) for i in np.argwhere(outside)[0])
        raise InputError(
            f"{where}: feature {names[column]} is {X[row, column]:.6g} in row {row}; expected a "
            f"value in [{low[column]:.6g}, {high[column]:.6g}], the range in fit, because the "
            "function is not modelled outside"
        )
