from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.kernels import legendre
from metakel.theory import full_kernel_norm
from reproduction.settings import LITERAL, RESOLVED, SIGNED, ExperimentSettings, Streams
from reproduction.synthetic import (
    coefficients,
    domain,
    instance,
    norm_in,
    objective,
    sample_tasks,
    theory_nu,
    true_kernel,
)

BASE = legendre(20, scaling="l2")


@pytest.fixture
def kernel():
    return true_kernel(BASE, sparsity=5, rng=np.random.default_rng(3))


@pytest.mark.parametrize("signs", ["positive", "both"])
def test_tasks_have_the_norm_and_sign_asked_for(kernel, signs):
    rng = np.random.default_rng(1)
    betas = [coefficients(kernel, norm=10, rng=rng, signs=signs) for _ in range(30)]
    assert_allclose([np.linalg.norm(beta) for beta in betas], 10)
    assert any((beta < 0).any() for beta in betas) == (signs == "both")
    assert {np.count_nonzero(beta) for beta in betas} == {1, 2, 3, 4, 5}


def test_observations_are_the_function_plus_noise(kernel):
    rng = np.random.default_rng(2)
    history, beta = sample_tasks(kernel, m=20, n=30, norm=10, noise_std=0.5, rng=rng)
    noise = [t.y - kernel.features(t.X) @ b for t, b in zip(history, beta, strict=True)]
    assert np.std(noise) == pytest.approx(0.5, rel=0.15)  # 600 draws: 5 standard errors


SETTINGS = ExperimentSettings(runs=1, m=20, n=25, grid=51)
STREAMS = Streams(0, 0, 0)


def test_resolved_reading_finds_the_kernel_and_literal_does_not():
    found = {}
    for reading in (RESOLVED, LITERAL):
        drawn = instance(replace(SETTINGS, m=50, n=50, reading=reading), Streams(1, 0, 0))
        found[reading.name] = set(drawn.true.active) <= set(drawn.learn().active)
    assert found == {"resolved": True, "literal": False}


def test_maximum_is_at_one_in_the_literal_reading_only():
    Z = domain(SETTINGS)
    at_one = {}
    for reading in (LITERAL, SIGNED):
        settings = replace(SETTINGS, reading=reading)
        true = instance(settings, STREAMS).true
        values = [objective(settings, true, Z, Streams(0, 0, run)) for run in range(20)]
        at_one[reading.name] = np.mean([f[-1] >= f.max() - 1e-9 for f in values])
    assert at_one["literal"] == 1
    assert at_one["signed"] < 0.8


def test_norms_add_up_in_the_space_of_another_kernel():
    drawn = instance(SETTINGS, STREAMS)
    beta = coefficients(drawn.true, norm=10, rng=np.random.default_rng(0), everything=True)
    assert norm_in(drawn.true, drawn.true, beta) == pytest.approx(10)
    assert norm_in(drawn.true.scaled(4), drawn.true, beta) == pytest.approx(5)
    largest = full_kernel_norm(norm_bound=10, p=20)
    assert norm_in(drawn.full, drawn.true, beta) <= largest
    missing = replace(drawn.true, eta=np.zeros(20))
    assert norm_in(missing, drawn.true, beta) == np.inf


def test_nu_is_about_b_for_small_noise():
    drawn = instance(SETTINGS, STREAMS)
    nu = theory_nu(SETTINGS, drawn.true)
    assert_allclose(nu, 10.04, atol=0.02)
    assert (np.diff(nu) > 0).all()
