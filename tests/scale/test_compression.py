"""What is left out of the data changes no sum."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sharded_histories import KERNELS, LEGENDRE, PAIRS, history, write

import metakel as mk
from metakel.grouplasso import lambda_max, solve
from metakel.learn import as_problem
from metakel.scale import distribute
from metakel.scale.blocks import Rows, compressed, stack
from metakel.scale.shard import Shard


def rows_of(tasks):
    return Rows(
        np.concatenate([task.X for task in tasks]),
        np.concatenate([task.y for task in tasks]),
        tasks.sizes,
    )


@pytest.mark.parametrize("exact", [True, False])
def test_triangular_factors_stand_for_any_number_of_points(rng, exact):
    tasks = history(rng, m=12, sizes=(40, 40))
    whole = as_problem(tasks, PAIRS)
    (block,) = stack(rows_of(tasks), np.arange(12), PAIRS)
    small = compressed(block.problem(PAIRS, "points"), exact=exact)
    assert small.batches[0].n == PAIRS.dim + 1 < whole.batches[0].n
    assert small.total == whole.total
    lam = 0.1 * lambda_max(whole)
    one, other = solve(whole, lam, tol=1e-12), solve(small, lam, tol=1e-12)
    assert_allclose(other.eta, one.eta, rtol=1e-8)
    assert_allclose(other.objective, one.objective, rtol=1e-10)


def test_dependent_columns_are_compressed_too(rng):
    tasks = history(rng, m=3, sizes=(40, 40))
    doubled = LEGENDRE + LEGENDRE
    (block,) = stack(rows_of(tasks), np.arange(3), doubled)
    raw = block.problem(doubled, "points")
    small = compressed(raw, exact=False)
    for problem in (raw, small):
        (batch,) = problem.batches
        gram = batch.Phi @ batch.Phi.transpose(0, 2, 1)
        assert_allclose(gram, raw.batches[0].Phi @ raw.batches[0].Phi.transpose(0, 2, 1), atol=1e-9)


def test_blocks_hold_every_task_once_with_little_padding(rng):
    tasks = history(rng, m=50, sizes=(5, 60))
    blocks = stack(rows_of(tasks), np.arange(50), LEGENDRE)
    assert sorted(np.concatenate([b.sizes for b in blocks])) == sorted(tasks.sizes)
    for block in blocks:
        assert block.sizes.min() >= 0.75 * block.y.shape[1]
    energy = sum(float(np.vdot(b.y, b.y)) for b in blocks)
    assert_allclose(energy, sum(float(task.y @ task.y) for task in tasks))


@pytest.mark.parametrize("base", [LEGENDRE, PAIRS, KERNELS], ids=["single", "pairs", "kernels"])
@pytest.mark.parametrize("loss", ["points", "tasks"])
def test_tasks_on_a_grid_share_one_gram_matrix(rng, base, loss):
    tasks = history(rng, m=60, sizes=(9, 9), shared=True)
    shard = Shard([rows_of(tasks)], base, loss, 10**8)
    shard.summarize()
    (part,) = shard._store.parts
    ((block),) = part.blocks(base)
    assert (len(block.X), len(block.y), block.count) == (1, 9, 60)
    whole = as_problem(tasks, base, loss)
    lam = 0.1 * lambda_max(whole)
    found = solve(distribute(tasks, shards=2).as_problem(base, loss), lam, tol=1e-13)
    assert_allclose(found.eta, solve(whole, lam, tol=1e-13).eta, rtol=0, atol=1e-10)


def test_grids_keep_lambda_rules_and_noise(rng):
    from metakel.learn.problem import estimate_noise_std
    from metakel.learn.rules import choose_lambda

    tasks = history(rng, m=60, sizes=(12, 12), shared=True)
    whole, cut = as_problem(tasks, LEGENDRE), distribute(tasks, shards=2).as_problem(LEGENDRE)
    for rule in ("self-normalised", "hkz", "chernoff"):
        lam = [choose_lambda(rule, p, noise_std=0.1, delta=0.1) for p in (whole, cut)]
        assert_allclose(lam[0], lam[1], rtol=1e-10)
    one, many = solve(whole, lam[0]), solve(cut, lam[0])
    assert_allclose(estimate_noise_std(whole, one), estimate_noise_std(cut, many), rtol=1e-9)


def test_nothing_of_a_file_is_kept_without_memory(rng, tmp_path):
    tasks, small = history(rng, m=8, sizes=(60, 60)), LEGENDRE.select([1, 4])
    write(tmp_path, tasks)
    lam = 0.1 * lambda_max(as_problem(tasks, small))
    expected = solve(as_problem(tasks, small), lam, tol=1e-12)
    for memory, kept in ((10**8, True), (0, False)):
        scan = mk.History.scan(tmp_path, memory=memory, shards=1)
        found = solve(scan.as_problem(small), lam, tol=1e-12)
        assert_allclose(found.eta, expected.eta, atol=1e-9)
        (shard,) = scan.as_problem(small).executor._shards
        for part in shard._store.parts:
            assert part.points is None
            assert (part.statistics is not None) == kept
            assert (part.working_set_nbytes(1.0) > 0) == kept


def test_statistics_are_kept_instead_of_points_where_they_are_smaller(rng):
    small = LEGENDRE.select([1, 4])
    for n, kept in ((200, True), (3, False)):
        tasks = history(rng, m=4, sizes=(n, n))
        shard = Shard([rows_of(tasks)], small, "points", 10**8)
        shard.summarize()
        (part,) = shard._store.parts
        assert (part.statistics is not None) == kept
        assert (part.points is None) == kept
    lam = 0.1 * lambda_max(as_problem(tasks, small))
    found = solve(distribute(tasks, shards=1).as_problem(small), lam, tol=1e-12)
    assert_allclose(found.eta, solve(as_problem(tasks, small), lam, tol=1e-12).eta, atol=1e-10)
