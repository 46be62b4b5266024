"""One confidence set: its ways to answer agree, and its bounds are the extremes of f over it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.confidence import ConfidenceSequence
from metakel.confidence.methods import scales_below
from metakel.confidence.set import (
    Batch,
    dual_set,
    free_squared_radius,
    no_observations,
    smallest_squared_radius,
    squared_radii,
)
from metakel.kernels import KernelSum, legendre, squared_exponential

KERNELS = {
    "features": KernelSum.uniform(legendre(6, scaling="sup"), weight=1.0),
    "gram": KernelSum.uniform(squared_exponential([0.5, 1.5], d0=1), weight=1.0),
    "both": KernelSum.uniform(
        legendre(3, scaling="sup") + squared_exponential([0.5], d0=1), weight=1.0
    ),
}
Z = np.linspace(-0.99, 0.99, 40)[:, None]


def told(name, t, **settings):
    options = {"noise_std": 0.2, "norm_bound": 2.0, **settings}
    sequence = ConfidenceSequence(KERNELS[name], **options)
    rng = np.random.default_rng(t)
    X = rng.uniform(-1, 1, (t, 1))
    sequence.tell(X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=t))
    return sequence


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("t", [0, 1, 5, 40])
def test_all_ways_to_ask_agree(name, t):
    current = told(name, t).current
    coarse, fine = current.interval(Z, refine=False), current.interval(Z)
    assert_allclose(current.lower(Z), coarse[0])
    assert_allclose(current.upper(Z), coarse[1])
    width = coarse[1] - coarse[0]
    assert (fine[0] >= coarse[0] - 1e-12).all()
    assert (fine[1] <= coarse[1] + 1e-12).all()
    assert (fine[1] - fine[0] >= 0.99 * width).all()


def test_blocks_do_not_show():
    current = told("features", 20).current
    many = np.linspace(-1, 1, 1500)[:, None]
    one_by_one = np.array([current.upper(z[None])[0] for z in many[::100]])
    assert_allclose(current.upper(many)[::100], one_by_one, rtol=1e-12)


def test_feature_and_gram_form_give_the_same_set():
    """from_gram hides the features of the same kernel."""
    from metakel.kernels import from_gram

    features = KERNELS["features"]
    hidden = KernelSum.uniform(from_gram(lambda X, Z: features(X, Z), name="k", d0=1), weight=1.0)
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (15, 1))
    y = features.features(X) @ np.full(6, 0.4) + 0.2 * rng.normal(size=15)
    answers = []
    for kernel in (features, hidden):
        sequence = ConfidenceSequence(kernel, noise_std=0.2, norm_bound=2.0, full=kernel)
        sequence.tell(X, y)
        answers.append(np.array(sequence.interval(Z)))
    assert_allclose(answers[0], answers[1], atol=1e-5)


KERNEL = KernelSum.uniform(legendre(5, scaling="sup"), weight=1.0)
AT = np.linspace(-1, 1, 6)[:, None]


def observe(t, norm, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (t, 1))
    theta = rng.normal(size=5)
    theta *= norm / np.linalg.norm(theta)
    y = KERNEL.features(X) @ theta + noise * rng.normal(size=t)
    batch = Batch(X, y, np.full(t, noise))
    return no_observations(KERNEL).append(batch).spectrum(), KERNEL.features(X) / noise, y / noise


@pytest.mark.parametrize("t", [2, 4, 12, 60])
@pytest.mark.parametrize("bound", [1.0, 3.0])
def test_bounds_are_the_extremes_of_f_over_the_set(t, bound):
    """Strong duality: the upper bound equals the maximum that a conic solver finds."""
    cvxpy = pytest.importorskip("cvxpy")
    spectrum, F, y = observe(t, 1.0)
    radius = float(spectrum.rest) + t / 2 + 5.0
    found = dual_set(
        spectrum, squared_radius=radius, norm_bound=bound, norm_scales=scales_below(bound)
    )
    lower, upper = found.interval(AT)
    theta = cvxpy.Variable(5)
    constraints = [cvxpy.norm(y - F @ theta) <= np.sqrt(radius), cvxpy.norm(theta) <= bound]
    for i, phi in enumerate(KERNEL.features(AT)):
        top = cvxpy.Problem(cvxpy.Maximize(phi @ theta), constraints).solve(solver="CLARABEL")
        bottom = cvxpy.Problem(cvxpy.Minimize(phi @ theta), constraints).solve(solver="CLARABEL")
        assert_allclose(upper[i], top, rtol=1e-4, atol=1e-4 * bound)
        assert_allclose(lower[i], bottom, rtol=1e-4, atol=1e-4 * bound)


@pytest.mark.parametrize("t", [1, 4, 30])
@pytest.mark.parametrize("bound", [0.2, 2.0])
def test_smallest_radius_is_the_minimum_over_alpha(t, bound):
    spectrum, _, _ = observe(t, 1.0)
    dense = squared_radii(
        spectrum, np.geomspace(1e-9, 1e9, 40_000), squared_radius=9.0, norm_bound=bound
    ).min()
    found = smallest_squared_radius(spectrum, squared_radius=9.0, norm_bound=bound)
    assert_allclose(found, dense, rtol=1e-5, atol=1e-6)


def test_smallest_radius_is_negative_exactly_if_the_set_is_empty():
    cvxpy = pytest.importorskip("cvxpy")
    spectrum, F, y = observe(8, 2.0)
    theta = cvxpy.Variable(5)
    for bound in (0.1, 1.0, 3.0):
        best = cvxpy.Problem(
            cvxpy.Minimize(cvxpy.sum_squares(y - F @ theta)), [cvxpy.norm(theta) <= bound]
        ).solve(solver="CLARABEL")
        for radius in (0.99 * best, 1.01 * best):
            smallest = smallest_squared_radius(spectrum, squared_radius=radius, norm_bound=bound)
            assert (smallest < 0) == (radius < best)


def test_without_a_norm_bound_only_the_residuals_count():
    spectrum, F, y = observe(20, 1.0)
    residual = y - F @ np.linalg.lstsq(F, y)[0]
    assert_allclose(free_squared_radius(spectrum, 50.0), 50.0 - residual @ residual)
