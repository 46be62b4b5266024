"""Lambda and lengthscale from past tasks alone: what predicts past tasks that were left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from metakel.data import History, Task
from metakel.gp.posterior import log_evidence
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn import EtaWeights, Scale, learn_kernel
from metakel.learn.select import score_held_out

TOLERANCE = 1e-6  # of the kernels that are only compared


def evidence(kernel: KernelSum, history: History, noise_var: float) -> float:
    """Log density of the values under GP(0, k) plus noise, per observation."""
    total = sum(log_evidence(kernel, task.X, task.y, noise_var=noise_var) for task in history)
    return total / history.total


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

    def score(kernel: KernelSum, task: Task) -> float:
        return log_evidence(kernel, task.X, task.y, noise_var=noise_var)

    def kernels_along_path(kept: History, kernels: KernelDictionary) -> list[KernelSum]:
        learned = (
            learn_kernel(
                kept,
                kernels,
                lam=lam,
                noise_std=noise_std,
                weights=EtaWeights(scale),
                tol=TOLERANCE,
            )
            for lam in lams
        )
        return [each.kernel for each in learned]

    scores: dict[tuple[float, float], float] = {}
    for length in lengthscales:
        fit_path = partial(kernels_along_path, kernels=base(length))
        split = ((kept, left.tasks) for kept, left in history.folds(folds))
        found = score_held_out(split, fit_path, score)
        for lam, total in zip(lams, found.scores.sum(axis=0).tolist(), strict=True):
            scores[lam, length] = total
    return max(scores, key=lambda pair: scores[pair])
