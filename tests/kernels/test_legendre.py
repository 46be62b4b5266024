from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss, legvander
from numpy.testing import assert_allclose

from metakel.errors import InputError, ShapeError
from metakel.kernels import legendre, legendre_2d
from metakel.testing import check_kernel, check_select

X = np.random.default_rng(0).uniform(-0.99, 0.99, (30, 1))
Z = np.random.default_rng(1).uniform(-0.99, 0.99, (80, 1))
PLANE = np.random.default_rng(2).uniform(-0.99, 0.99, (40, 2))


@pytest.mark.parametrize("n", [5, 5000])
def test_sup_scaling_is_the_legendre_polynomial_itself(n, rng):
    x = rng.uniform(-1, 1, n)
    assert_allclose(
        legendre(20, scaling="sup").features(x), legvander(x, 20)[:, 1:], rtol=1e-11, atol=1e-12
    )


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
def test_kernel_laws(scaling):
    base = legendre(9, scaling=scaling)
    check_kernel(base, X)
    check_kernel(base, Z)
    check_select(base, X, [8, 0, 3])
    plane = legendre_2d(4, scaling=scaling)
    check_kernel(plane, PLANE)
    check_select(plane, PLANE, [4, 1])


def test_bad_arguments_are_refused():
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
