"""Block descent: the secular equation and sweeps of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from reference import draw
from scipy.optimize import brentq

from metakel.grouplasso import lambda_max, solve
from metakel.grouplasso.spd import block_descent, secular_root


def left_hand_side(x, c, gamma):
    return float((c**2 / (1 + gamma * x) ** 2).sum())


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 4)),
    # At exactly 1 rounding decides on which side of the root 0 lies.
    share=st.floats(1e-3, 1.5).filter(lambda share: abs(share - 1) > 1e-12),
    spread=st.floats(0, 4),
)
def test_the_root_solves_the_secular_equation(seed, shape, share, spread):
    rng = np.random.default_rng(seed)
    c = rng.standard_normal(shape)
    gamma = 10 ** rng.uniform(-spread, spread, shape)
    lam = share * np.linalg.norm(c)
    x = secular_root(c, gamma, lam)
    if share >= 1:
        assert x == 0
        assert secular_root(c, gamma, lam, x=1.0) == 0
    else:
        assert_allclose(left_hand_side(x, c, gamma), lam**2, rtol=1e-5)
        top = 1.0
        while left_hand_side(top, c, gamma) > lam**2:
            top *= 10
        root = brentq(lambda t: left_hand_side(t, c, gamma) - lam**2, 0, top, xtol=1e-300)
        assert x <= root * (1 + 1e-9)  # approached from the left
        for start in (0.1 * root, 3 * root):
            again = secular_root(c, gamma, lam, x=start)
            assert_allclose(left_hand_side(again, c, gamma), lam**2, rtol=1e-5)


def test_directions_without_curvature():
    c, gamma = np.array([[2.0, 0.0]]), np.array([[1.0, 0.0]])
    assert_allclose(secular_root(c, gamma, 1.0), 1.0, rtol=1e-5)
    # Nothing can be shrunk: no root, and no endless loop.
    assert secular_root(np.ones((1, 1)), np.zeros((1, 1)), 0.5) == 0.0


def arrays_of(data):
    grams = np.stack([2 / data.N * F.T @ F for F in data.Phi])
    h = data.z(data.y)
    starts = np.array([0, *[g.stop for g in data.groups]])
    return grams, h, starts


@pytest.mark.parametrize("dims", [(1,) * 6, (1, 2, 3, 1)])
def test_many_sweeps_reach_the_minimum_and_two_come_nearer_than_one(dims):
    data = draw(7, (14,) * 8, dims)
    lam = np.full(len(dims), 0.3 * lambda_max(data.problem()))
    eta = solve(data.problem(), lam, tol=1e-13).eta
    found = [block_descent(*arrays_of(data), lam, sweeps=k) for k in (1, 2, 400)]
    far = [np.linalg.norm(lam * x - eta) for x in found]
    assert far[1] < far[0]
    # Steps at a time towards moving roots arrive as exact roots do.
    assert_allclose(lam * found[2], eta, rtol=1e-5, atol=1e-6 * eta.max())
