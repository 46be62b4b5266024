from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from metakel.theory import full_kernel_norm
from reproduction.settings import LITERAL, RESOLVED, SIGNED, ExperimentSettings, Streams
from reproduction.synthetic import coefficients, domain, instance, norm_in, objective, theory_nu

SETTINGS = ExperimentSettings(runs=1, m=20, n=25, grid=51)
STREAMS = Streams(0, 0, 0)


def test_resolved_reading_finds_the_kernel_and_literal_does_not():
    found = {}
    for reading in (RESOLVED, LITERAL):
        drawn = instance(replace(SETTINGS, m=50, n=50, reading=reading), Streams(1, 0, 0))
        found[reading.name] = set(drawn.true.active) <= set(drawn.learn().active)
    assert found == {"resolved": True, "literal": False}


def test_minimising_is_maximising_the_negative():
    drawn = instance(SETTINGS, STREAMS)
    Z = domain(SETTINGS)
    least = objective(SETTINGS, drawn.true, Z, STREAMS)
    most = objective(
        replace(SETTINGS, reading=replace(RESOLVED, goal="maximise")), drawn.true, Z, STREAMS
    )
    assert_array_equal(least, -most)


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
