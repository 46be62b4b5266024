"""One confidence set: consistency of its ways to answer, gradients, limits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.confidence import ConfidenceSequence
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
