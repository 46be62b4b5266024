"""What a first user meets: alarms that speak, copies, wrong arguments, any units."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from games import NOISE, line_problem, optimizer, play

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


def test_confidence_on_a_box_says_what_to_pass():
    game = optimizer(line_problem(), box([(-1, 1)]))
    with pytest.raises(
        InputError, match=r"give some, as in confidence\(Z\) with Z of shape \(n, 1"
    ):
        game.confidence()
    assert np.shape(game.confidence([[0.1], [0.2]])) == (2, 2)


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
