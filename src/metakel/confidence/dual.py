r"""The set of Theorem 5.1's replacement: functions that fit the data and have a small norm.

.. math:: \{\theta : \|y - F\theta\|^2 \le R^2,\ \|\theta\|^2 \le B^2\}

Adding alpha times the second constraint to the first gives, for every alpha > 0, an ellipsoid
around the ridge solution that holds the set:

.. math:: |f(x) - \mu_\alpha(x)|^2 \le \phi(x)'(F'F + \alpha)^{-1}\phi(x)\, \tilde R_\alpha^2,
          \quad \tilde R_\alpha^2 = R^2 + \alpha B^2 - \min_\theta(\|y - F\theta\|^2 +
          \alpha\|\theta\|^2).

The best upper bound over alpha is the maximum of f(x) over the set (strong duality).
"""

from __future__ import annotations

import numpy as np

from metakel._arrays import Array
from metakel.confidence.spectrum import NEGLIGIBLE, Spectrum

GRID = 40


def alpha_grid(spectrum: Spectrum, norm_bound: float, norm_scales: Array) -> Array:
    """(A,) regularisers from "the norm does not matter" to "the data do not", increasing.

    They contain the regulariser 1 / scale^2 of every one of the ``norm_scales``, so the bound is
    never worse than the closed form "amm" at one of these.
    """
    largest = float(spectrum.values.max(initial=0))
    lowest = 1e-4 / norm_bound**2  # adds 1e-4 to R^2, which is 2 log(1/delta) at least
    if spectrum.X is not None:
        # Eigenvalues of a kernel matrix are known up to rounding of the largest only.
        lowest = max(lowest, 1e-12 * largest)
    spread = np.geomspace(lowest, 10 * max(largest, lowest, 1 / norm_bound**2), GRID)
    return np.unique(np.concatenate([spread, norm_scales**-2.0]))


def squared_radii(
    spectrum: Spectrum, alphas: Array, *, squared_radius: float, norm_bound: float
) -> Array:
    """(A,) the radii R_alpha^2 of the ellipsoids; negative when the set is empty."""
    return squared_radius + alphas * norm_bound**2 - spectrum.misfit(alphas)


def free_squared_radius(spectrum: Spectrum, squared_radius: float) -> float:
    """R^2 minus the residual sum of squares: the limit alpha -> 0, which needs no norm bound."""
    seen = observed(spectrum)
    residual = spectrum.rest + float((spectrum.targets[~seen] ** 2).sum())
    return squared_radius - residual


def observed(spectrum: Spectrum) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(r,) which directions have been observed at all, up to rounding."""
    largest = float(spectrum.values.max(initial=0))
    seen: np.ndarray[tuple[int], np.dtype[np.bool_]] = spectrum.values > NEGLIGIBLE**2 * largest
    return seen


def smallest_squared_radius(
    spectrum: Spectrum, *, squared_radius: float, norm_bound: float
) -> float:
    """The minimum of R_alpha^2 over all alpha >= 0; the set is empty exactly if it is negative.

    R_alpha^2 is convex in alpha with derivative B^2 - ||theta_alpha||^2, so the minimum is where
    the ridge solution has norm B, or at 0 when all have less.
    """
    free = free_squared_radius(spectrum, squared_radius)
    if not np.isfinite(norm_bound) or not len(spectrum.values):
        return free
    energy = float((spectrum.values * spectrum.targets**2).sum())
    if energy == 0:
        return free
    # ||theta_alpha||^2 <= energy / alpha^2, so the root lies below sqrt(energy) / B.
    high = np.log(np.sqrt(energy) / norm_bound)
    low = high - 80.0
    for _ in range(3):
        nodes = np.linspace(low, high, 33)
        small = spectrum.squared_norms(np.exp(nodes)) <= norm_bound**2
        first = int(np.argmax(small)) if small.any() else 32
        low, high = nodes[max(first - 1, 0)], nodes[first]
    ends = np.exp(np.array([low, high]))
    return float(
        squared_radii(spectrum, ends, squared_radius=squared_radius, norm_bound=norm_bound).min()
    )
