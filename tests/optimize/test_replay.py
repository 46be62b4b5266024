"""Replays count what a policy would have violated, and bound what it will."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binom

import metakel as mk
from metakel.optimize.policy_replay import PastRun, Table, replay

X = np.linspace(-1, 1, 21)


def tables(rng, count):
    """Tasks with a threshold of their own: f(x) >= 0 up to it."""
    edges = rng.uniform(0, 1, count)
    return [Table(X, edge - X, outputs={"heat": X + edge}) for edge in edges], edges


def up_to(limit):
    def policy(past: PastRun) -> None:
        for x in past.domain.X[past.domain.X[:, 0] <= limit]:
            past.measure(x)

    return policy


def test_the_count_is_exact_for_a_policy_that_is_unsafe_by_construction():
    past, edges = tables(np.random.default_rng(0), 30)
    found = replay(up_to(0.5), past, at_least=0.0, rng=np.random.default_rng(0))
    expected = edges < 0.5 - 1e-12
    assert found.unsafe.tolist() == expected.tolist()
    assert found.count == expected.sum()
    assert found.rows == ([*range(16)],) * 30
    assert found.expected == (found.count + 1) / 31
    assert found.bound(0.95) == pytest.approx(beta.ppf(0.95, found.count + 1, 30 - found.count))
    assert str(found.count) in str(found)


def test_limits_of_other_outputs_count_too():
    past, edges = tables(np.random.default_rng(1), 20)
    found = replay(up_to(0.0), past, limits={"heat": (None, 0.5)}, rng=np.random.default_rng(0))
    assert found.unsafe.tolist() == (edges > 0.5).tolist()


def careful(past: PastRun, margin: float) -> None:
    """Goes up while the noisy value is above the margin."""
    for x in past.domain.X[10:]:
        if past.measure(x)[0] < margin:
            return


def test_a_margin_chosen_by_replay_keeps_delta_on_new_tasks():
    unsafe, rng = 0, np.random.default_rng(2)
    for _ in range(30):
        past, _ = tables(rng, 21)
        options = {"at_least": 0.0, "noise_std": 0.05, "rng": rng}
        grid = [0.0, 0.1, 0.2, 0.5]
        margin = replay(careful, past[:20], margins=grid, **options).margin(0.1)
        unsafe += replay(lambda p, b=margin: careful(p, b), past[20:], **options).count
    assert unsafe <= binom.ppf(1 - 1e-4, 30, 0.1)


def test_a_larger_margin_never_counts_more_even_where_the_policy_is_odd():
    """A policy that is unsafe at the largest margin only is refused at every margin."""
    past, _ = tables(np.random.default_rng(3), 20)

    def odd(run: PastRun, margin: float) -> None:
        run.measure(run.domain.X[-1] if margin == 2.0 else run.domain.X[0])

    found = replay(odd, past, margins=[2.0, 1.0], at_least=0.0, rng=np.random.default_rng(0))
    with pytest.raises(mk.InputError, match="20 of 20"):
        found.margin(0.2)


def test_a_run_that_finds_no_safe_point_violates_nothing():
    past, _ = tables(np.random.default_rng(4), 3)
    kernel = mk.KernelSum.uniform(mk.legendre(2, scaling="sup", degrees=[0, 1]), weight=1.0)

    def policy(run: PastRun) -> None:
        game = mk.GPUCB(
            kernel, run.domain, rng=run.rng, noise_std=0.01, norm_bound=2.0, at_least=0.0
        )
        run.run(game, 5)

    found = replay(policy, past, at_least=0.0, noise_std=0.01, rng=np.random.default_rng(0))
    assert found.count == 0
    assert found.rows == ([], [], [])


def test_an_optimizer_is_a_policy():
    past, _ = tables(np.random.default_rng(5), 4)
    kernel = mk.KernelSum.uniform(mk.legendre(2, scaling="sup", degrees=[0, 1]), weight=1.0)

    def policy(run: PastRun) -> None:
        options = {"noise_std": 0.01, "norm_bound": 2.0, "start": [[-1.0]]}
        heat = mk.Limit(kernel, 0.01, norm_bound=2.0, at_most=5.0)
        limits = {"heat": heat}
        game = mk.GPUCB(kernel, run.domain, rng=run.rng, at_least=0.0, limits=limits, **options)
        run.run(game, 6)

    noise = {"": 0.01, "heat": 0.01}
    found = replay(policy, past, at_least=0.0, noise_std=noise, rng=np.random.default_rng(0))
    assert found.count == 0
    assert [len(rows) for rows in found.rows] == [6] * 4


def test_what_is_missing_is_said():
    past, _ = tables(np.random.default_rng(6), 2)
    rng = np.random.default_rng(0)
    with pytest.raises(mk.InputError, match="no limit"):
        replay(up_to(0), past, rng=rng)
    with pytest.raises(mk.InputError, match="no output 'cold'"):
        replay(up_to(0), past, limits={"cold": (0, None)}, rng=rng)
    with pytest.raises(mk.InputError, match="no margins"):
        replay(up_to(0), past, at_least=0.0, rng=rng).margin(0.1)
    with pytest.raises(mk.InputError, match="no tables"):
        replay(up_to(0), [], at_least=0.0, rng=rng)
