"""Worlds in which the default path of confidence after learning has to cover.

Some are those in which an audit found the selection alone, or too small an allowance for hidden
kernels, not to cover. Ten others were written down before anything was measured in them.

Every past task and the new one use each true kernel with probability ``used``, with coefficients
whose values have root mean square ``snr`` times the noise, which is 1. B is twice the root mean
square norm of a task, and no task exceeds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.kernels import KernelDictionary, legendre, random_fourier, tensor_product

Draw = Callable[[np.random.Generator, int], Array]
SIZES = (10, 60)


def gaussian(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n)


def signs(rng: np.random.Generator, n: int) -> Array:
    return rng.choice([-1.0, 1.0], n)


def flat(rng: np.random.Generator, n: int) -> Array:
    """Uniform noise whose sub-Gaussian proxy is 1."""
    return rng.uniform(-np.sqrt(3), np.sqrt(3), n)


def two_sizes(rng: np.random.Generator, m: int) -> Array:
    return np.where(np.arange(m) < 10, 6, 80)


def between(low: int, high: int) -> Draw:
    return lambda rng, m: rng.integers(low, high + 1, m)


@dataclass(frozen=True)
class Setting:
    """What is varied."""

    name: str
    base: KernelDictionary
    tasks: int
    snr: float
    sizes: Draw = between(*SIZES)  # noqa: RUF009
    true: int = 4
    used: float = 0.8
    known: bool = True
    loss: str = "points"
    strengths: tuple[float, ...] = ()  # of the true kernels, relative to snr
    coefficients: Draw = gaussian
    noise: Draw = gaussian
    clustered: bool = False  # past points near one place of every task


@dataclass(frozen=True, eq=False)
class Drawn:
    """A history and the next task."""

    setting: Setting
    history: History
    support: Array  # of the true kernels
    theta: Array  # (d,) coefficients of the next task
    norm_bound: float


def draw(setting: Setting, rng: np.random.Generator) -> Drawn:
    """One history and the next task of a setting."""
    base = setting.base
    d0 = base.d0 or 1
    support = rng.choice(base.p, setting.true, replace=False)
    typical = base.diags(rng.uniform(-1, 1, (2000, d0))).mean(axis=1)[support]
    strengths = np.array(setting.strengths or (1,) * setting.true)
    stds = setting.snr * strengths / np.sqrt(typical)  # of every coefficient
    dims = np.array([base.dims[j] for j in support], dtype=float)
    bound = 2 * float(np.sqrt((setting.used * dims * stds**2).sum()))

    def coefficients() -> Array:
        while True:
            theta = np.zeros(base.dim)
            for j, std in zip(support, stds, strict=True):
                group = base.groups[j]
                if rng.uniform() < setting.used:
                    theta[group] = std * setting.coefficients(rng, group.stop - group.start)
            if np.linalg.norm(theta) <= bound:
                return theta

    pairs = []
    for n in setting.sizes(rng, setting.tasks):
        X = rng.uniform(-1, 1, (n, d0))
        if setting.clustered:
            X = np.clip(rng.uniform(-1, 1, d0) + 0.4 * rng.standard_normal((n, d0)), -1, 1)
        pairs.append((X, base.features(X) @ coefficients() + setting.noise(rng, n)))
    return Drawn(setting, History.from_pairs(pairs), support, coefficients(), bound)


L2 = partial(legendre, scaling="l2")
AUDITED = (
    Setting("30 kernels, 20 tasks, SNR .25", L2(30), 20, 0.25),
    Setting("30 kernels, 20 tasks, SNR .5", L2(30), 20, 0.5),
    Setting("30 kernels, 20 tasks, SNR 1", L2(30), 20, 1.0),
    Setting("sup, 20 kernels, 12 tasks, SNR .5", legendre(20, scaling="sup"), 12, 0.5),
    Setting("60 kernels, 12 tasks, SNR .5", L2(60), 12, 0.5),
    Setting("10 kernels, 9 short tasks, SNR 1", L2(10), 9, 1.0, between(10, 25)),
    Setting("10 of 60 kernels, 9 short tasks, SNR .5", L2(60), 9, 0.5, between(10, 25), true=10),
    Setting("2-D, order 5, 12 tasks, SNR .5", tensor_product(2, 5, scaling="l2"), 12, 0.5),
    Setting("noise unknown, n > p, SNR .5", L2(12), 12, 0.5, known=False),
    Setting("noise unknown, n <= p, SNR 1", L2(20), 12, 1.0, between(8, 14), known=False),
    Setting("noise unknown, n <= p, SNR 4", L2(20), 12, 4.0, between(8, 14), known=False),
    Setting("noise unknown, n <= p, SNR 20", L2(20), 12, 20.0, between(8, 14), known=False),
    Setting("noise unknown, n about p, SNR 4", L2(20), 12, 4.0, between(18, 23), known=False),
    Setting("noise unknown, 55 kernels, SNR 1", L2(55), 12, 1.0, known=False),
    Setting("kernels in a quarter of 12 tasks, SNR 1", L2(30), 12, 1.0, used=0.25),
    Setting("sizes 1 to 80, by tasks, SNR 1", L2(30), 20, 1.0, between(1, 80), loss="tasks"),
)
FOURIER = random_fourier(10, 1, lengthscales=[0.3], rng=np.random.default_rng(0))
# Written down before anything was measured in them.
OWN = (
    Setting("15 kernels, 30 very short tasks, SNR .7", L2(15), 30, 0.7, between(5, 15)),
    Setting("10 random Fourier kernels, 15 tasks, SNR .5", FOURIER, 15, 0.5, between(20, 40)),
    Setting(
        "6 of 40 kernels, signs, 10 tasks, SNR .75",
        L2(40),
        10,
        0.75,
        between(30, 30),
        true=6,
        used=1.0,
        coefficients=signs,
    ),
    Setting(
        "one strong and three weak kernels, 16 tasks",
        L2(20),
        16,
        0.4,
        between(20, 20),
        strengths=(12.5, 1, 1, 1),
    ),
    Setting("uniform noise, 12 tasks, SNR .6", L2(20), 12, 0.6, between(15, 30), noise=flat),
    Setting("points in one place, 14 tasks, SNR .7", L2(12), 14, 0.7, clustered=True),
    Setting("12 of 25 weak kernels, 25 tasks, SNR .35", L2(25), 25, 0.35, between(40, 40), true=12),
    Setting("9 long tasks, SNR .4", L2(20), 9, 0.4, between(60, 60)),
    Setting("10 tasks of 6 points, 6 of 80, SNR .6", L2(16), 16, 0.6, two_sizes),
    Setting("noise unknown, n > p, 9 tasks, SNR .6", L2(20), 9, 0.6, between(25, 35), known=False),
)
