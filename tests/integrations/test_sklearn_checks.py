"""scikit-learn's own checks of estimators: the default, a rule for lambda, exact base kernels."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

import metakel as mk
from metakel.integrations.sklearn import MetaKernelRegressor


@parametrize_with_checks(
    [
        MetaKernelRegressor(),
        MetaKernelRegressor(order=2, lam="self-normalised", noise_std=0.3),
        MetaKernelRegressor(mk.squared_exponential([0.5, 2.0])),
    ]
)
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)
