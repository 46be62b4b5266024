"""Guesses of the norm of f that the mixture averages over, fixed before the first observation."""

from __future__ import annotations

from math import sqrt

import numpy as np

from metakel._arrays import Array
from metakel.confidence.options import Settings
from metakel.confidence.radius import scales_below, scales_between
from metakel.kernels.sum import KernelSum

# What the norm may be where nobody gave a bound, in units of the noise. Below, f cannot be told
# from 0 by ten thousand values; above, the radius is a millionth of f instead of a few sigma.
NORM_RANGE = (1e-2, 1e6)
# Guesses above the norm bound for the alarm, in units of the noise. A guess s serves norms far
# above it as well: of N^2 |phi|^2 / sigma^2, which speaks against the bound, it misses (N / s)^2.
WATCHED = np.array([1.0, 8.0, 64.0, 512.0])


def norm_guesses(settings: Settings, kernel: KernelSum, norm_bound: float) -> Array:
    """(S,) guesses in the norm of ``kernel``, whose functions are bounded by ``norm_bound``."""
    if settings.norm_scales is not None:
        return np.array(settings.norm_scales, dtype=np.float64)
    if settings.norm_bound is None and settings.norm_range is None:
        return scales_between(*(_unit(settings, kernel) * np.array(NORM_RANGE)))
    if settings.norm_bound is None:
        assert settings.norm_range is not None
        return scales_between(*settings.norm_range)
    if callable(settings.norm_bound):
        return scales_between(norm_bound / 2**7, norm_bound * 2**7)
    return scales_below(norm_bound)


def watched_guesses(settings: Settings, kernel: KernelSum, norm_scales: Array) -> Array:
    """(W,) guesses above all others, where f would stand out of the noise.

    If even B sqrt(k) is small against the noise, no guess up to B explains values of many sigma
    better than 0 does, and the mixture has nothing to hold against the bound: no alarm. These have.
    """
    if settings.norm_scales is not None or not settings.watch:
        return np.zeros(0)
    watched = _unit(settings, kernel) * WATCHED
    return np.asarray(watched[watched > norm_scales.max()])


def _unit(settings: Settings, kernel: KernelSum) -> float:
    """The norm of a function about as large as the noise, for base kernels about as large as 1."""
    return settings.noise_std / sqrt(kernel.min_weight or 1.0)
