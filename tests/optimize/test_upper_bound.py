"""What is maximised: the upper confidence bound, and what pending points do to it."""

from __future__ import annotations

import numpy as np
import pytest
from games import BOUND, NOISE, line_problem, square_problem
from numpy.testing import assert_allclose

from metakel.confidence import ClosedForm, ConfidenceSequence
from metakel.gp import posterior
from metakel.kernels import KernelSum, squared_exponential
from metakel.optimize.upper_bound import UpperBound as Acquisition

STATIONARY = KernelSum.uniform(squared_exponential([0.5], d0=2), weight=1.0)


def told(kernel, t, rng, **options):
    settings = {"noise_std": NOISE, "norm_bound": BOUND, "norm_of": "kernel", **options}
    sequence = ConfidenceSequence(kernel, **settings)
    X = rng.uniform(-1, 1, (t, 2))
    sequence.tell(X, np.sin(3 * X[:, 0]) + NOISE * rng.standard_normal(t))
    return sequence


def acquisition(sequence, pending=None):
    if pending is None:
        return Acquisition(sequence.current, sequence.current.spectrum)
    return Acquisition(sequence.current, sequence.spectrum(pending))


@pytest.mark.parametrize("kernel", [square_problem().kernel, STATIONARY], ids=["features", "gram"])
@pytest.mark.parametrize("t", [0, 3, 30])
@pytest.mark.parametrize("method", ["dmm", "amm"])
def test_without_pending_points_it_is_the_upper_confidence_bound(kernel, t, method, rng):
    sequence = told(kernel, t, rng, method=method)
    Z = rng.uniform(-1, 1, (40, 2))
    ours = acquisition(sequence)
    assert_allclose(ours.upper(Z), sequence.current.upper(Z), rtol=1e-9)
    smooth, _ = ours.upper_and_gradient(Z)
    assert_allclose(smooth, sequence.current.interval(Z)[1], rtol=1e-3)


@pytest.mark.parametrize(
    ("kernel", "bound"),
    [(square_problem().kernel, BOUND), (square_problem().kernel, None), (STATIONARY, BOUND)],
    ids=["features", "features-any-norm", "gram"],
)
@pytest.mark.parametrize("t", [0, 3, 30])
@pytest.mark.parametrize("count", [0, 4])
def test_the_gradient_is_the_derivative(kernel, bound, t, count, rng):
    sequence = told(kernel, t, rng, norm_bound=bound)
    ours = acquisition(sequence, rng.uniform(-1, 1, (count, 2)) if count else None)
    Z = rng.uniform(-0.9, 0.9, (30, 2))
    _, slopes = ours.upper_and_gradient(Z)
    step = 1e-5
    numeric = np.stack(
        [
            (ours.upper_and_gradient(Z + h)[0] - ours.upper_and_gradient(Z - h)[0]) / (2 * step)
            for h in step * np.eye(2)
        ],
        axis=1,
    )
    off = np.abs(numeric - slopes).max(axis=1) / (1 + np.abs(slopes).max())
    # Alpha is best up to a parabola, and may jump from one node to the next.
    assert np.median(off) < 3e-3
    assert off.max() < 0.05


@pytest.mark.parametrize("kernel", [square_problem().kernel, STATIONARY], ids=["features", "gram"])
def test_pending_points_change_no_mean_and_shrink_the_width_as_observations_would(kernel, rng):
    sequence = told(kernel, 12, rng, method=ClosedForm("amm", rho=NOISE**2))
    pending, Z = rng.uniform(-1, 1, (5, 2)), rng.uniform(-1, 1, (40, 2))
    X, y = sequence.told.batches[0].X, sequence.told.batches[0].y
    before = posterior(kernel, X, y, noise_var=NOISE**2)
    hallucinated = posterior(
        kernel,
        np.concatenate([X, pending]),
        np.concatenate([y, before.mean(pending)]),
        noise_var=NOISE**2,
    )
    expected = before.mean(Z) + sequence.radius * hallucinated.std(Z)
    assert_allclose(hallucinated.mean(Z), before.mean(Z), atol=1e-8)
    assert_allclose(acquisition(sequence, pending).upper(Z), expected, rtol=1e-6)


def test_pending_points_shrink_the_default_bound_everywhere_and_most_where_they_are(rng):
    sequence = told(square_problem().kernel, 6, rng)
    pending, Z = rng.uniform(-1, 1, (3, 2)), rng.uniform(-1, 1, (200, 2))
    drop = acquisition(sequence).upper(Z) - acquisition(sequence, pending).upper(Z)
    there = acquisition(sequence).upper(pending) - acquisition(sequence, pending).upper(pending)
    assert (drop >= -1e-9).all()
    assert there.min() > np.median(drop)


def test_without_a_norm_bound_the_unobserved_attracts_first(rng):
    kernel = line_problem().kernel
    sequence = ConfidenceSequence(kernel, noise_std=NOISE, norm_bound=None)
    sequence.tell([[0.5]], [1.0])
    Z = np.linspace(-1, 1, 41)[:, None]
    upper = acquisition(sequence).upper(Z)
    assert np.isfinite(upper).all()
    seen = kernel.features([[0.5]])[0]
    rows = kernel.features(Z)
    hidden = rows - np.outer(rows @ seen, seen) / (seen @ seen)
    assert upper.argmax() == (hidden**2).sum(axis=1).argmax()
