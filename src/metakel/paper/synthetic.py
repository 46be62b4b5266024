"""The synthetic tasks of Section 6: a sparse true kernel, functions in its space, noisy data."""

from __future__ import annotations

from typing import Literal

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.kernels import KernelDictionary, KernelSum

Signs = Literal["positive", "both"]


def true_kernel(
    base: KernelDictionary, *, sparsity: int, rng: np.random.Generator, smallest: float = 0.0
) -> KernelSum:
    """k* of Eq. 5: a random support, uniform weights scaled to sum to one.

    ``smallest`` redraws until every weight reaches it: uniform weights come arbitrarily close to
    zero, against Assumption 3.1.
    """
    active = np.sort(rng.choice(base.p, sparsity, replace=False))
    while True:
        weights = rng.uniform(size=sparsity)
        weights /= weights.sum()
        if weights.min() >= smallest:
            break
    eta = np.zeros(base.p)
    eta[active] = weights
    return KernelSum(base, eta)


def coefficients(
    kernel: KernelSum,
    *,
    norm: float,
    rng: np.random.Generator,
    signs: Signs = "positive",
    everything: bool = False,
) -> Array:
    """(dim,) beta of Eq. 6 for one task, scaled to the RKHS norm B.

    The task uses a random non-empty subset of the active kernels (all of them if ``everything``),
    with entries uniform on (0, 1) as printed, or on (-1, 1) for ``signs="both"``.
    """
    count = kernel.active.size
    size = count if everything else int(rng.integers(1, count + 1))
    chosen = rng.choice(count, size, replace=False)
    beta = np.zeros(kernel.dim)
    low = -1.0 if signs == "both" else 0.0
    for j in chosen:
        beta[kernel.groups[j]] = rng.uniform(low, 1.0, size=beta[kernel.groups[j]].size)
    scaled: Array = norm / np.linalg.norm(beta) * beta
    return scaled


def sample_tasks(
    kernel: KernelSum,
    *,
    m: int,
    n: int,
    norm: float,
    noise_std: float,
    rng: np.random.Generator,
    signs: Signs = "positive",
) -> tuple[History, Array]:
    """Meta-data of Eq. 4 and the (m, dim) beta behind them (Eq. 6).

    Every task is seen at n uniform points of [-1, 1]^d0.
    """
    pairs, rows = [], []
    for _ in range(m):
        X = rng.uniform(-1, 1, size=(n, kernel.base.d0 or 1))
        beta = coefficients(kernel, norm=norm, rng=rng, signs=signs)
        f = kernel.features(X) @ beta
        pairs.append((X, f + noise_std * rng.standard_normal(n)))
        rows.append(beta)
    return History.from_pairs(pairs), np.array(rows)


def sample_history(
    kernel: KernelSum,
    *,
    m: int,
    n: int,
    norm: float,
    noise_std: float,
    rng: np.random.Generator,
    signs: Signs = "positive",
) -> History:
    """Meta-data of Eq. 4: m tasks, each seen at n uniform points of [-1, 1]^d0."""
    history, _ = sample_tasks(
        kernel, m=m, n=n, norm=norm, noise_std=noise_std, rng=rng, signs=signs
    )
    return history


def signal(kernel: KernelSum, beta: Array) -> Array:
    """(p,) norms over all tasks of what each base kernel contributes, sqrt(eta_j) ||beta^(j)||.

    What eta-hat estimates; its smallest value over the support of k* is c_1 of Assumption 3.1.
    """
    strength = np.zeros(kernel.base.p)
    for j, group in zip(kernel.active, kernel.groups, strict=True):
        strength[j] = np.sqrt(kernel.eta[j]) * np.linalg.norm(beta[:, group])
    return strength
