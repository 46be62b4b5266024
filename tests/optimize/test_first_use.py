"""What a first user meets: alarms that speak, copies, wrong arguments, any units."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest
from games import NOISE, line_problem, optimizer, play
from numpy.testing import assert_allclose, assert_array_equal

from gpucb import gpucb
from metakel.confidence import Alarm
from metakel.errors import InputError
from metakel.kernels import KernelSum, legendre
from metakel.search import box, candidates, grid

LINE = grid([(-1, 1)], 41)
NARROW = KernelSum.uniform(legendre(8, scaling="l2"), active=[0, 2])


def surprised(steps=25, **options):
    """An optimizer that learned two of eight base kernels of a function that uses all."""
    problem = line_problem(active=range(8))
    settings = {"rng": np.random.default_rng(0), "noise_std": NOISE, "norm_bound": 4.0, **options}
    game = gpucb(NARROW, LINE, **settings)
    game.tell(LINE.X[::10], problem.f(LINE.X[::10]))
    return play(game, problem, steps)


@pytest.mark.parametrize("on_alarm", ["widen", "ignore"])
def test_an_alarm_is_said_once_in_the_log_the_description_and_the_alarm(on_alarm, caplog):
    with caplog.at_level(logging.WARNING, logger="metakel"):
        game = surprised(on_alarm=on_alarm)
    event = game.alarm
    assert event is game.model.sequence.alarm is not None
    assert [r.getMessage() for r in caplog.records] == [f"alarm at t={event.time}: {event.reason}"]
    assert f"alarm at t={event.time}" in repr(game)
    count = {"widen": 8, "ignore": 2}[on_alarm]
    assert f"{count} of 8 base kernels, norm at most 4" in repr(game)


def test_no_alarm_is_silent(caplog):
    problem = line_problem()
    game = play(optimizer(problem, LINE), problem, 10)
    assert game.alarm is None
    assert "alarm" not in repr(game)
    assert not caplog.records
    assert optimizer(problem, LINE, nu=2.0, norm_bound=None).alarm is None


def test_an_alarm_that_is_raised_is_not_logged_as_well(caplog):
    with pytest.raises(Alarm):
        surprised(on_alarm="raise")
    assert not caplog.records


def test_where_nothing_fits_the_description_says_so():
    game = surprised(noise_std=1e-6)
    rng = np.random.default_rng(0)
    game.tell(LINE.X, rng.normal(size=41))
    assert "nothing assumed (check noise_std)" in repr(game)


@pytest.mark.parametrize("domain", [LINE, box([(-1, 1)])], ids=["grid", "box"])
@pytest.mark.parametrize("options", [{}, {"nu": 2.0}, {"nu": 2.0, "norm_bound": None}], ids=str)
def test_a_copy_goes_on_by_itself_and_in_the_same_way(domain, options):
    problem = line_problem()
    game = play(optimizer(problem, domain, **options), problem, 4)
    game.ask()
    kept = game.to_dict()
    other = copy.copy(game)
    first = [other.ask() for _ in range(3)]
    other.tell(first[0], 0.3)
    assert game.to_dict() == kept
    if game.model.sequence is not None:
        assert (game.t, game.model.sequence.t, other.t, other.model.sequence.t) == (4, 4, 5, 5)
    assert_array_equal([game.ask() for _ in range(3)], first)
    game.tell(first[0], 0.3)
    assert game.to_dict() == other.to_dict()
    assert_array_equal(game.ask(), other.ask())


@pytest.mark.parametrize(
    ("domain", "kind"),
    [
        ([(-1, 1)], "list"),
        (np.linspace(-1, 1, 9), "ndarray"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_domain_is_named(domain, kind):
    with pytest.raises(InputError, match=f"domain is a {kind}; use mk.box, mk.grid or"):
        optimizer(line_problem(), domain)


@pytest.mark.parametrize("options", [{}, {"nu": 2.0, "norm_bound": None}], ids=str)
def test_what_is_no_kernel_is_named(options):
    settings = {"rng": np.random.default_rng(0), "noise_std": 0.1, **options}
    with pytest.raises(InputError, match=r"kernel is a KernelDictionary; give KernelSum\.uniform"):
        gpucb(NARROW.base, LINE, **settings)


def test_confidence_on_a_box_says_what_to_pass():
    game = optimizer(line_problem(), box([(-1, 1)]))
    with pytest.raises(
        InputError, match=r"give some, as in confidence\(Z\) with Z of shape \(n, 1"
    ):
        game.confidence()
    assert np.shape(game.confidence([[0.1], [0.2]])) == (2, 2)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize("minimize", [True, False])
def test_without_a_norm_bound_the_units_of_the_values_do_not_matter(unit, minimize):
    problem = line_problem()
    games = {
        u: optimizer(problem, LINE, norm_bound=None, noise_std=NOISE * u, minimize=minimize)
        for u in (1.0, unit)
    }
    rng = np.random.default_rng(0)
    for _ in range(8):
        x = games[1.0].ask()
        assert_array_equal(games[unit].ask(), x)
        y = problem.noisy(x, rng)
        for u, game in games.items():
            game.tell(x, u * y)
    found = {
        u: np.array([g.best().value, g.best().lower, g.best().upper, g.certificate().regret]) / u
        for u, g in games.items()
    }
    assert_allclose(found[unit], found[1.0], rtol=1e-6)


@pytest.mark.parametrize("minimize", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"norm_bound": None, "noise_std": 5e4},
        {"norm_bound": 1e3, "noise_std": 5e4},
        {"norm_bound": 3.0, "noise_std": 5e4, "on_alarm": "ignore"},
        {"norm_bound": 1e7, "noise_std": 5e4, "method": "amm"},
    ],
    ids=str,
)
def test_the_value_of_the_best_point_lies_within_its_bounds(options, minimize):
    problem = line_problem()
    outside = 0
    for domain in (LINE, candidates(np.linspace(-1, 1, 7))):
        game = optimizer(problem, domain, minimize=minimize, **options)
        rng = np.random.default_rng(1)
        for _ in range(8):
            x = game.ask()
            game.tell(x, 1e6 * problem.noisy(x, rng))
            outside += not game.best().lower <= game.best().value <= game.best().upper
    assert not outside
