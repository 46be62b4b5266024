from __future__ import annotations

import numpy as np
import pytest
from quick_figures import check_picture

from metakel.errors import InputError
from reproduction import FIGURES
from reproduction.figure import Claim, Figure, load_figure, rate, ratio, shown
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


def test_a_claim_is_undecided_where_the_interval_reaches_over_the_bound():
    below = Claim("below", "x", 0, 1)
    assert below.state({"x": 0.9, "x low": 0.8, "x high": 1.1}) == "undecided"
    assert below.state({"x": 0.9, "x low": 0.8, "x high": 0.99}) == "holds"
    assert below.state({"x": 1.2, "x low": 1.1, "x high": 1.3}) == "fails"
    assert below.state({"x": float("nan")}) == "fails"


def covered(seed, clusters):
    """Whether the interval of one sample of 30 clusters of 4 covers the true ratio 1/2."""
    rng = np.random.default_rng(seed)
    shared, own = rng.exponential(size=30).repeat(4), rng.exponential(size=120)
    found = ratio("x", shared, 1 + own, np.arange(30).repeat(4) if clusters else None)
    return found["x low"] <= 0.5 <= found["x high"]


def test_intervals_cover_at_their_level_if_they_know_what_was_drawn_together():
    rate = np.mean([covered(seed, clusters=True) for seed in range(40)])
    assert rate >= 0.8  # nominal 0.95
    ignorant = np.mean([covered(seed, clusters=False) for seed in range(40)])
    assert ignorant < 0.8


def test_nothing_over_nothing_is_no_number():
    assert shown(ratio("x", [0.0, 0.0], [0.0, 0.0]), "x") == "–"
    found = ratio("x", [0.0, 1.0], [0.0, 2.0])
    assert (found["x"], found["x low"], found["x high"]) == (0.5, 0.5, 0.5)


def test_interval_of_a_rate_solves_the_normal_approximation_at_its_ends():
    found = rate("x", [True] * 27 + [False] * 3)
    for end in (found["x low"], found["x high"]):
        assert abs(0.9 - end) / np.sqrt(end * (1 - end) / 30) == pytest.approx(1.96, abs=1e-3)
    assert rate("x", np.ones(100))["x low"] < 0.97 < rate("x", np.ones(300))["x low"]


def test_rates_of_groups_are_wilson_intervals_that_hold_the_rate():
    import pandas as pd

    from reproduction.drawing import rates

    table = pd.DataFrame({"m": [1] * 20 + [2] * 20, "found": [True] * 20 + [True, False] * 10})
    middle, low, high = rates(table.groupby("m")["found"])
    assert middle.tolist() == [1.0, 0.5]
    assert high[0] == 1.0
    assert 0.8 < low[0] < 0.9  # two standard errors would say 1
    assert low[1] + high[1] == pytest.approx(1.0)


@pytest.mark.parametrize("name", FIGURES)
def test_every_picture_says_what_it_shows(name):
    check_picture(name)
