"""The certificate: never violated where the bounds hold, and worth something."""

from __future__ import annotations

import numpy as np
import pytest
from games import line_problem, optimizer, play, square_problem
from numpy.testing import assert_allclose
from scipy.stats import binom

from gpucb import gpucb
from metakel.kernels import KernelSum, from_features, legendre
from metakel.optimize import Score
from metakel.search import Box, box, grid
from metakel.theory import regret

LINE = grid([(-1, 1)], 101)
TOLERANCE = 1e-9


def covered(game, problem):
    lower, upper = game.confidence()
    values = problem.f(LINE.X)
    return ((lower - TOLERANCE <= values) & (values <= upper + TOLERANCE)).all()


@pytest.mark.parametrize("minimize", [True, False])
def test_on_covered_runs_simple_regret_and_summed_widths_are_bounded_at_every_time(minimize):
    checked = 0
    for seed in range(25):
        problem = line_problem(seed)
        values = problem.f(LINE.X)
        optimum = values.min() if minimize else values.max()
        game = optimizer(problem, LINE, seed=seed, minimize=minimize)
        rng = np.random.default_rng(1000 + seed)
        widths, total = 0.0, 0.0
        for _ in range(15):
            x = game.ask()
            lower, upper = game.confidence()
            widths += (upper - lower)[LINE.index(x[None])[0]]
            total += abs(optimum - problem.f(x)[0])
            game.tell(x, problem.noisy(x, rng))
            if not covered(game, problem):
                break
            checked += 1
            assert (
                abs(optimum - problem.f(game.best().x)[0]) <= game.certificate().regret + TOLERANCE
            )
            assert total <= widths + TOLERANCE
    assert checked > 25 * 15 * 0.9


def test_on_a_box_it_bounds_the_regret_of_the_best_point_against_a_dense_search():
    Z = grid([(-1, 1)] * 2, 61).X
    for seed in range(4):
        problem = square_problem(seed)
        optimum = problem.f(Z).max()
        game = optimizer(problem, box([(-1, 1)] * 2), seed=seed)
        for step in range(6):
            play(game, problem, 4, seed=step)
            assert optimum - problem.f(game.best().x)[0] <= game.certificate().regret


def test_on_a_finite_domain_it_never_grows_and_becomes_small():
    problem = line_problem()
    game = optimizer(problem, LINE)
    found = []
    for step in range(30):
        play(game, problem, 1, seed=step)
        found.append(game.certificate().regret)
    assert game.model.sequence.alarm is None
    assert (np.diff(found) <= TOLERANCE).all()
    assert found[-1] < 0.3 * found[0]


def test_it_is_the_largest_upper_minus_the_largest_told_lower_bound():
    problem = line_problem()
    game = play(optimizer(problem, LINE), problem, 6)
    lower, upper = game.confidence()
    told = LINE.index(game.X)
    assert_allclose(game.certificate().regret, upper.max() - lower[told].max())
    assert game.best().lower == lower[told].max()


@pytest.mark.parametrize("policy", ["ask", "uniform"])
def test_stopping_at_the_certificate_is_right_whoever_chooses_the_points(policy):
    """(epsilon, delta)-PAC. The negative control stops by the means, and is wrong more often."""
    wrong = naive = runs = 0
    for seed in range(20):
        problem, rng = line_problem(seed), np.random.default_rng(seed)
        game, values = optimizer(problem, LINE, seed=seed, stop_at=0.5), problem.f(LINE.X)
        stopped = False
        while not game.done and game.t < 60:
            x = game.ask() if policy == "ask" else LINE.X[rng.integers(len(LINE))]
            game.tell(x, problem.noisy(x, rng))
            means = game.predict(LINE.X)[0]
            if not stopped and means.max() - game.best().value <= 0.5:
                naive += values.max() - problem.f(game.best().x)[0] > 0.5
                stopped = True
        if game.done:
            runs += 1
            wrong += values.max() - problem.f(game.best().x)[0] > 0.5
    assert runs >= 10
    assert wrong <= binom.ppf(1 - 1e-4, runs, 0.1)
    assert naive > (5 if policy == "uniform" else wrong)


def test_level_sets_and_optima_are_decided_rightly_at_all_times():
    """An acquisition of one's own, as in the guide: hardest first, and no decision is wrong."""
    level, open_, kept = 0.5, [], []

    def hardest(model, best):
        lower_upper = model.bounds_within
        return Score(lambda Z: np.minimum(lower_upper(Z)[1] - level, level - lower_upper(Z)[0]))

    for seed in range(8):
        problem, rng = line_problem(seed), np.random.default_rng(seed)
        game = optimizer(problem, LINE, seed=seed, acquisition=hardest)
        values = problem.f(LINE.X)
        for _ in range(12):
            x = game.ask()
            game.tell(x, problem.noisy(x, rng))
            lower, upper = game.confidence()
            if covered(game, problem):
                assert (values[lower >= level] >= level).all()
                assert (values[upper < level] < level).all()
                assert upper[int(np.argmax(values))] >= lower.max()
        open_.append(((lower < level) & (upper >= level)).sum())
        kept.append((upper >= lower.max()).sum())
    assert max(np.mean(open_), np.mean(kept)) < 0.5 * len(LINE)


def run_regret(problem, kernel, seed, *, steps=40):
    """Cumulative regret on the paper's 1-D example with signed coefficients."""
    game = gpucb(kernel, LINE, rng=np.random.default_rng(seed), noise_std=0.01, norm_bound=10.0)
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(steps):
        x = game.ask()
        values.append(problem.f(x)[0])
        game.tell(x, problem.f(x) + 0.01 * rng.standard_normal(1))
    return regret.cumulative(values, problem.f(LINE.X).max())[-1]


def test_a_learned_kernel_halves_the_regret_of_all_base_kernels():
    """Signed coefficients: with positive ones the maximum is always at x = 1."""
    base = legendre(20, scaling="sup")
    won = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        active = np.sort(rng.choice(20, 5, replace=False))
        learned = KernelSum.uniform(base, active=active)
        problem = line_problem(seed, p=20, active=active)
        theta = rng.standard_normal(5)
        problem = type(problem)(learned, 10 * theta / np.linalg.norm(theta))
        full = KernelSum.uniform(base, weight=1.0)
        won += run_regret(problem, learned, seed) <= 0.5 * run_regret(problem, full, seed)
    assert won >= 27


def test_on_a_box_it_is_never_below_the_width_at_the_best_point(monkeypatch):
    problem = line_problem(0)
    game = optimizer(problem, box([(-1, 1)]), seed=0)
    play(game, problem, 6)
    monkeypatch.setattr(  # a search that finds nothing
        Box, "maximizers", lambda self, f, start, **_: (start.X[:1], np.array([-1e9]))
    )
    game.tell(np.array([0.123]), problem.f(np.array([0.123]))[0])
    best = game.best()
    assert best.upper > best.lower
    highest = game.model.bounds(game.X)[1].max()
    assert game.certificate().regret >= max(best.upper, highest) - best.lower - TOLERANCE


@pytest.mark.parametrize("sup", [None, 2.0])
def test_on_a_box_a_kernel_without_derivatives_is_not_trusted_between_the_points_looked_at(sup):
    def features(X):  # a peak that no search finds
        return np.concatenate([np.ones_like(X), np.abs(X - 0.31415926) < 1e-7], axis=1)

    kernel = KernelSum.uniform(from_features(features, 2, name="peak", d0=1, sup=sup), weight=1.0)
    common = {"rng": np.random.default_rng(0), "noise_std": 0.01, "norm_bound": 2.0}
    game = gpucb(kernel, box([(-1, 1)]), **common)
    for x in np.linspace(-1, 1, 9):
        game.tell(np.array([x]), 1.0)
    true_regret = np.sqrt(2.0**2 - 1)  # f = 1 + sqrt(3) at the peak
    assert game.certificate().regret >= true_regret
    if sup is None:
        assert game.certificate().regret == np.inf
        assert "derivatives" in str(game.certificate())
    else:
        assert game.certificate().regret < 2.0 * np.sqrt(2.0)
    finite = gpucb(kernel, grid([(-1, 1)], 9), **common)
    for x in finite.domain.X:
        finite.tell(x, 1.0)
    assert finite.certificate().regret < 0.2
