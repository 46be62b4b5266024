"""Proposition 31: what its proof rests on."""

from __future__ import annotations

import numpy as np
import pytest

from metakel import posterior
from metakel.gp.averages import UCB_WIDTH, ucb_width

GRID = np.linspace(-1, 1, 161)[:, None]


def gram(X, Z):
    r = np.sqrt(5) * np.abs(X[:, 0][:, None] - Z[:, 0]) / 0.3
    return (1 + r + r * r / 3) * np.exp(-r)


class Matern:
    """The kernel as a formula."""

    def __call__(self, X, Z=None):
        X = np.asarray(X, float)
        return gram(X, X if Z is None else np.asarray(Z, float))

    def diag(self, X):
        return np.ones(len(X))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise_var", [1e-4, 0.1])
def test_the_error_of_a_mean_is_at_most_norm_times_deviation(seed, noise_var):
    rng = np.random.default_rng(seed)
    centers, weights = rng.uniform(-1, 1, (6, 1)), rng.normal(size=6)
    norm = np.sqrt(weights @ gram(centers, centers) @ weights)
    X = rng.uniform(-1, 1, (12, 1))
    found = posterior(Matern(), X, gram(X, centers) @ weights, noise_var=noise_var)
    error = np.abs(gram(GRID, centers) @ weights - found.mean(GRID))
    assert (error <= norm * found.std(GRID) + 1e-7).all()


@pytest.mark.parametrize("count", [20, 200, 1000])
def test_deviations_stay_up_where_no_run_comes_near(count):
    """At least one over the norm of what is 1 there and 0 at all that may be seen."""
    rng, z = np.random.default_rng(0), np.array([[0.2]])
    outside = GRID[np.abs(GRID[:, 0] - 0.2) >= 0.15]
    K = gram(outside, outside) + 1e-10 * np.eye(len(outside))
    least = 1 - gram(z, outside) @ np.linalg.solve(K, gram(outside, z))  # of the smallest such norm
    X = outside[rng.integers(len(outside), size=count)]
    found = posterior(Matern(), X, np.zeros(count), noise_var=1e-3)
    assert found.std(z)[0] >= np.sqrt(least[0, 0]) > 0.05
    nearby = posterior(Matern(), np.repeat(z, count, axis=0), np.zeros(count), noise_var=1e-3)
    assert nearby.std(z)[0] < 0.01  # negative control


def test_every_fourth_width_grows_without_bound():
    widths = np.array([ucb_width(t) for t in range(100_000)])
    assert (widths[:12] == UCB_WIDTH).all()
    wide = widths > UCB_WIDTH
    assert wide[12::4].all()
    assert wide.sum() == len(widths[12::4])
    assert (np.diff(widths[12::4]) > 0).all()
    assert widths[-4] == pytest.approx(2 * np.sqrt(np.log(99_996)))
