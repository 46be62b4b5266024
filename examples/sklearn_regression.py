"""scikit-learn regression with a learned kernel: the AUC of the elastic net on new data sets.

A kernel over (alpha, log lambda) is learned from 25 data sets. 12 others are predicted from 10 rows
each, and compared with a tuned Matern kernel. Needs ``pip install metakel[sklearn]``.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import metakel as mk
from metakel.integrations.sklearn import MetaKernelRegressor

warnings.simplefilter("ignore", ConvergenceWarning)  # ten rows do not determine all lengthscales
rng = np.random.default_rng(0)
tasks = [
    (t.X[rows], t.y[rows]) for t in mk.datasets.load_glmnet() for rows in [rng.permutation(t.n)]
]
X = np.concatenate([X[:60] for X, _ in tasks[:25]])
y = np.concatenate([y[:60] for _, y in tasks[:25]])
model = MetaKernelRegressor().fit(X, y, task=np.repeat(np.arange(25), 60))
print(model.learned_)

matern = ConstantKernel() * Matern([1.0, 1.0], nu=2.5) + WhiteKernel(1e-3)
errors = []
for X, y in tasks[25:]:
    few, rest = slice(10), slice(10, None)
    plain = GaussianProcessRegressor(matern, normalize_y=True).fit(X[few], y[few])
    predictions = (model.adapt(X[few], y[few]).predict(X[rest]), plain.predict(X[rest]))
    errors.append([np.sqrt(np.mean((found - y[rest]) ** 2)) for found in predictions])
learned, plain = np.mean(errors, axis=0)
wins = sum(a < b for a, b in errors)
print(f"error on {len(errors)} unseen data sets: learned kernel {learned:.3f}, Matern {plain:.3f}")
print(f"the learned kernel is closer on {wins} of them")
