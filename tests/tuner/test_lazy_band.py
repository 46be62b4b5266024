"""A patient band: the answers and alarms of one that works out its set at every value."""

from __future__ import annotations

import numpy as np
import pytest
from metakel.tuner.lazy_band import LazyBand
from numpy.testing import assert_allclose
from tuning_history import measure, small_prior

from metakel.tuner import Tuner

DELTA = 0.2


def bands(minimize: bool = False):
    prior = small_prior(minimize)
    return prior.confidence(delta=DELTA), LazyBand(prior.confidence(delta=DELTA))


def values(n: int, seed: int, *, drift: float = 0.0, noise: float = 0.002, sign: float = 1.0):
    """A task like the past ones, to which something is added that grows with time."""
    rng = np.random.default_rng(seed)
    space = small_prior().space
    rows = space.decode(space.sample(rng, n))
    added = drift * np.arange(n) + noise * rng.standard_normal(n)
    return rows, [sign * (measure(x) + float(a)) for x, a in zip(rows, added, strict=True)]


@pytest.mark.parametrize("minimize", [False, True])
@pytest.mark.parametrize("asked", [(), (1, 2, 3, 7, 30), (16, 17, 32, 33, 63), range(70)])
def test_its_bounds_do_not_depend_on_when_it_is_asked(asked, minimize):
    plain, patient = bands(minimize)
    rows, seen = values(70, 1, sign=-1.0 if minimize else 1.0)
    elsewhere, _ = values(40, 2)
    for t, (x, y) in enumerate(zip(rows, seen, strict=True), start=1):
        plain.tell([x], [y])
        patient.tell(x, y)
        if t in asked:
            assert_allclose(patient.interval(elsewhere), plain.interval(elsewhere), rtol=1e-7)
    assert_allclose(patient.interval(elsewhere), plain.interval(elsewhere), rtol=1e-7)
    assert_allclose(patient.interval(rows), plain.interval(rows), rtol=1e-7)


@pytest.mark.parametrize(
    ("drift", "noise", "rings"),
    [
        (0.0, 0.002, False),
        (0.0, 0.02, True),
        (0.001, 0.002, None),
        (0.004, 0.002, True),
        (0.02, 0.002, True),
        (0.3, 0.002, True),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_rings_at_the_same_value_or_not_at_all(drift, noise, rings, seed):
    plain, patient = bands()
    for x, y in zip(*values(60, seed, drift=drift, noise=noise), strict=True):
        plain.tell([x], [y])
        patient.tell(x, y)
        said = plain.sequence.alarm
        assert patient.alarm == ("" if said is None else said.reason)
    assert rings is None or bool(patient.alarm) == rings


def test_it_works_out_few_sets_where_nothing_is_wrong(monkeypatch):
    plain, patient = bands()
    calls = []
    tell = type(plain).tell

    def counted(band, rows, seen):
        calls.append(len(seen))
        tell(band, rows, seen)

    monkeypatch.setattr(type(plain), "tell", counted)
    for x, y in zip(*values(300, 3), strict=True):
        patient.tell(x, y)
    assert len(calls) < 60
    patient.interval([x])
    assert sum(calls) == 300  # and misses none


def test_a_tuner_whose_certificate_nobody_reads_has_the_same_one_in_the_end(tmp_path):
    rows, seen = values(40, 4)
    reader = Tuner(small_prior(), tmp_path / "j")
    for x, y in zip(rows, seen, strict=True):
        reader.tell(x, y)
        assert reader.certificate.why == ""
    late = Tuner(small_prior(), tmp_path / "j").certificate
    assert late.configuration == reader.certificate.configuration
    found = (late.regret, late.lower, late.upper)
    assert found == pytest.approx(
        (reader.certificate.regret, reader.certificate.lower, reader.certificate.upper), rel=1e-7
    )
