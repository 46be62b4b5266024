"""A squared exponential whose hyper-parameters follow the observations, by maximum evidence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from metakel._arrays import Array
from metakel.gp.posterior import negative_log_likelihood
from metakel.kernels import KernelSum, squared_exponential
from reproduction.play import OnGrid

# Inputs lie in [0, 1] and [-1, 1], values have variance of order 1.
LENGTHS = (0.02, 5.0)
VARIANCES = (0.05, 20.0)
LEAST = 3  # observations before the first fit


def negative_evidence(
    parameters: Array, squares: Array, y: Array, noise_var: float
) -> tuple[float, Array]:
    """Minus the log evidence of GP(0, k) plus noise but for a constant, and its gradient.

    Parameters
    ----------
    parameters : (d0 + 1,) array
        Logarithms of the lengthscales and of the variance.
    squares : (d0, t, t) array
        Squared differences of the inputs.
    """
    lengths, variance = np.exp(parameters[:-1]), np.exp(parameters[-1])
    scaled = squares / lengths[:, None, None] ** 2
    K = variance * np.exp(-scaled.sum(axis=0) / 2)
    value, slope = negative_log_likelihood(K + noise_var * np.eye(len(y)), y)
    inner = slope * K
    return value, np.array([*(np.sum(inner * part) for part in scaled), inner.sum()])


def refitted(
    Z: Array, *, lengthscale: float, noise_var: float
) -> Callable[[NDArray[np.intp], Array], OnGrid]:
    """For `play`: before every step, the kernel of largest evidence, searched from the last one."""
    start = np.log(np.append(np.full(Z.shape[1], lengthscale), 1.0))
    bounds = [tuple(np.log(LENGTHS))] * Z.shape[1] + [tuple(np.log(VARIANCES))]
    last = [start]

    def model(where: NDArray[np.intp], y: Array) -> OnGrid:
        if len(where) >= LEAST:
            X = Z[where]
            squares = np.square(X.T[:, :, None] - X.T[:, None, :])
            found = minimize(
                negative_evidence,
                last[0],
                args=(squares, y, noise_var),
                jac=True,
                bounds=bounds,
                method="L-BFGS-B",
                options={"maxiter": 20},
            )
            last[0] = found.x
        lengths, variance = np.exp(last[0][:-1]), float(np.exp(last[0][-1]))
        base = squared_exponential([lengths.tolist()], d0=Z.shape[1])
        return OnGrid(KernelSum(base, np.array([variance])), Z, keep=False)

    return model
