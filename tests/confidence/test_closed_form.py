"""Closed forms: their formulas, their order, and what leaves them unchanged."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose
from worlds import GRID, World, failures_allowed

from metakel.confidence import DMM, ClosedForm, ConfidenceSequence
from metakel.errors import InputError
from metakel.gp import posterior
from metakel.kernels import KernelSum

SIGMA, B, DELTA = 0.3, 2.0, 0.1


def world(seed=0):
    return World.draw(np.random.default_rng(seed), d=4, norm=B, noise_std=SIGMA, p=7)


def told(kernel, X, y, **options):
    settings = {"noise_std": SIGMA, "norm_bound": B, "delta": DELTA, **options}
    sequence = ConfidenceSequence(kernel, **settings)
    sequence.tell(X, y)
    return sequence


def data(w, t=12):
    X = w.rng.uniform(-1, 1, (t, 1))
    return X, w.observe(X)


@pytest.mark.parametrize("rho", [SIGMA**2, 1.0, 0.01])
@pytest.mark.parametrize("method", ["amm", "ay", "paper-corrected"])
def test_closed_forms_are_the_posterior_plus_nu_standard_deviations(method, rho):
    w = world()
    X, y = data(w)
    post = posterior(w.kernel, X, y, noise_var=rho)
    noise = SIGMA**2 / rho * 2 * (post.information_gain + log(1 / DELTA))
    nu = sqrt(B**2 + noise) if method == "amm" else B + sqrt(noise)
    sequence = told(w.kernel, X, y, method=ClosedForm(method, rho=rho))
    lower, upper = sequence.interval(GRID)
    assert_allclose(sequence.radius, nu)
    assert_allclose(upper, post.mean(GRID) + nu * post.std(GRID), atol=1e-9)
    assert_allclose(lower, post.mean(GRID) - nu * post.std(GRID), atol=1e-9)
    assert_allclose(sequence.mean(GRID), post.mean(GRID), atol=1e-9)


@pytest.mark.parametrize("t", [1, 5, 40])
@pytest.mark.parametrize("rho", [SIGMA**2, 0.5])
def test_dmm_lies_in_amm_and_amm_in_ay(t, rho):
    w = world(t)
    X, y = data(w, t)
    scale = SIGMA / sqrt(rho)
    dmm = told(w.kernel, X, y, method=DMM([scale]), full=w.kernel).interval(GRID)
    amm = told(w.kernel, X, y, method=ClosedForm("amm", rho=rho)).interval(GRID)
    ay = told(w.kernel, X, y, method=ClosedForm("ay", rho=rho)).interval(GRID)
    slack = 1e-9
    for inner, outer in ((dmm, amm), (amm, ay)):
        assert (inner[0] >= outer[0] - slack).all()
        assert (inner[1] <= outer[1] + slack).all()
    assert (amm[1] < ay[1]).all()


@pytest.mark.parametrize("method", ["amm", "ay", "paper-corrected", "dmm"])
def test_only_rescaling_kernel_regularizer_and_norm_together_changes_nothing(method):
    w, c = world(), 4.0
    X, y = data(w)
    form, rescaled = (
        DMM() if method == "dmm" else ClosedForm(method, rho=rho) for rho in (0.2, c * 0.2)
    )
    first = told(w.kernel, X, y, method=form, norm_of="kernel", full=w.kernel)
    scaled = w.kernel.scaled(c)
    kept = {"method": rescaled, "norm_of": "kernel", "full": scaled}
    second = told(scaled, X, y, norm_bound=B / sqrt(c), **kept)
    assert_allclose(first.interval(GRID), second.interval(GRID), atol=1e-10)
    # The certificate makes the same of a kernel whose weights are c and a bound of the truth.
    third = told(scaled, X, y, **{**kept, "norm_of": "truth"})
    assert_allclose(first.interval(GRID), third.interval(GRID), atol=1e-10)


@pytest.mark.parametrize("method", ["amm", "ay"])
def test_uniform_weights_beat_any_other_weights_of_the_same_kernels(method):
    w = world()
    X, y = data(w)
    eta = np.zeros(7)
    eta[w.kernel.active] = [0.02, 0.3, 0.5, 0.18]
    rho = 0.2
    for weights in (eta / eta[eta > 0].min(), eta * 3 / eta[eta > 0].min()):
        uneven = KernelSum(w.kernel.base, weights)
        wide = told(uneven, X, y, method=ClosedForm(method, rho=rho * uneven.min_weight)).interval(
            GRID
        )
        even = told(w.kernel, X, y, method=ClosedForm(method, rho=rho)).interval(GRID)
        assert (even[1] - even[0] <= wide[1] - wide[0] + 1e-9).all()


def test_amm_is_not_vacuous_and_covers_for_one_constant_feature():
    """All t <= 200 of 2000 runs in closed form; the library is checked on the first run."""
    rng = np.random.default_rng(0)
    runs, horizon = 2000, 200
    t = np.arange(1, horizon + 1)
    y = 1.0 + rng.standard_normal((runs, horizon))
    center = np.cumsum(y, axis=1) / (t + 1)
    half = np.sqrt((1 + np.log1p(t) + 2 * log(1 / DELTA)) / (t + 1))
    missed = (np.abs(center - 1.0) > half).any(axis=1)
    assert missed.sum() <= failures_allowed(runs, DELTA)
    assert missed.mean() >= 0.005
    w = World.draw(rng, d=1, norm=1.0)
    sequence = ConfidenceSequence(w.kernel, noise_std=1.0, norm_bound=1.0, method="amm")
    sequence.tell(np.zeros((horizon, 1)), y[0])
    lower, upper = sequence.interval(np.zeros((1, 1)))
    assert_allclose([lower[0], upper[0]], center[0, -1] + half[-1] * np.array([-1, 1]))


@pytest.mark.parametrize(
    ("method", "message"), [("paper", "beta_min"), ("amm", "norm_bound"), ("gp", "method")]
)
def test_missing_arguments_are_named(method, message):
    bound = None if method == "amm" else B
    with pytest.raises(InputError, match=message):
        ConfidenceSequence(world().kernel, noise_std=SIGMA, norm_bound=bound, method=method)


def test_literal_methods_refuse_noise_that_differs():
    w = world()
    sequence = ConfidenceSequence(w.kernel, noise_std=SIGMA, norm_bound=B, method="oracle")
    with pytest.raises(InputError, match="one noise level"):
        sequence.tell([0.0], [1.0], noise_std=2.0)
    assert sequence.t == 0
