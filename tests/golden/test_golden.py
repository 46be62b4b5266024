"""The decisions of ten searches are those that were recorded."""

from __future__ import annotations

import json
import platform
from math import inf, isinf

import pytest
from decisions import FIXTURES, GOLDEN, STEPS, decided
from numpy.testing import assert_allclose

RECORDED = json.loads(GOLDEN.read_text(encoding="utf-8"))
# A search on a continuous domain ends where its score is flat to the last digits, so the point
# itself is known to about the square root of that.
POINT = 2e-6
NUMBER = 1e-9


def numbers_of(point):
    return list(point.values()) if isinstance(point, dict) else point


def assert_same_point(found, recorded, where):
    if isinstance(recorded, dict):
        assert list(found) == list(recorded), where
    for one, other in zip(numbers_of(found), numbers_of(recorded), strict=True):
        if isinstance(other, float):
            assert_allclose(one, other, rtol=POINT, atol=POINT, err_msg=where)
        else:
            assert one == other, where


@pytest.fixture(scope="module")
def now():
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the decisions were recorded on x86-64")
    return decided(list(FIXTURES), GOLDEN)


@pytest.mark.parametrize("name", FIXTURES)
def test_decisions_are_those_that_were_recorded(name, now):
    recorded, found = RECORDED[name], now[name]
    assert len(found) == len(recorded) == STEPS
    for t, (new, then) in enumerate(zip(found, recorded, strict=True)):
        where = f"{name}, step {t}"
        assert new.keys() == then.keys(), where
        assert_same_point(new["next"], then["next"], where)
        for key in new.keys() - {"next"}:
            if isinstance(then[key], float) and isinf(then[key]):
                assert new[key] == inf, f"{where}: {key}"
            elif then[key] is None:
                assert new[key] is None, f"{where}: {key}"
            else:
                assert_allclose(
                    new[key], then[key], rtol=NUMBER, atol=NUMBER, err_msg=f"{where}: {key}"
                )


def test_the_recorded_searches_are_not_trivial():
    """Every fixture makes several decisions, and evidence moves trust and certificate."""
    for name, steps in RECORDED.items():
        points = {json.dumps(step["next"]) for step in steps}
        assert len(points) >= 5, name
    trust = [step["trust"] for step in RECORDED["prior_space"]]
    assert max(trust) - min(trust) > 1e-3
    certificates = [step["certificate"] for step in RECORDED["prior_space"]]
    assert min(certificates) < 0.5 * certificates[0]
