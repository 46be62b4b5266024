"""Functions in the space of a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import metakel as mk
from gpucb import gpucb
from metakel._files import decode, encode
from metakel.errors import ShapeError
from metakel.kernels.sum import KernelFunction

KERNEL = mk.KernelSum.uniform(mk.kernels.tensor_product(2, 3, scaling="sup"), weight=0.5)
RNG = np.random.default_rng(0)
F = KernelFunction(KERNEL, RNG.normal(size=KERNEL.dim))
Z = RNG.uniform(-0.9, 0.9, (7, 2))


def test_it_is_the_combination_of_features_and_its_norm_that_of_the_coefficients():
    assert_allclose(F(Z), KERNEL.features(Z) @ F.coefficients)
    assert F.norm == pytest.approx(np.linalg.norm(F.coefficients))
    assert_array_equal((-F)(Z), -F(Z))


def test_its_gradient_agrees_with_differences():
    values, slopes = F.value_and_gradient(Z)
    assert_allclose(values, F(Z))
    for i, step in enumerate(1e-6 * np.eye(2)):
        assert_allclose(slopes[:, i], (F(Z + step) - F(Z - step)) / 2e-6, rtol=1e-6, atol=1e-8)


def test_it_is_stored_exactly():
    again = decode(KernelFunction, encode(F), "F")
    assert_array_equal(again(Z), F(Z))


def test_it_has_one_coefficient_for_every_feature():
    with pytest.raises(ShapeError, match="one for every feature"):
        KernelFunction(KERNEL, np.zeros(3))


@pytest.mark.parametrize("storable", [True, False])
def test_around_it_a_search_of_a_box_asks_where_the_upper_bound_is_largest(storable):
    center = F if storable else lambda X: F(X)
    game = gpucb(
        KERNEL,
        mk.box([(-1, 1)] * 2),
        rng=np.random.default_rng(0),
        noise_std=0.1,
        norm_bound=1.0,
        center=center,
        slack=0.01,
    )
    game.tell(Z, F(Z))
    fine = np.random.default_rng(1).uniform(-1, 1, (4000, 2))
    upper = game.confidence(fine)[1]
    reached = game.confidence(game.ask())[1][0]
    assert reached >= upper.max() - 1e-3
    assert_allclose(game.predict(Z)[0], F(Z), atol=1e-9)  # all values are as expected
    if storable:
        again = mk.optimize.Optimizer.from_dict(game.to_dict())
        assert_array_equal(again.confidence(Z), game.confidence(Z))
    else:
        with pytest.raises(mk.InputError, match="cannot be stored"):
            game.to_dict()
