"""No norm bound: any size of f, in any units."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from worlds import GRID, World, covered

from metakel.confidence import DMM, ConfidenceSequence
from metakel.kernels import KernelSum, legendre


@pytest.mark.parametrize("active", [None, [1, 3]], ids=["all", "some"])
@pytest.mark.parametrize("unit", [1e-6, 1e6, 1e30])
def test_values_and_noise_in_other_units_give_the_same_in_these(unit, active):
    kernel = KernelSum.uniform(legendre(5, scaling="l2"), active=active, weight=1.0)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (12, 1))
    y = kernel.features(X).sum(axis=1) + 0.05 * rng.normal(size=12)
    one, other = (
        ConfidenceSequence(kernel, noise_std=0.05 * u, norm_bound=None, points=GRID)
        for u in (1.0, unit)
    )
    for i in range(12):
        one.tell(X[i], y[i])
        other.tell(X[i], unit * y[i])
    assert_allclose(other.radius, one.radius, rtol=1e-6)
    assert_allclose(np.divide(other.interval(), unit), one.interval(), rtol=1e-6)
    assert_allclose(other.mean(GRID) / unit, one.mean(GRID), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e6])
def test_from_a_thousandth_to_a_million_times_the_noise_it_is_nearly_as_sharp_as_a_bound(size):
    """The bound of the rival is the norm itself, and dropped from its set."""
    ratios = []
    for seed in range(5):
        world = World.draw(np.random.default_rng(seed), d=3, norm=size)
        X = world.rng.uniform(-1, 1, (40, 1))
        y = world.observe(X)
        free = ConfidenceSequence(world.kernel, noise_std=1.0, norm_bound=None)
        sharp = ConfidenceSequence(world.kernel, noise_std=1.0, norm_bound=None, method=DMM([size]))
        for sequence in (free, sharp):
            sequence.tell(X, y)
            assert covered(sequence, world.f(GRID), GRID)
        ratios.append(np.ptp(free.interval(GRID), axis=0) / np.ptp(sharp.interval(GRID), axis=0))
    assert np.mean(ratios) < 1.5
