"""Power series of a path: every order of B.6, and sums that a certificate accepts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import draw

from metakel.grouplasso import lambda_max, solve
from metakel.grouplasso.path.batched_newton import ActiveColumns
from metakel.grouplasso.path.batched_path import MAX_ACTIVE, all_columns
from metakel.grouplasso.path.series import TERMS, expand, find_stages, sum_up
from metakel.grouplasso.problem import columns_of, group_sums

CASES = [((40,) * 6, (1,) * 8), ((30, 45, 38), (2, 1, 3, 1))]


def everything_of(sizes, dims, seed=0, active=3):
    problem = draw(seed, sizes, dims, active=active).problem()
    return problem, all_columns(problem)


def expanded(everything, shape, lowest):
    stages = find_stages(everything, shape, lowest, MAX_ACTIVE)
    groups = np.array(stages.groups)
    columns = everything.select(groups)
    return stages, groups, columns, expand(stages, columns.dims, shape[groups])


def stage_columns(everything, groups, k):
    return everything.select(groups[:k])


@pytest.mark.parametrize(("sizes", "dims"), CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_order_satisfies_the_optimality_conditions(sizes, dims, weighted):
    """(G + sigma E) beta = h with E = w / ||beta^(j)||, as far as the series goes."""
    problem, everything = everything_of(sizes, dims)
    shape = np.linspace(1, 2, problem.p) if weighted else np.ones(problem.p)
    _, groups, _, series = expanded(everything, shape, 5e-2 * lambda_max(problem, shape))
    for k, beta in enumerate(series.beta, start=1):
        columns = stage_columns(everything, groups, k)
        norms = series.norms[k - 1][:, :k]
        squares = np.array(
            [
                group_sums(
                    sum(np.einsum("cm,cm->c", beta[i], beta[n - i]) for i in range(n + 1)),
                    columns.starts,
                )
                for n in range(TERMS + 1)
            ]
        )
        for n in range(TERMS + 1):
            terms = np.array([norms[i] * norms[n - i] for i in range(n + 1)])
            # Rounding is that of the terms, which may cancel.
            assert (np.abs(terms.sum(0) - squares[n]) <= 1e-8 * np.abs(terms).sum(0)).all()
        # n E = w, so n (h - G beta) / sigma = w beta: order by order.
        left = -np.einsum("abm,nbm->nam", columns.G, beta)
        left[0] += columns.h
        assert_allclose(left[0], 0.0, atol=1e-10)
        spread = np.array([columns.spread(n) for n in norms])
        for n in range(TERMS):
            terms = np.array([spread[i][:, None] * left[n + 1 - i] for i in range(n + 1)])
            wanted = columns.spread(shape[groups[:k]])[:, None] * beta[n]
            size = np.abs(terms).sum(0).max(axis=1, keepdims=True)
            assert (np.abs(terms.sum(0) - wanted) <= 1e-8 * size).all()


@pytest.mark.parametrize(("sizes", "dims"), CASES)
def test_a_stage_is_least_squares_on_its_groups(sizes, dims):
    problem, everything = everything_of(sizes, dims)
    stages, groups, _, _ = expanded(everything, np.ones(problem.p), 1e-3 * lambda_max(problem))
    inverses, fits = stages.inverses(), stages.least_squares()
    for k, end in enumerate(stages.ends, start=1):
        columns = stage_columns(everything, groups, k)
        assert not inverses[k - 1, end:].any()
        assert not fits[k - 1, end:].any()
        for s in range(problem.m):
            G, h = columns.G[:, :, s], columns.h[:, s]
            assert_allclose(inverses[k - 1, :end, :end, s] @ G, np.eye(len(h)), atol=1e-9)
            assert_allclose(G @ fits[k - 1, :end, s], h, atol=1e-9)


@pytest.mark.parametrize(("sizes", "dims"), CASES)
def test_sums_are_the_solutions_where_their_error_is_small(sizes, dims):
    problem, everything = everything_of(sizes, dims)
    shape, top = np.ones(problem.p), lambda_max(problem)
    sigma = top * np.geomspace(1, 1e-2, 25)
    stages, groups, columns, series = expanded(everything, shape, sigma[-1])
    sums = sum_up(series, sigma, shape[groups], stages.top)
    good = sums.clear & (sums.error < 1e-9 * problem.energy)
    assert 5 < good.sum() < sigma.size  # near the entries of groups the series are worse
    order = np.concatenate([batch.tasks for batch in problem.batches])
    for i in np.flatnonzero(good):
        best = solve(problem, sigma[i], tol=1e-13)
        assert_allclose(sums.norms[i], best.eta[groups], atol=1e-6)
        places = columns_of(groups, everything.starts)
        assert_allclose(sums.beta[:, :, i].T, best.beta[order][:, places], atol=1e-6)
        assert not best.eta[np.setdiff1d(np.arange(problem.p), groups)].any()


def test_an_entry_that_the_series_cannot_see_is_never_clear():
    """Where a stage ends because its series diverges, no lower stage is trusted."""
    columns = strongly_coupled()
    shape = np.ones(2)
    stages, groups, _, series = expanded(columns, shape, 1e-4)
    sigma = stages.top * np.geomspace(1, 1e-4, 60)
    sums = sum_up(series, sigma, shape[groups], stages.top)
    trusted = sums.clear & (sums.error < 1e-8 * columns.energy)
    for i in np.flatnonzero(trusted):
        z = columns.h[:, :, None] - np.einsum(
            "abm,bml->aml", columns.G, sums.beta[np.argsort(groups)]
        )
        scores = np.sqrt(np.einsum("aml,aml->al", z, z))
        assert scores[:, i].max() <= sigma[i] * (1 + 1e-3)


def strongly_coupled():
    """Two columns that are nearly the same in one task and far apart in another."""
    G = np.empty((2, 2, 2))
    G[:, :, 0], G[:, :, 1] = [[1, 0.98], [0.98, 1]], [[1, -0.6], [-0.6, 1]]
    beta = np.array([[1.0, 0.3], [-0.4, 0.5]])
    h = np.einsum("abm,bm->am", G, beta)
    return ActiveColumns(G, h, np.arange(3), float(np.vdot(h, beta)))


def test_nothing_enters_where_columns_repeat_or_vanish():
    problem, everything = everything_of((20, 20), (1,) * 4)
    twice = np.arange(4).repeat(2)
    G = everything.G[twice][:, twice]
    repeated = ActiveColumns(G, everything.h[twice], np.arange(9), everything.energy)
    stages = find_stages(repeated, np.ones(8), 1e-6 * lambda_max(problem), MAX_ACTIVE)
    assert len({j // 2 for j in stages.groups}) == len(stages.groups) <= 4
    blank = ActiveColumns(np.zeros((2, 2, 3)), np.zeros((2, 3)), np.arange(3), 1.0)
    assert find_stages(blank, np.ones(2), 0.0, MAX_ACTIVE).groups == []


def test_entries_stop_where_columns_become_many():
    problem, everything = everything_of((30,) * 4, (3, 1, 2, 1, 1), active=5)
    shape = np.ones(problem.p)
    full = find_stages(everything, shape, 1e-4 * lambda_max(problem), MAX_ACTIVE)
    few = find_stages(everything, shape, 1e-4 * lambda_max(problem), 4)
    assert few.groups == full.groups[: len(few.groups)]
    assert len(few.columns) <= 4 < len(full.columns)
    assert few.floor > full.floor
