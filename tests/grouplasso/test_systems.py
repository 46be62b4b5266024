"""The systems of the active columns: both ways to solve them say the same."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.grouplasso.systems import SWEEP_BELOW, SWEEP_STACK, Stacked, Swept, systems_of


def grams(m, k, seed=0):
    F = np.random.default_rng(seed).standard_normal((m, k, k + 2))
    return F @ F.transpose(0, 2, 1)


@pytest.mark.parametrize("way", [Stacked, Swept])
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


def test_tiny_and_many_are_swept():
    assert isinstance(systems_of(grams(SWEEP_STACK, SWEEP_BELOW - 1)), Swept)
    assert isinstance(systems_of(grams(SWEEP_STACK - 1, SWEEP_BELOW - 1)), Stacked)
    assert isinstance(systems_of(grams(SWEEP_STACK, SWEEP_BELOW)), Stacked)
    assert isinstance(systems_of(np.empty((SWEEP_STACK, 0, 0))), Stacked)
