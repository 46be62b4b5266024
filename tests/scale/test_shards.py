"""Shards answer with sums: however the tasks are cut, the solution is that of one process."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sharded_histories import KERNELS, LEGENDRE, PAIRS, history

import metakel as mk
from metakel.grouplasso import lambda_max, solve
from metakel.learn import as_problem
from metakel.learn.problem import estimate_noise_std, refitted_weights
from metakel.learn.rules import choose_lambda, pivotal_lambda
from metakel.scale import distribute

BASES = {"one column each": LEGENDRE, "pairs of columns": PAIRS, "kernels": KERNELS}


@pytest.mark.parametrize("loss", ["points", "tasks"])
@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_any_number_of_shards_gives_the_solution_of_one_process(rng, base, loss):
    tasks = history(rng)
    whole = as_problem(tasks, base, loss)
    lam = 0.1 * lambda_max(whole) * np.linspace(1.0, 1.4, base.p)
    expected = solve(whole, lam, tol=1e-13)
    assert expected.active.size
    for shards in (1, 2, 7):
        found = solve(distribute(tasks, shards=shards).as_problem(base, loss), lam, tol=1e-13)
        assert_allclose(found.eta, expected.eta, rtol=0, atol=1e-10)
        assert_allclose(found.objective, expected.objective, rtol=1e-12)
        assert found.gap <= 1e-13
        assert found.kkt < 1e-7


@pytest.mark.parametrize("base", [LEGENDRE, KERNELS], ids=["features", "kernels"])
def test_without_memory_everything_is_computed_again_to_the_same_answer(rng, base):
    tasks = history(rng)
    lam = 0.1 * lambda_max(as_problem(tasks, base))
    answers = [
        solve(distribute(tasks, shards=3, memory=memory).as_problem(base), lam, tol=1e-13)
        for memory in (10**9, 0)
    ]
    assert_allclose(answers[0].eta, answers[1].eta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", ["points", "tasks"])
def test_lambda_rules_read_the_same_from_shards(rng, loss):
    tasks = history(rng)
    whole, cut = as_problem(tasks, PAIRS, loss), distribute(tasks, shards=4).as_problem(PAIRS, loss)
    for rule in ("self-normalised", "hkz", "chernoff", "dimension-free", "paper"):
        lam = [
            choose_lambda(rule, problem, noise_std=0.1, delta=0.1, sup=PAIRS.sup)
            for problem in (whole, cut)
        ]
        assert_allclose(lam[0], lam[1], rtol=1e-10)
    assert_allclose(pivotal_lambda(whole, delta=0.1), pivotal_lambda(cut, delta=0.1), rtol=1e-10)
    assert_allclose(lambda_max(whole), lambda_max(cut), rtol=1e-12)
    with pytest.raises(mk.InputError, match="simulate noise"):
        choose_lambda("monte-carlo", cut, noise_std=0.1, delta=0.1, rng=rng)


@pytest.mark.parametrize("loss", ["points", "tasks"])
def test_refit_and_noise_read_the_same_from_shards(rng, loss):
    tasks = history(rng, sizes=(12, 30))
    whole, cut = as_problem(tasks, PAIRS, loss), distribute(tasks, shards=4).as_problem(PAIRS, loss)
    lam = 0.2 * lambda_max(whole)
    one, many = solve(whole, lam), solve(cut, lam)
    assert_allclose(estimate_noise_std(whole, one), estimate_noise_std(cut, many), rtol=1e-9)
    assert_allclose(
        refitted_weights(whole, one.active, 0.1),
        refitted_weights(cut, many.active, 0.1),
        rtol=1e-8,
    )


def without_gap(learned):
    return re.sub(r"gap \S+", "gap", str(learned))  # both are far below the tolerance


def test_learning_from_shards_is_learning(rng):
    tasks = history(rng, m=40)
    for noise_std in (0.1, None):
        whole = mk.learn_kernel(tasks, LEGENDRE, noise_std=noise_std, weights="eta", refit=True)
        cut = mk.learn_kernel(
            distribute(tasks, shards=3), LEGENDRE, noise_std=noise_std, weights="eta", refit=True
        )
        assert_allclose(cut.kernel.eta, whole.kernel.eta, rtol=1e-6, atol=1e-12)
        assert_allclose(cut.noise_std, whole.noise_std, rtol=1e-6)
        assert without_gap(cut) == without_gap(whole)
        assert "needs all tasks in memory" in cut.report()
    with pytest.raises(mk.InputError, match="stay with the shards"):
        _ = cut.solution.residuals


def test_a_round_brings_back_few_numbers(rng):
    tasks = history(rng, m=60)
    problem = distribute(tasks, shards=2).as_problem(LEGENDRE)
    _ = problem.summary
    before = problem.executor.numbers_received
    evaluator = problem.evaluator()
    evaluator.extend(np.arange(10))
    evaluator.at(np.array([1, 4, 6]), np.full(3, 0.5))
    evaluator.hessian(np.array([1, 4, 6]))
    # value, p scores, p_A x p_A Hessian from each of two shards
    assert problem.executor.numbers_received - before == 2 * (1 + 10 + 9)


def test_progress_tells_stage_share_and_time_left(rng):
    seen = []
    scan = distribute(history(rng), shards=4, progress=seen.append)
    mk.learn_kernel(scan, LEGENDRE, noise_std=0.1)
    reading = [step for step in seen if step.stage == "reading"]
    assert [(step.done, step.total) for step in reading] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert reading[-1].seconds_left == 0.0 < reading[0].seconds_left
    assert {"round 1", "certificate"} <= {step.stage for step in seen}
