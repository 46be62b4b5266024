from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from numpy.testing import assert_allclose

from metakel.errors import InputError
from metakel.kernels import legendre, legendre_2d, tensor_product
from metakel.testing import check_kernel, check_select


@pytest.mark.parametrize(("d0", "order"), [(1, 5), (2, 4), (3, 3), (6, 2), (4, 5)])
def test_there_are_as_many_products_as_monomials_up_to_the_order(d0, order):
    base = tensor_product(d0, order, scaling="sup")
    assert base.p == comb(d0 + order, order) - 1
    assert len(set(base.names)) == base.p
    assert tensor_product(d0, order, scaling="sup", include_constant=True).p == base.p + 1


def test_main_effects_only_are_order_times_inputs():
    base = tensor_product(4, 3, scaling="l2", max_interaction=1)
    assert base.p == 12
    assert not any(" " in name for name in base.names)


@pytest.mark.parametrize("basis", ["legendre", "cosine"])
def test_l2_scaling_is_orthonormal_on_the_domain(basis):
    nodes, weights = leggauss(20)
    nodes = nodes if basis == "legendre" else (nodes + 1) / 2
    points = np.array(list(product(nodes, repeat=3)))
    mass = np.array([np.prod(w) for w in product(weights / 2, repeat=3)])
    base = tensor_product(3, 4, basis=basis, scaling="l2", include_constant=True)
    F = base.features(points)
    assert_allclose(F.T @ (mass[:, None] * F), np.eye(base.p), atol=1e-10)


@pytest.mark.parametrize("basis", ["legendre", "cosine"])
@pytest.mark.parametrize("scaling", ["sup", "l2"])
def test_kernel_laws(basis, scaling, rng):
    X, Z = rng.uniform(0.01, 0.99, (12, 3)), rng.uniform(0.01, 0.99, (70, 3))
    base = tensor_product(3, 3, basis=basis, scaling=scaling, include_constant=True)
    check_kernel(base, X)
    check_kernel(base, Z)
    check_select(base, X, [5, 0, 11])
    check_select(base, X, [0])
    corner = base.diags(np.full((1, 3), 1.0))[:, 0]
    assert_allclose(corner, base.sup)


def test_one_input_is_the_legendre_dictionary(rng):
    x = rng.uniform(-1, 1, 50)
    ours, theirs = tensor_product(1, 6, scaling="l2"), legendre(6, scaling="l2")
    assert ours.names == theirs.names
    assert_allclose(ours.features(x), theirs.features(x))


def test_the_paper_s_2d_kernels_are_among_the_products(rng):
    points = rng.uniform(-1, 1, (50, 2))
    ours, theirs = tensor_product(2, 4, scaling="l2"), legendre_2d(4, scaling="l2")
    chosen = [ours.names.index(name) for name in theirs.names]
    assert_allclose(ours.select(chosen).features(points), theirs.features(points))


def test_cosines_are_sqrt_two_cos_pi_k_x(rng):
    x = rng.uniform(0, 1, 500)
    F = tensor_product(1, 30, basis="cosine", scaling="l2").features(x)
    assert_allclose(F, np.sqrt(2) * np.cos(np.pi * np.outer(x, np.arange(1, 31))), atol=1e-12)


def test_blocks_of_points_do_not_show(rng):
    points = rng.uniform(-1, 1, (20_000, 2))
    base = tensor_product(2, 8, scaling="l2")
    F = base.features(points)
    assert_allclose(F[-100:], base.features(points[-100:]), rtol=1e-9, atol=1e-11)
    assert_allclose(F[:100], base.features(points[:100]), rtol=1e-9, atol=1e-11)


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="order is 0"):
        tensor_product(2, 0, scaling="l2")
    with pytest.raises(InputError, match="max_interaction is 0"):
        tensor_product(2, 2, scaling="l2", max_interaction=0)
    with pytest.raises(InputError, match="'legendre' or 'cosine'"):
        tensor_product(2, 2, basis="sine", scaling="l2")
