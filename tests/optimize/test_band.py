"""A lazy band: the answers and alarms of a sequence that works out its set at every value."""

from __future__ import annotations

import numpy as np
import pytest
from games import BOUND, NOISE, line_problem
from numpy.testing import assert_allclose

from metakel.confidence import ConfidenceSequence
from metakel.optimize.band import Band

PROBLEM = line_problem()


def centre(X):
    return 3 * np.sin(4 * X[:, 0])


def sequence() -> ConfidenceSequence:
    return ConfidenceSequence(
        PROBLEM.kernel,
        noise_std=NOISE,
        norm_bound=BOUND,
        delta=0.2,
        norm_of="kernel",
        full=PROBLEM.kernel,
    )


def values(n: int, seed: int, *, drift: float = 0.0, noise: float = NOISE):
    """A function in the band, to which something is added that grows with time."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 1))
    added = drift * np.arange(n) + noise * rng.standard_normal(n)
    return X, centre(X) + PROBLEM.f(X) + added


def observe(plain: ConfidenceSequence, x, y) -> None:
    plain.tell(x[None], [y - centre(x[None])[0]])


@pytest.mark.parametrize("asked", [(), (1, 2, 3, 7, 30), (16, 17, 32, 33, 63), range(70)])
def test_its_bounds_do_not_depend_on_when_it_is_asked(asked):
    plain, band = sequence(), Band(sequence(), centre)
    X, y = values(70, 1)
    Z, _ = values(40, 2)

    def same_at(points):
        expected = np.array(plain.interval(points)) + centre(points)
        assert_allclose(band.interval(points), expected, rtol=1e-7)

    for t, (x, value) in enumerate(zip(X, y, strict=True), start=1):
        observe(plain, x, value)
        band = band.observe(x, float(value))
        if t in asked:
            same_at(Z)
    same_at(Z)
    same_at(X)


@pytest.mark.parametrize(
    ("drift", "noise", "rings"),
    [
        (0.0, NOISE, False),
        (0.0, 40 * NOISE, True),
        (0.15, NOISE, None),
        (0.2, NOISE, True),
        (1.0, NOISE, True),
        (15.0, NOISE, True),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_rings_at_the_same_value_or_not_at_all(drift, noise, rings, seed):
    plain, band = sequence(), Band(sequence(), centre)
    for x, y in zip(*values(60, seed, drift=drift, noise=noise), strict=True):
        observe(plain, x, y)
        band = band.observe(x, float(y))
        assert band.alarm == ("" if plain.alarm is None else plain.alarm.reason)
    assert rings is None or bool(band.alarm) == rings


def test_it_works_out_few_sets_where_nothing_is_wrong(monkeypatch):
    band, calls = Band(sequence(), centre), []
    tell = ConfidenceSequence.tell

    def counted(self, X, y):
        calls.append(len(y))
        tell(self, X, y)

    monkeypatch.setattr(ConfidenceSequence, "tell", counted)
    X, y = values(300, 3)
    for x, value in zip(X, y, strict=True):
        band = band.observe(x, float(value))
    assert len(calls) < 60
    band.interval(X[-1:])
    assert sum(calls) == 300  # and misses none


def test_a_band_is_a_value():
    band = Band(sequence(), centre)
    X, y = values(20, 4)
    for x, value in zip(X, y, strict=True):
        before = band.interval(X)
        after = band.observe(x, float(value))
        after.interval(X)
        np.testing.assert_array_equal(band.interval(X), before)
        band = after
