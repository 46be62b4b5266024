"""Polynomials, cosines and their products."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from numpy.polynomial import legendre as reference
from numpy.polynomial.legendre import leggauss, legvander
from numpy.testing import assert_allclose

from metakel.errors import InputError, ShapeError
from metakel.kernels import legendre, legendre_2d, tensor_product
from metakel.kernels.products import (
    FEW_POINTS,
    cosine_values,
    legendre_derivatives,
    legendre_values,
)
from metakel.testing import check_kernel, check_select

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


LINE = np.random.default_rng(0).uniform(-0.99, 0.99, (30, 1))
MANY = np.random.default_rng(1).uniform(-0.99, 0.99, (80, 1))
PLANE = np.random.default_rng(2).uniform(-0.99, 0.99, (40, 2))


def test_l2_scaling_is_orthonormal_under_the_uniform_distribution():
    nodes, weights = leggauss(60)
    F = legendre(50, scaling="l2").features(nodes)
    assert_allclose(F.T @ (weights[:, None] / 2 * F), np.eye(50), atol=1e-11)


@pytest.mark.parametrize(("scaling", "bound"), [("sup", 1), ("l2", 2 * np.arange(1, 31) + 1)])
def test_sup_is_attained_at_the_end_and_nowhere_exceeded(scaling, bound):
    base = legendre(30, scaling=scaling)
    values = base.diags(np.linspace(-1, 1, 4001))
    assert_allclose(base.sup, np.broadcast_to(bound, 30))
    assert_allclose(values.max(axis=1), base.sup)
    assert_allclose(values[:, -1], base.sup)


def test_degrees_are_chosen_in_their_order(rng):
    x = rng.uniform(-1, 1, 100)
    base = legendre(3, scaling="sup", degrees=[7, 0, 2])
    assert base.names == ("P7", "P0", "P2")
    assert_allclose(base.features(x), legvander(x, 7)[:, [7, 0, 2]], atol=1e-13)


def test_the_paper_s_2d_kernels_are_products_of_total_degree_p():
    nodes, weights = leggauss(12)
    points = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel() / 4
    base = legendre_2d(6, scaling="l2")
    j = np.arange(7)
    assert base.p == 7
    assert_allclose(base.sup, (2 * j + 1) * (2 * (6 - j) + 1))
    F = base.features(points)
    assert_allclose(F.T @ (mass[:, None] * F), np.eye(7), atol=1e-12)
    first, second = legvander(points[:, 0], 6), legvander(points[:, 1], 6)
    assert_allclose(
        legendre_2d(6, scaling="sup").features(points), first * second[:, ::-1], atol=1e-12
    )


@pytest.mark.parametrize("scaling", ["sup", "l2"])
def test_laws_of_polynomials(scaling):
    base = legendre(9, scaling=scaling)
    check_kernel(base, LINE)
    check_kernel(base, MANY)
    check_select(base, LINE, [8, 0, 3])
    plane = legendre_2d(4, scaling=scaling)
    check_kernel(plane, PLANE)
    check_select(plane, PLANE, [4, 1])


def test_bad_arguments_of_polynomials_are_refused():
    with pytest.raises(TypeError, match="scaling"):
        legendre(3)
    with pytest.raises(InputError, match=r"'l3'.*'sup' or 'l2'"):
        legendre(3, scaling="l3")
    with pytest.raises(InputError, match="p is 0"):
        legendre(0, scaling="sup")
    with pytest.raises(InputError, match="p = 2 distinct"):
        legendre(2, scaling="sup", degrees=[3, 3])
    with pytest.raises(ShapeError, match=r"expected \(n, 1\)"):
        legendre(3, scaling="sup").features(np.zeros((4, 2)))
    with pytest.raises(ShapeError, match=r"expected \(n, 2\)"):
        legendre_2d(3, scaling="sup").features(np.zeros(4))


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
