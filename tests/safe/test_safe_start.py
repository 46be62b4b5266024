"""A start set from past tasks holds an unsafe point with probability at most its delta."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from worlds import failures_allowed

import metakel as mk
from gpucb import gpucb
from metakel import safe
from metakel.optimize import Optimizer
from metakel.safe.start import TaskRecord

BASE = mk.kernels.legendre(8, scaling="sup")
KERNEL = mk.KernelSum.uniform(BASE, active=[0, 2, 5])
X = np.linspace(-1, 1, 61)
GRID = mk.grid([(-1, 1)], 61)
PHI = KERNEL.features(X[:, None])


def world(rng, tasks=30, n=12, noise=0.05, dense=False):
    """Past tasks around a common mean, and a new one; a third of the mean is below the limit."""
    mean = rng.uniform(0.1, 1, 3) * rng.choice([-1, 1], 3)
    thetas = mean + 0.12 * rng.normal(size=(tasks + 1, 3))
    pairs = []
    for theta in thetas[:-1]:
        x = X[:, None] if dense else rng.uniform(-1, 1, (n, 1))
        pairs.append((x, KERNEL.features(x) @ theta + noise * rng.normal(size=len(x))))
    return mk.History.from_pairs(pairs), PHI @ thetas[-1], float(np.quantile(PHI @ mean, 1 / 3))


def start(history, limit, base=KERNEL, **options):
    given = {"noise_std": 0.05, "at_least": limit, "delta": 0.1, "teach": 0.3, **options}
    return safe.safe_start(history, base, domain=GRID, **given)


def search(found, limit):
    return gpucb(
        found.kernel,
        GRID,
        rng=np.random.default_rng(0),
        noise_std=0.05,
        center=found.center,
        norm_bound=found.norm_bound,
        norm_of="kernel",
        at_least=limit,
        start=found,
        delta=0.2,
    )


def test_it_holds_an_unsafe_point_with_probability_at_most_delta_and_the_norm_bound_holds():
    rng = np.random.default_rng(0)
    unsafe = too_large = size = 0
    for _ in range(120):
        history, f, limit = world(rng)
        found = start(history, limit)
        inside = found.contains(X)
        size += inside.mean()
        unsafe += bool((f[inside] < limit).any())
        theta = np.linalg.lstsq(PHI, f, rcond=None)[0]
        too_large += np.linalg.norm(theta - found.center.coefficients) > found.norm_bound
    assert found.delta == pytest.approx(0.11)  # the kernel was given, not learned
    assert unsafe + too_large <= failures_allowed(120, 0.11)
    assert size / 120 > 0.2


def test_the_best_half_by_the_mean_of_the_past_is_not_safe():
    """The negative control: no calibration."""
    rng = np.random.default_rng(1)
    unsafe = 0
    for _ in range(60):
        history, f, limit = world(rng)
        mean = start(history, limit).center(X[:, None])
        unsafe += bool((f[mean > np.quantile(mean, 0.45)] < limit).any())
    assert unsafe > 12


def test_the_norm_of_a_record_is_the_largest_over_all_directions():
    """r <= <u, b> + z ||u/s|| for the direction u of the truth, whichever it is."""
    rng = np.random.default_rng(9)
    task = mk.Task(rng.uniform(-1, 1, (9, 1)), rng.normal(size=9))
    record = TaskRecord.of(KERNEL, task, 0.05)
    center = rng.normal(size=3)
    u = rng.normal(size=(100_000, 3))
    u /= np.linalg.norm(u, axis=1)[:, None]
    z = np.sqrt(2 * np.log(1 / 0.01))
    allowed = u @ (record.theta - center)
    allowed += z * np.linalg.norm(u @ record.directions / record.singular, axis=1)
    assert allowed.max() <= record.largest_norm(center, 0.01) <= allowed.max() * 1.001


def test_a_record_fails_at_one_point_and_in_one_direction_with_probability_at_most_delta():
    rng, delta, runs = np.random.default_rng(10), 0.1, 2000
    x, theta = rng.uniform(-1, 1, (12, 1)), np.array([0.4, -0.3, 0.2])
    F, point, center = KERNEL.features(x), PHI[[20]], np.array([0.5, 0.5, 0.5])
    above = small = by_the_mean = 0
    for _ in range(runs):
        noise = 0.05 * rng.choice([-1.0, 1.0], 12)
        record = TaskRecord.of(KERNEL, mk.Task(x, F @ theta + noise), 0.05)
        above += record.band(point, delta)[0][0] > point[0] @ theta
        small += record.largest_norm(center, delta) < np.linalg.norm(theta - center)
        by_the_mean += point[0] @ record.theta > point[0] @ theta
    assert max(above, small) <= failures_allowed(runs, delta)
    assert by_the_mean > failures_allowed(runs, delta)  # the negative control


def test_it_shrinks_with_the_limit_and_grows_with_delta():
    history, _, limit = world(np.random.default_rng(2))
    sizes = [start(history, limit + shift).share(X) for shift in (-0.3, 0.0, 0.1, 0.3)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    sizes = [start(history, limit, delta=delta).share(X) for delta in (0.05, 0.1, 0.3)]
    assert sizes == sorted(sizes)


def test_without_noise_records_say_what_dense_tables_say():
    history, _, limit = world(np.random.default_rng(3), noise=0.0, dense=True)
    records, tables = (start(history, limit, noise_std=noise) for noise in (1e-7, 0.0))
    assert_array_equal(records.contains(X), tables.contains(X))
    assert_allclose(records.norm_bound, tables.norm_bound, rtol=1e-4)
    assert (records.delta, tables.delta) == (pytest.approx(0.11), 0.1)


def test_the_order_of_tasks_within_each_half_does_not_matter():
    history, _, limit = world(np.random.default_rng(4), tasks=20)
    tasks = history.tasks
    again = mk.History((*tasks[:6][::-1], *tasks[6:][::-1]))
    first, second = start(history, limit), start(again, limit)
    assert_allclose(first.level, second.level)
    assert_allclose(first.norm_bound, second.norm_bound)


def test_two_outputs_share_one_calibration():
    rng = np.random.default_rng(5)
    history, _, limit = world(rng)
    heat, hot, ceiling = world(rng)
    limits = {"heat": safe.LimitHistory(heat, KERNEL, 0.05, at_most=-ceiling)}
    one, both = start(history, limit), start(history, limit, limits=limits)
    assert len(both.scores) == 2
    assert both.delta == one.delta
    assert set(both.limits()) == {"heat"}
    assert both.limits()["heat"].norm_bound == both.outputs["heat"].norm_bound


def test_too_few_tasks_vouch_for_nothing_and_it_is_said():
    history, _, limit = world(np.random.default_rng(6), tasks=12)
    found = start(history, limit, delta=0.05)
    assert not found.contains(X).any()
    assert found.norm_bound is None
    assert (found.tasks, found.rank) == (8, 9)  # of 8 scores none is the 9th smallest
    assert "8 calibration tasks are too few for delta = 0.05; 19 are" in str(found)
    assert "19 are needed" in str(found)


def test_a_search_begins_there_and_is_stored_with_it():
    history, f, limit = world(np.random.default_rng(7))
    found = start(history, limit, base=BASE, delta_learning=0.02)
    assert found.delta == pytest.approx(0.13)
    game = search(found, limit)
    x = game.ask()
    inside = X[found.contains(X)]
    means = found.center(inside[:, None])
    assert x[0] == inside[np.argmax(means)]  # the first point is the best by the past
    game.tell(x, float(f[int(np.argmin(np.abs(X - x[0])))]))
    again = Optimizer.from_dict(game.to_dict())
    assert_array_equal(again.allowed(X), game.allowed(X))
    assert_array_equal(again.ask(), game.ask())


def test_delta_must_leave_something_for_the_search():
    history, _, limit = world(np.random.default_rng(8))
    found = start(history, limit)
    with pytest.raises(mk.InputError, match="nothing is left"):
        gpucb(
            found.kernel,
            GRID,
            rng=np.random.default_rng(0),
            noise_std=0.05,
            norm_bound=found.norm_bound,
            at_least=limit,
            start=found,
            delta=0.1,
        )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"at_least": None}, "no limit"),
        ({"delta": 0.0}, "delta is"),
        ({"teach": 0.99}, "at least one"),
        ({"noise_std": -1.0}, "noise_std"),
        ({"noise_std": 0.0}, "exact values of all 61 points"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(options, says):
    history, _, limit = world(np.random.default_rng(9))
    with pytest.raises(mk.InputError, match=says):
        start(history, limit, **options)
