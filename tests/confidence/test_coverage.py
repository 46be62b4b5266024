"""Anytime coverage: all times, all points, any way to choose the next point (Eq. 2)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from worlds import (
    BASE,
    GRID,
    SIGMA,
    World,
    covered,
    failures_allowed,
    paper_example,
    true_kernel,
)

from metakel.confidence import ClosedForm, ConfidenceSequence
from metakel.gp import posterior
from metakel.kernels import KernelSum

DELTA = 0.1
METHODS = ("dmm", "amm", "ay", "paper-corrected")
POLICIES = ("uniform", "ucb", "variance", "adversary")


def next_point(policy, sequence, world):
    """Where to observe; the adversary knows f and goes where the interval is nearest to failing."""
    lower, upper = sequence.interval()
    width = upper - lower
    score = {
        "uniform": world.rng.uniform(size=len(GRID)),
        "ucb": upper,
        "variance": width,
        "adversary": np.abs(world.f(GRID) - (lower + upper) / 2) / (width + 1e-12),
    }[policy]
    return GRID[[int(np.argmax(score))]]


def sequences(world, norm):
    options = {"noise_std": 1.0, "norm_bound": norm, "delta": DELTA, "points": GRID}
    return {m: ConfidenceSequence(world.kernel, method=m, **options) for m in METHODS}


def test_every_provable_method_covers_at_all_times_under_any_policy_and_noise():
    """Noise-dominated, where the intervals are not much wider than they must be."""
    settings = list(product(POLICIES, (False, True), (1, 3), (0.1, 1.0)))
    runs, horizon = 5 * len(settings), 25
    missed = dict.fromkeys(METHODS, 0)
    for run in range(runs):
        policy, rademacher, d, norm = settings[run % len(settings)]
        rng = np.random.default_rng(run)
        world = World.draw(rng, d=d, norm=norm, rademacher=rademacher)
        f = world.f(GRID)
        alive = sequences(world, norm)
        leader = alive[METHODS[run % len(METHODS)]]
        for _ in range(horizon):
            X = next_point(policy, leader, world)
            y = world.observe(X)
            leader.tell(X, y)
            for method, sequence in list(alive.items()):
                if sequence is not leader:
                    sequence.tell(X, y)
                if not covered(sequence, f):
                    missed[method] += 1
                    del alive[method]
    for method in METHODS:
        assert missed[method] <= failures_allowed(runs, DELTA), method


def test_the_pointwise_gaussian_band_does_not_cover_at_all_times():
    """Negative control: the Bayesian 90 % band holds at one time and point, not at all."""
    runs, good = 60, 0
    for run in range(runs):
        world = World.draw(np.random.default_rng(run), d=3, norm=1.0)
        X = world.rng.uniform(-1, 1, (200, 1))
        y, f = world.observe(X), world.f(GRID)
        for t in (1, 2, 4, 7, 12, 20, 35, 60, 100, 140, 200):
            post = posterior(world.kernel, X[:t], y[:t], noise_var=1.0)
            if (np.abs(post.mean(GRID) - f) > 1.645 * post.std(GRID)).any():
                break
        else:
            good += 1
    assert good / runs < 0.6


def test_without_a_norm_bound_f_of_any_size_is_covered():
    runs, missed = 150, 0
    for run in range(runs):
        rng = np.random.default_rng(run)
        world = World.draw(rng, d=3, norm=10.0 ** rng.uniform(-2, 5), p=4)
        sequence = ConfidenceSequence(
            world.kernel, noise_std=1.0, norm_bound=None, delta=DELTA, points=GRID
        )
        for size in (1, 2, 2, 5, 10, 20):
            X = rng.uniform(-1, 1, (size, 1))
            sequence.tell(X, world.observe(X))
            if sequence.hypothesis is None or not covered(sequence, world.f(GRID)):
                missed += 1
                break
    assert missed <= failures_allowed(runs, DELTA)


def test_a_growing_norm_bound_covers_once_it_has_passed_the_norm():
    runs, missed = 100, 0
    for run in range(runs):
        world = World.draw(np.random.default_rng(run), d=3, norm=4.0, noise_std=0.5)
        sequence = ConfidenceSequence(
            world.kernel, noise_std=0.5, norm_bound=lambda t: 0.5 * (1 + t) ** 0.6, delta=DELTA
        )
        bad = False
        for size in (1, 4, 20, 10, 20):
            X = world.rng.uniform(-1, 1, (size, 1))
            sequence.tell(X, world.observe(X))
            past_crossing = 0.5 * (1 + sequence.t) ** 0.6 >= 4.0
            bad |= past_crossing and not covered(sequence, world.f(GRID), GRID)
        missed += bad
    assert missed <= failures_allowed(runs, DELTA)


def test_noise_that_differs_by_observation_is_covered_and_used():
    runs, missed, narrower = 100, 0, 0
    for run in range(runs):
        rng = np.random.default_rng(run)
        world = World.draw(rng, d=3, norm=1.0)
        levels = rng.choice([0.05, 1.0], 20)
        X = rng.uniform(-1, 1, (20, 1))
        y = world.f(X) + levels * rng.standard_normal(20)
        knows = ConfidenceSequence(world.kernel, noise_std=1.0, norm_bound=1.0, delta=DELTA)
        knows.tell(X, y, noise_std=levels)
        blind = ConfidenceSequence(world.kernel, noise_std=1.0, norm_bound=1.0, delta=DELTA)
        blind.tell(X, y)
        missed += not covered(knows, world.f(GRID), GRID)
        widths = [np.ptp(s.interval(GRID), axis=0).mean() for s in (knows, blind)]
        narrower += widths[0] < widths[1]
    assert missed <= failures_allowed(runs, DELTA)
    assert narrower == runs


def test_half_widths_of_the_one_dimensional_example():
    """Section 6 with signed coefficients: far below "paper", near the true kernel.

    k_full had 11.8 at t = 0 and 0.385 at t = 50 in 200 runs of an independent program.
    """
    fine = np.linspace(-1, 1, 201)[:, None]
    widths = {}
    for seed in range(10):
        world = paper_example(np.random.default_rng(seed))
        X = world.rng.uniform(-1, 1, (50, 1))
        y = world.observe(X)
        for name, kernel, options in (
            ("default", world.kernel, {}),
            ("full", KernelSum.uniform(BASE, weight=1.0), {}),
            ("true", true_kernel(world), {"norm_of": "kernel"}),
            (
                "paper",
                world.kernel,
                {"method": ClosedForm("paper", beta_min=1.0, recovery_error=0.0)},
            ),
        ):
            sequence = ConfidenceSequence(
                kernel, noise_std=SIGMA, norm_bound=10.0, points=fine, **options
            )
            before = np.ptp(sequence.interval(), axis=0).mean() / 2
            for part in np.split(np.arange(50), 10):
                sequence.tell(X[part], y[part])
            after = np.ptp(sequence.interval(), axis=0).mean() / 2
            widths.setdefault(name, []).append((before, after))
    mean = {name: np.mean(values, axis=0) for name, values in widths.items()}
    assert mean["default"][1] <= 0.05 * mean["paper"][1]
    assert mean["default"][1] <= 2 * mean["true"][1]
    assert mean["full"][0] == pytest.approx(11.84, rel=1e-3)
    assert mean["full"][1] == pytest.approx(0.385, rel=0.5)
