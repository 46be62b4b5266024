"""The alarm rings when something is wrong, rarely otherwise, and the fallback covers."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose
from worlds import BASE, GRID, SIGMA, World, covered, failures_allowed, paper_example

from metakel.confidence import DMM, Alarm, ConfidenceSequence
from metakel.confidence.fallback import hypotheses
from metakel.kernels import KernelSum, legendre, squared_exponential

DELTA = 0.1


def without_one(kernel, rng):
    return KernelSum.uniform(kernel.base, active=np.delete(kernel.active, rng.integers(5)))


def run(world, kernel, *, steps, every=5, **options):
    settings = {"noise_std": SIGMA, "norm_bound": 10.0, "delta": DELTA, **options}
    sequence = ConfidenceSequence(kernel, **settings)
    for _ in range(steps // every):
        X = world.rng.uniform(-1, 1, (every, 1))
        sequence.tell(X, world.observe(X))
    return sequence


def test_a_missing_base_kernel_is_noticed_by_t_50_and_the_fallback_covers():
    runs, rung, missed = 60, 0, 0
    for seed in range(runs):
        world = paper_example(np.random.default_rng(seed))
        wrong = without_one(world.kernel, world.rng)
        sequence = run(world, wrong, steps=50)
        rung += sequence.alarm is not None
        if sequence.alarm:
            assert sequence.hypothesis.kernel is sequence.full
            missed += not covered(sequence, world.f(GRID), GRID)
    assert rung >= 0.9 * runs
    assert missed <= failures_allowed(runs, DELTA)


def test_without_the_second_kernel_a_missing_one_goes_unnoticed():
    """Negative control: the radius is relative to the same model, so nothing looks wrong."""
    rung = 0
    for seed in range(20):
        world = paper_example(np.random.default_rng(seed))
        wrong = without_one(world.kernel, world.rng)
        plain = DMM(noise_weight=0)  # nor does it know how large noise alone can be
        sequence = run(world, wrong, steps=20, full=wrong, norm_bound=1e4, method=plain)
        rung += sequence.alarm is not None
    assert rung <= 2


def test_gp_ucb_chooses_points_at_which_a_missing_kernel_cannot_be_heard():
    """Some function of the narrow kernel, within the norm bound, has the same values there."""
    narrow, imitated = KernelSum.uniform(BASE, active=[1, 4, 8]), {True: 0, False: 0}
    points = np.linspace(-1, 1, 41)[:, None]
    values = BASE.features(points)
    for seed in range(8):
        for greedy in imitated:
            rng, theta = np.random.default_rng(seed), np.zeros(BASE.p)
            theta[[1, 4, 8]] = 20 * rng.standard_normal(3)
            theta[12] = 10 * rng.choice([-1, 1])
            bound, f = 2 * float(np.linalg.norm(theta)), values @ theta
            sequence = ConfidenceSequence(narrow, noise_std=1.0, norm_bound=bound, points=points)
            rows = []
            for _ in range(20):
                upper = sequence.interval()[1]
                rows.append(int(upper.argmax()) if greedy else int(rng.integers(len(points))))
                sequence.tell(points[rows[-1:]], f[rows[-1:]] + rng.standard_normal(1))
            tried = narrow.features(points[rows])
            g = np.linalg.lstsq(tried, f[rows], rcond=None)[0]
            same = np.abs(tried @ g - f[rows]).max() < 1e-6
            imitated[greedy] += bool(same and np.linalg.norm(g) <= bound)
    assert imitated[True] >= 4
    assert imitated[False] == 0


def test_false_alarms_have_probability_at_most_delta():
    runs = 150
    rung = sum(
        run(w, w.kernel, steps=30).alarm is not None
        for w in (paper_example(np.random.default_rng(1000 + s)) for s in range(runs))
    )
    assert rung <= failures_allowed(runs, DELTA)


def test_without_features_a_norm_bound_far_too_small_is_doubled_until_it_fits():
    kernel = KernelSum.uniform(squared_exponential([0.7], d0=1), weight=1.0)
    rng = np.random.default_rng(0)
    centers = rng.uniform(-1, 1, (4, 1))
    weights = rng.normal(size=4)
    norm = sqrt(weights @ kernel(centers) @ weights)
    X = rng.uniform(-1, 1, (40, 1))
    sequence = ConfidenceSequence(kernel, noise_std=SIGMA, norm_bound=norm / 30, points=GRID)
    sequence.tell(X, kernel(X, centers) @ weights + SIGMA * rng.normal(size=40))
    assert norm / 30 < sequence.hypothesis.norm_bound <= 2 * norm
    assert len(sequence.alarms) >= 2


def test_nothing_fits_noise_that_is_said_to_be_a_hundredth():
    world = World.draw(np.random.default_rng(0), d=2, norm=1.0, noise_std=1.0)
    sequence = run(world, world.kernel, steps=40, noise_std=0.01, norm_bound=1.0, points=GRID)
    assert sequence.hypothesis is None
    assert np.isinf(sequence.interval(GRID)).all()
    assert "noise_std" in sequence.alarm.reason
    assert "nothing" in repr(sequence)


def test_raise_tells_and_keeps_the_observation():
    world = paper_example(np.random.default_rng(3))
    wrong = without_one(world.kernel, world.rng)
    sequence = ConfidenceSequence(wrong, noise_std=SIGMA, norm_bound=10.0, on_alarm="raise")
    X = world.rng.uniform(-1, 1, (30, 1))
    with pytest.raises(Alarm, match="after 30 observations"):
        sequence.tell(X, world.observe(X))
    assert sequence.t == 30
    assert sequence.alarm.time == 30
    assert covered(sequence, world.f(GRID), GRID)
    sequence.tell(X[:1], world.observe(X[:1]))  # it rings once


def test_ignore_goes_on_with_the_same_kernel_and_intervals_that_are_not_empty():
    world = paper_example(np.random.default_rng(3))
    wrong = without_one(world.kernel, world.rng)
    sequence = run(world, wrong, steps=30, on_alarm="ignore", points=GRID)
    assert sequence.alarm is not None
    assert sequence.hypothesis.kernel is wrong
    for lower, upper in (sequence.interval(), sequence.interval(GRID)):
        assert (lower <= upper).all()


def test_sets_that_are_disjoint_in_time_ring_too():
    """On the domain the intersection is empty, although each set alone is not."""
    kernel = KernelSum.uniform(legendre(1, scaling="sup", degrees=[0]), weight=1.0)
    sequence = ConfidenceSequence(kernel, noise_std=1.0, norm_bound=50.0, points=np.zeros((1, 1)))
    sequence.tell(np.zeros((100, 1)), np.full(100, 5.0))
    assert sequence.alarm is None
    for _ in range(4):
        sequence.tell(np.zeros((100, 1)), np.full(100, -5.0))
    assert sequence.alarm is not None


def test_fallbacks_widen_step_by_step_with_the_certified_norms():
    kernel = KernelSum.uniform(BASE, active=[1, 2], weight=0.25)
    sequence = ConfidenceSequence(kernel, noise_std=1, norm_bound=3.0)
    ladder, _ = hypotheses(sequence.options, kernel, sequence.full)
    assert_allclose([h.norm_bound for h in ladder], [3.0 / sqrt(0.25), 3.0, np.inf])
    assert [len(h.kernel.active) for h in ladder] == [2, 20, 20]
