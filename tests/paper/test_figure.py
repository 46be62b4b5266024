from __future__ import annotations

import pytest

from metakel.errors import InputError
from reproduction import FIGURES
from reproduction.figure import Claim, Figure, load_figure
from reproduction.settings import READINGS


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_complete(name):
    figure = load_figure(name)
    assert isinstance(figure, Figure)
    assert figure.readings[0] == "resolved"
    assert set(figure.readings) <= set(READINGS)
    assert figure.claims
    assert figure.quick.runs * figure.quick.draws < figure.settings.runs * figure.settings.draws


def test_sizes_of_the_paper():
    runs = {name: load_figure(name).settings.runs for name in FIGURES}
    assert runs["fig3"] == 50
    assert runs["fig4"] == 100
    assert runs["fig5"] == 50
    tuning = load_figure("fig6-right").settings
    assert (tuning.draws, tuning.runs, tuning.p) == (13, 10, 500)
    for name in ("fig3", "fig4", "fig5", "fig6-left", "fig10"):
        settings = load_figure(name).settings
        assert (settings.p, settings.sparsity, settings.m, settings.n) == (20, 5, 50, 50)
        assert (settings.norm, settings.noise_std, settings.lam) == (10, 0.01, 0.03)


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="fig99"):
        load_figure("fig99")
    with pytest.raises(InputError, match="reading is 'free'"):
        load_figure("fig3").configured("free")
    with pytest.raises(InputError, match="runs is 0"):
        load_figure("fig3").configured(runs=0)


def test_claims_are_closed_intervals():
    claim = Claim("between", "x", 1, 2)
    assert claim.holds({"x": 1})
    assert claim.holds({"x": 2})
    assert not claim.holds({"x": 2.1})
    assert claim.holds({"x": 2.1}, slack=0.2)
    assert not claim.holds({"x": float("nan")})


def test_a_sure_claim_is_about_the_whole_interval():
    numbers = {"x": 0.9, "x low": 0.8, "x high": 1.1}
    assert Claim("below", "x", 0, 1).holds(numbers)
    assert not Claim("surely below", "x", 0, 1, sure=True).holds(numbers)
    assert Claim("surely below", "x", 0, 1, sure=True).holds({**numbers, "x high": 0.99})


def test_bounds_in_words():
    assert Claim("only reported", "x").bound == "–"
    assert Claim("", "x", 1, 2).bound == "1 to 2"
    assert Claim("", "x", 1).bound == "at least 1"
    assert Claim("", "x", high=2).bound == "at most 2"
    assert Claim("", "x", 0, 0).bound == "0"
