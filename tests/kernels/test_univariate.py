from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import legendre as reference
from numpy.testing import assert_allclose

from metakel.kernels.products import (
    FEW_POINTS,
    cosine_derivatives,
    cosine_values,
    legendre_derivatives,
    legendre_values,
)

SIZES = [1, FEW_POINTS, FEW_POINTS + 1, 300]  # both ways of computing, and their border


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("top", [0, 1, 2, 20, 80])
def test_legendre_values_are_those_of_numpy(n, top, rng):
    x = rng.uniform(-1, 1, n)
    assert_allclose(legendre_values(x, top), reference.legvander(x, top).T, atol=1e-12)


@pytest.mark.parametrize("top", [0, 1, 2, 15])
def test_legendre_derivatives_are_those_of_numpy(top, rng):
    x = np.append(rng.uniform(-1, 1, 100), [-1.0, 1.0])
    slopes = legendre_derivatives(legendre_values(x, top))
    for k in range(top + 1):
        exact = reference.legval(x, reference.legder(np.eye(top + 1)[k]))
        assert_allclose(slopes[k], exact, atol=1e-11)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("top", [0, 1, 2, 100])
def test_cosine_values_are_cosines(n, top, rng):
    x = rng.uniform(0, 1, n)
    x[:5] = np.array([0, 1, 0.5, 1e-7, 1 - 1e-7])[:n]
    exact = np.cos(np.pi * np.multiply.outer(np.arange(top + 1), x))
    assert_allclose(cosine_values(x, top), exact, atol=2e-13)


def test_cosines_keep_their_period_outside_of_the_unit_interval(rng):
    x = rng.uniform(-7, 7, 400)
    exact = np.cos(np.pi * np.multiply.outer(np.arange(11), x))
    assert_allclose(cosine_values(x, 10), exact, atol=1e-12)


def test_cosine_derivatives_match_finite_differences(rng):
    x, h = rng.uniform(0, 1, 20), 1e-6
    difference = (cosine_values(x + h, 8) - cosine_values(x - h, 8)) / (2 * h)
    assert_allclose(cosine_derivatives(x, 8), difference, atol=1e-6)
