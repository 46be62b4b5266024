"""Lambda and lengthscale from past tasks alone: what predicts past tasks that were left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from metakel.data import History
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn import Scale, learn_kernel

TOLERANCE = 1e-6  # of the kernels that are only compared


def evidence(kernel: KernelSum, history: History, noise_var: float) -> float:
    """Log density of the values under GP(0, k) plus noise, per observation."""
    total = 0.0
    for task in history:
        factor = cho_factor(kernel(task.X) + noise_var * np.eye(task.n), lower=True)
        total -= task.y @ cho_solve(factor, task.y) / 2 + np.log(np.diag(factor[0])).sum()
    return float(total / history.total - np.log(2 * np.pi) / 2)


def choose_fixed(
    history: History, kernels: Mapping[float, KernelSum], *, noise_var: float
) -> float:
    """Key of the kernel that predicts the past tasks best; it learned nothing from them."""
    return max(kernels, key=lambda key: evidence(kernels[key], history, noise_var))


def choose_learned(
    history: History,
    base: Callable[[float], KernelDictionary],
    lengthscales: Sequence[float],
    lams: Sequence[float],
    *,
    noise_std: float,
    noise_var: float,
    scale: Scale,
    folds: int,
) -> tuple[float, float]:
    """Lambda and lengthscale whose k-hat predicts past tasks that it has not seen.

    Parameters
    ----------
    base : callable(lengthscale) -> Dictionary
    noise_std, scale
        Of `learn_kernel`.
    noise_var : float
        Of the Gaussian process that uses the kernel.
    folds : int
        Task s is predicted by the kernel of all tasks that differ from s modulo ``folds``.
    """
    scores: dict[tuple[float, float], float] = {}
    for length in lengthscales:
        kernels = base(length)
        for lam in lams:
            scores[lam, length] = 0.0
            for kept, left in history.folds(folds):
                learned = learn_kernel(
                    kept,
                    kernels,
                    lam=lam,
                    noise_std=noise_std,
                    weights="eta",
                    scale=scale,
                    tol=TOLERANCE,
                )
                scores[lam, length] += left.total * evidence(learned.kernel, left, noise_var)
    return max(scores, key=lambda pair: scores[pair])
