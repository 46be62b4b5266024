"""Several kernels, one of which is right: dropped only if they do not fit, bounds that hold."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import binom

import metakel as mk
from metakel.errors import InputError
from metakel.theory import regret_union

NOISE, BOUND, STEPS = 0.1, 3.0, 12
BASE = mk.legendre(12, scaling="sup")
DOMAIN = mk.grid([(-1, 1)], 41)


def world(seed, models, size=4):
    """Random kernels, the place of the right one, the function and random numbers."""
    rng = np.random.default_rng(seed)
    chosen = [np.sort(rng.choice(BASE.p, size, replace=False)) for _ in range(models)]
    kernels = [mk.KernelSum.uniform(BASE, active=active, weight=1.0) for active in chosen]
    right, theta = int(rng.integers(models)), rng.normal(size=size)
    theta *= 0.9 * BOUND / np.linalg.norm(theta)
    return kernels, right, kernels[right].features(DOMAIN.X) @ theta, rng


def optimizer(kernel, rng, domain=DOMAIN, **options):
    settings = {"noise_std": NOISE, "norm_bound": BOUND, "delta": 0.1}
    return mk.GPUCB(kernel, domain, rng=rng, **(settings | options))


def play(game, f, rng, steps=STEPS):
    """Regret, whether the bounds held at all times, and how many kernels were left."""
    lost, held, left = 0.0, True, []
    for _ in range(steps):
        x = game.ask()
        row = int(np.argmin(np.abs(DOMAIN.X[:, 0] - x[0])))
        game.tell(x, f[row] + NOISE * rng.normal())
        lost += f.max() - f[row]
        lower, upper = game.confidence()
        held &= bool(((lower <= f + 1e-9) & (f <= upper + 1e-9)).all())
        left.append(game.model.alive if isinstance(game.model, mk.optimize.UnionModel) else ())
    return lost, held, left


@pytest.mark.parametrize(("models", "runs"), [(1, 40), (5, 40), (20, 15)])
def test_bounds_hold_and_the_right_kernel_is_not_dropped(models, runs):
    failed = dropped = 0
    for seed in range(runs):
        kernels, right, f, rng = world(seed, models)
        _, held, left = play(optimizer(kernels, rng), f, rng)
        failed += not held
        dropped += right not in left[-1]
        assert all(set(after) <= set(before) for before, after in pairwise(left))
    assert max(failed, dropped) <= binom.ppf(1 - 1e-4, runs, 0.1)


def test_without_the_right_kernel_the_bounds_do_not_hold():
    """The negative control: the right one is left out, and nothing wider is in the mixture."""
    failed = 0
    for seed in range(20):
        kernels, right, f, rng = world(seed, 4)
        others = [kernel for i, kernel in enumerate(kernels) if i != right]
        game = optimizer(others, rng, full=others[0])
        failed += not play(game, f, rng)[1]
    assert failed > 10


def test_where_no_kernel_fits_all_base_kernels_are_assumed():
    alarms = 0
    for seed in range(10):
        kernels, right, f, rng = world(seed, 3)
        others = [kernel for i, kernel in enumerate(kernels) if i != right]
        game = optimizer(others, rng, probes=6)
        _, _, left = play(game, f, rng)
        alarms += game.alarm is not None
        assert (game.alarm is not None) == (not left[-1])
        if game.alarm is not None:
            assert "none of the 2 kernels fits" in game.alarm.reason
            lower, upper = game.confidence()
            assert ((lower <= f) & (f <= upper)).all()
    assert alarms >= 5


def test_one_kernel_in_a_list_is_that_kernel():
    kernels, _, f, _ = world(3, 1)
    games = [optimizer(kernel, np.random.default_rng(0)) for kernel in (kernels, kernels[0])]
    for game in games:
        play(game, f, np.random.default_rng(1))
    assert_array_equal(games[0].X, games[1].X)
    for one, other in zip(games[0].confidence(), games[1].confidence(), strict=True):
        assert_array_equal(one, other)
    assert games[0].certificate.regret == games[1].certificate.regret
    with pytest.raises(InputError, match="there is one model"):
        _ = games[1].alive


def test_not_knowing_the_kernel_costs_little_regret_and_all_kernels_cost_more():
    totals = np.zeros(3)
    for seed in range(6):
        kernels, right, f, rng = world(seed, 8)
        everything = mk.KernelSum.uniform(BASE, weight=1.0)
        rivals = (kernels, kernels[right], everything)
        totals += [play(optimizer(kernel, rng), f, rng, steps=25)[0] for kernel in rivals]
    union, oracle, full = totals
    assert union <= 2.5 * oracle
    assert union < full


def test_the_union_is_that_of_the_kernels_that_are_left():
    kernels, _, f, rng = world(1, 5)
    game = optimizer(kernels, rng)
    play(game, f, rng, steps=6)
    members = [game.model.members[i] for i in game.alive]
    lower, upper = game.confidence()
    assert_array_equal(lower, np.min([m.bounds_within(DOMAIN.X)[0] for m in members], axis=0))
    assert_array_equal(upper, np.max([m.bounds_within(DOMAIN.X)[1] for m in members], axis=0))
    assert game.certificate.regret >= f.max() - f[game.domain.index(game.best.x[None])[0]] - 1e-9
    # A value of the mixture of all kernels that are left lies between their own ones.
    means = [m.predict(DOMAIN.X)[0] for m in members]
    mean, _ = game.predict(DOMAIN.X)
    assert (np.min(means, axis=0) - 1e-12 <= mean).all()
    assert (mean <= np.max(means, axis=0) + 1e-12).all()


@pytest.mark.parametrize("domain", [DOMAIN, mk.box([(-1, 1)])], ids=repr)
def test_save_load_ask_equals_ask(domain, tmp_path):
    kernels, right, _, rng = world(2, 3)
    theta = np.ones(4)
    game = optimizer(kernels, rng, domain=domain)
    for _ in range(5):
        x = game.ask()
        game.tell(x, float(kernels[right].features(x[None])[0] @ theta))
    game.ask()  # one is pending
    game.save(tmp_path / "game.json")
    again = mk.optimize.Optimizer.load(tmp_path / "game.json")
    assert again.alive == game.alive
    assert_array_equal(again.ask(), game.ask())
    assert again.certificate.regret == game.certificate.regret


def test_the_regret_bound_holds_on_covered_runs_and_grows_like_a_root():
    kernels, _, f, rng = world(4, 4)
    game = optimizer(kernels, rng)
    lost, held, _ = play(game, f, rng)
    options = {"norm_bound": BOUND, "noise_std": NOISE, "models": 4, "dim": 4, "total_dim": 12}
    radius = max(member.sequence.radius for member in game.model.members)
    assert held
    assert lost <= regret_union(horizon=STEPS, radius=radius, **options)
    long = [regret_union(horizon=T, radius=radius, **options) / np.sqrt(T) for T in (100, 10_000)]
    assert long[0] < long[1] < 2 * long[0]  # up to the logarithm


def test_what_several_kernels_cannot_do_is_refused():
    kernels, _, _, rng = world(0, 2)
    for options, reason in (
        ({"at_least": 0.0, "start": [[0.0]]}, "several kernels and limits"),
        ({"nu": 2.0}, "expected no nu"),
        ({"on_alarm": "ignore"}, 'on_alarm "widen" or "stop"'),
        ({"watch_kernels": True}, "no watch_kernels"),
        ({"method": "ay"}, 'method="dmm"'),
    ):
        with pytest.raises(InputError, match=reason):
            optimizer(kernels, rng, **options)
    with pytest.raises(InputError, match="no kernel was given"):
        optimizer([], rng)
    empty = mk.KernelSum(BASE, np.zeros(BASE.p))
    with pytest.raises(InputError, match=r"kernel\[1\] has no active"):
        optimizer([kernels[0], empty], rng)
