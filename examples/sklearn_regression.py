"""Predict unseen data sets from ten rows each: a learned kernel in scikit-learn's GP, and Matern.

Needs ``pip install metakel[sklearn]``.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import metakel as mk
from metakel.integrations.sklearn import SklearnKernel

warnings.simplefilter("ignore", ConvergenceWarning)  # ten rows do not determine all lengthscales
rng = np.random.default_rng(0)
tasks = [
    (t.X[rows], t.y[rows]) for t in mk.datasets.load_glmnet() for rows in [rng.permutation(t.n)]
]
past, level = tasks[:25], np.mean([y[:60].mean() for _, y in tasks[:25]])
history = mk.History.from_pairs((X[:60], y[:60] - y[:60].mean()) for X, y in past)
learned = mk.learn_kernel(history, mk.kernels.tensor_product(2, 6, scaling="l2"), lam="cv")
print(learned)

# Weights in proportion to the mean squares of the coefficients, and the variance of past values.
kernel = mk.KernelSum(learned.kernel.base, learned.refitted() ** 2)
X, y = (np.concatenate([getattr(task, name) for task in history]) for name in "Xy")
scale = np.mean(y**2) / np.mean(kernel.diag(X))
ours = SklearnKernel(kernel, scale=scale, scale_bounds="fixed") + ConstantKernel(0.1, "fixed")
matern = ConstantKernel() * Matern([1.0, 1.0], nu=2.5) + WhiteKernel(1e-3)
errors, few, rest = [], slice(10), slice(10, None)
for X, y in tasks[25:]:
    gp = GaussianProcessRegressor(ours, alpha=learned.noise_std**2).fit(X[few], y[few] - level)
    plain = GaussianProcessRegressor(matern, normalize_y=True).fit(X[few], y[few])
    predictions = (gp.predict(X[rest]) + level, plain.predict(X[rest]))
    errors.append([np.sqrt(np.mean((found - y[rest]) ** 2)) for found in predictions])
learned_error, error = np.mean(errors, axis=0)
print(f"errors on {len(errors)} unseen data sets: learned {learned_error:.3f}, Matern {error:.3f}")
