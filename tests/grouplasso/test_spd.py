"""Stacks of positive definite matrices, in each of the three ways."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.errors import InputError
from metakel.grouplasso import spd

# small go through NumPy, large through LAPACK one by one
SHAPES = [(64, 1), (64, 7), (63, 7), (100, 8), (5, 23), (3, 24), (2, 60), (1, 1)]


def stack(m, k, seed=0):
    F = np.random.default_rng(seed).standard_normal((m, k, k + 3))
    return np.eye(k) + F @ F.transpose(0, 2, 1)


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_the_inverse_is_an_inverse(m, k):
    A = stack(m, k)
    B = spd.inverse(A.copy())
    assert_allclose(B @ A, np.broadcast_to(np.eye(k), A.shape), atol=1e-9)
    assert_allclose(B, B.transpose(0, 2, 1), atol=1e-13)
    assert B.flags.c_contiguous


def test_no_matrix_at_all():
    assert spd.inverse(np.empty((4, 0, 0))).shape == (4, 0, 0)


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_a_factor_solves_whitens_and_inverts(m, k):
    A = stack(m, k)
    rng = np.random.default_rng(2)
    factor = spd.Cholesky(A.copy())
    b = rng.standard_normal((m, k))
    assert_allclose(np.einsum("sab,sb->sa", A, factor.solve(b)), b, atol=1e-10)
    B = rng.standard_normal((m, 4, k))
    white = B.copy()
    factor.whiten(white)
    # Whitening turns the inner product of A^-1 into the plain one.
    expected = B @ np.linalg.solve(A, B.transpose(0, 2, 1))
    assert_allclose(white @ white.transpose(0, 2, 1), expected, atol=1e-9)
    assert_allclose(factor.invert() @ A, np.broadcast_to(np.eye(k), A.shape), atol=1e-9)


def test_singular_up_to_rounding_is_factorised():
    u = np.random.default_rng(3).standard_normal((40, 2))
    A = 1e22 * (u @ u.T) + np.eye(40)  # the identity is lost
    A = 0.5 * (A + A.T)
    assert np.linalg.eigvalsh(A)[0] < 0
    stacked = np.stack([np.eye(40), A])
    factor = spd.Cholesky(stacked.copy())
    b = stacked @ np.ones(40)
    found = np.einsum("sab,sb->sa", stacked, factor.solve(b))
    size = np.abs(b).max(axis=1, keepdims=True)
    assert_allclose(found / size, b / size, atol=1e-6)


def test_indefinite_beyond_rounding_is_refused():
    A = np.eye(3)
    A[0, 1] = A[1, 0] = 1.1
    with pytest.raises(InputError, match="negative eigenvalues"):
        spd.Cholesky(A[None].copy())


# -- the systems of the solver --------------------------------------------------------------------


def grams(m, k, seed=0):
    F = np.random.default_rng(seed).standard_normal((m, k, k + 2))
    return F @ F.transpose(0, 2, 1)


@pytest.mark.parametrize("way", [spd.Stacked, spd.Swept])
@pytest.mark.parametrize("stiff", [False, True])
@pytest.mark.parametrize("k", [1, 4, 7, 30])
def test_what_is_solved_solves_the_system(way, stiff, k):
    m, rng = 70, np.random.default_rng(1)
    G, root, b = grams(m, k), rng.uniform(0.1, 2, k), rng.standard_normal((m, k))
    systems = way(G.copy())
    T = np.eye(k) + root[:, None] * G * root
    for scale in (1.0, 3.0):  # asked again at another point
        w = systems.solve(root, scale * b, stiff=stiff)
        assert_allclose(np.einsum("sab,sb->sa", T, w), scale * b, atol=1e-9)
    inverse = np.linalg.inv(T)
    v, C = rng.standard_normal((m, k)), rng.standard_normal((m, k, 3))
    assert_allclose(systems.form(v), np.einsum("sa,sab,sb->ab", v, inverse, v), atol=1e-9)
    assert_allclose(systems.apply(C), inverse @ C, atol=1e-9)
    assert_allclose(systems.apply(C), np.linalg.solve(T, C), atol=1e-9)
