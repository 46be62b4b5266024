"""Level sets: every decision is right on a covered run, and few values decide everything."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import metakel as mk
from metakel.optimize import Optimizer, Score

BASE = mk.legendre(12, scaling="sup")
X = np.linspace(-1, 1, 61)
GRID = mk.grid([(-1, 1)], 61)
SIGMA = 0.1


def world(seed):
    rng = np.random.default_rng(seed)
    kernel = mk.KernelSum.uniform(BASE, active=np.sort(rng.choice(12, 3, replace=False)))
    theta = rng.normal(size=3)
    theta *= 2 / np.linalg.norm(theta)
    return rng, kernel, kernel.features(X[:, None]) @ theta


def decide(kernel, f, goal, rng, most=80, **options):
    """Tries until everything is decided; checks every decision of every time."""
    given = {"noise_std": SIGMA, "norm_bound": 2.0, "acquisition": goal, **options}
    game = mk.GPUCB(kernel, GRID, rng=rng, **given)
    for t in range(most):
        if game.done:
            return game, t
        x = game.ask()
        game.tell(x, f[int(np.argmin(np.abs(X - x[0])))] + SIGMA * rng.normal())
        lower, upper = game.confidence()
        if ((lower <= f) & (f <= upper)).all():
            assert (f[game.above(X, goal.level)] >= goal.level).all()
            assert (f[game.below(X, goal.level)] < goal.level).all()
            assert f.max() in f[np.isin(X, game.potential_maximisers)]
    return game, most


def test_no_decision_is_wrong_and_a_smaller_kernel_needs_fewer_values():
    needed = []
    for seed in range(6):
        rng, kernel, f = world(seed)
        goal = mk.LevelSet(0.2, tolerance=0.1 * float(np.ptp(f)))
        small = decide(kernel, f, goal, rng)[1]
        every = mk.KernelSum.uniform(BASE, weight=1.0)
        needed.append((small, decide(every, f, goal, rng)[1]))
    small, large = np.median(needed, axis=0)
    assert small <= 0.5 * large


def test_the_hardest_point_decides_no_later_than_the_widest_one():
    def widest(model, best):
        return Score(lambda Z: np.subtract(*model.bounds_within(Z)[::-1]))

    needed = []
    for seed in range(10):
        rng, kernel, f = world(seed)
        goal = mk.LevelSet(0.2, tolerance=0.1 * float(np.ptp(f)))
        ours = decide(kernel, f, goal, rng)[1]
        game = mk.GPUCB(kernel, GRID, rng=rng, noise_std=SIGMA, norm_bound=2.0, acquisition=widest)
        while not game.t or (game.t < 80 and goal.undecided(*game.confidence()).any()):
            x = game.ask()
            game.tell(x, f[int(np.argmin(np.abs(X - x[0])))] + SIGMA * rng.normal())
        needed.append((ours, game.t))
    ours, theirs = np.mean(needed, axis=0)
    assert ours <= theirs


def test_what_is_decided_stays_decided():
    rng, kernel, f = world(7)
    goal = mk.LevelSet(0.1, tolerance=0.2)
    game, _ = decide(kernel, f, goal, rng, most=10)
    before = game.above(X, 0.1) | game.below(X, 0.1)
    for _ in range(5):
        game.tell(game.ask(), 0.0)
        now = game.above(X, 0.1) | game.below(X, 0.1)
        assert game.alarm is not None or (now | ~before).all()
        before = now


def test_it_is_stored_and_asks_where_the_decision_is_hardest():
    rng, kernel, f = world(8)
    game, _ = decide(kernel, f, mk.LevelSet(0.3), rng, most=4)
    lower, upper = game.confidence()
    x = game.suggest()
    hardest = np.minimum(upper - 0.3, 0.3 - lower)
    assert hardest[int(np.argmin(np.abs(X - x[0])))] == pytest.approx(hardest.max())
    again = Optimizer.from_dict(game.to_dict())
    assert_array_equal(again.suggest(), x)
    assert again.acquisition == game.acquisition


def test_a_level_set_needs_bounds_and_has_no_direction():
    _, kernel, _ = world(9)
    options = {"rng": np.random.default_rng(0), "noise_std": 0.1, "acquisition": mk.LevelSet(0.0)}
    with pytest.raises(mk.InputError, match="minimises nothing"):
        mk.GPUCB(kernel, GRID, norm_bound=1.0, maximize=False, **options)
    with pytest.raises(mk.InputError, match="needs confidence bounds"):
        mk.GPUCB(kernel, GRID, nu=2.0, **options).ask()
    with pytest.raises(mk.InputError, match="tolerance"):
        mk.LevelSet(0.0, -1.0)
