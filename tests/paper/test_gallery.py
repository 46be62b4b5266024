from __future__ import annotations

from dataclasses import replace

import pytest

from reproduction.figure import Claim, load_figure
from reproduction.gallery import overall, verdict, write_gallery
from reproduction.runner import run

CLAIM = Claim("small", "x", 0, 1)
GOOD, BAD = {"x": 0.5}, {"x": 2.0}


@pytest.mark.parametrize(
    ("literal", "resolved", "expected"),
    [
        (GOOD, GOOD, "holds"),
        (BAD, GOOD, "holds in resolved, fails in literal"),
        (GOOD, BAD, "holds in literal, fails in resolved"),
        (BAD, BAD, "fails"),
        (GOOD, {**GOOD, "x low": 0.4, "x high": 1.1}, "holds in literal, undecided in resolved"),
    ],
)
def test_verdict_on_a_claim(literal, resolved, expected):
    assert verdict(CLAIM, {"resolved": resolved, "literal": literal}) == expected


@pytest.mark.parametrize(
    ("literal", "resolved", "expected"),
    [
        (GOOD, GOOD, "holds"),
        (BAD, GOOD, "holds in the resolved reading only"),
        (BAD, BAD, "of 1 claims in the resolved reading, 1 fail"),
    ],
)
def test_verdict_on_a_figure(literal, resolved, expected):
    figure = replace(load_figure("fig8"), claims=(CLAIM,))
    assert overall(figure, {"resolved": resolved, "literal": literal}) == expected


def test_a_number_without_a_bound_is_not_judged():
    assert verdict(Claim("reported", "x"), {"resolved": BAD, "literal": GOOD}) == "–"


def test_verdict_counts_the_claims_that_hold():
    figure = replace(load_figure("fig8"), claims=(CLAIM, replace(CLAIM, high=3)))
    judged = overall(figure, {"resolved": BAD, "literal": BAD})
    assert judged == "of 2 claims in the resolved reading, 1 hold, 1 fail"


def test_what_the_paper_does_not_say_does_not_count():
    own = replace(load_figure("fig8"), claims=(replace(CLAIM, said=False),))
    assert overall(own, {"resolved": BAD, "literal": BAD}) == "illustration"


def test_gallery_shows_what_was_saved_and_only_that(tmp_path):
    figure = load_figure("fig8")
    for reading in ("resolved", "literal"):
        settings = figure.configured(reading, runs=5)
        run("fig8", settings, seed=0, out=tmp_path / "out", jobs=1)
    page = write_gallery(tmp_path / "out", tmp_path / "docs")
    text = page.read_text()
    assert "## fig8" in text
    assert "## fig3" not in text
    assert "`metakel paper fig8 --reading literal`" in text
    assert "signed reading*" not in text
    for reading in ("resolved", "literal"):
        picture = tmp_path / "docs" / "img" / "paper" / f"fig8-{reading}.png"
        assert 2_000 < picture.stat().st_size < 100_000
    again = write_gallery(tmp_path / "out", tmp_path / "again")
    assert again.read_text() == text
    assert "Settings: p = 20, |J\\*| = 5, m = 50" in text
    quick = write_gallery(tmp_path / "out", tmp_path / "quick", quick=True).read_text()
    assert "Verdict: **not judged (quick size)**" in quick
    assert "holds" not in quick.partition("## fig8")[2]
