"""What estimates are worth: recomputed from the raw data, whatever they claim."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import draw

from metakel.grouplasso import lambda_max, solve
from metakel.grouplasso.path.batched_path import Estimate, certify

DIMS = (1, 2, 3, 1)


def some_estimate(data, problem, groups, rng, count=3):
    """Coefficients that are no solution at all, tasks in the order of the batches."""
    order = np.concatenate([batch.tasks for batch in problem.batches])
    columns = np.concatenate([np.arange(problem.d)[problem.columns(j)] for j in groups])
    beta = 0.3 * rng.standard_normal((columns.size, problem.m, count))
    full = np.zeros((count, problem.m, problem.d))
    full[:, order[:, None], columns] = beta.transpose(2, 1, 0)
    return Estimate(np.array(groups), columns, beta, np.zeros(count, np.intp)), full


@pytest.mark.parametrize("sizes", [(12,) * 5, (30, 8, 14, 29)])
@pytest.mark.parametrize("groups", [[0, 1, 2, 3], [1, 3]])
def test_any_coefficients_get_their_own_gap_and_violation(sizes, groups, rng):
    data = draw(0, sizes, DIMS)
    problem = data.problem()
    estimate, full = some_estimate(data, problem, groups, rng)
    lam = lambda_max(problem) * rng.uniform(0.2, 1, (len(full), 4))
    energy = sum(v @ v for v in data.y) / data.N
    certified = certify(problem, estimate, lam, 1e-10)
    for i, (beta, strength) in enumerate(zip(full, lam, strict=True)):
        found = certified.solution(i)
        gap = data.primal(beta, strength) - data.dual(data.dual_point(beta, strength))
        assert_allclose(found.beta, beta)
        assert_allclose(found.gap, gap / energy, rtol=1e-9)
        assert_allclose(found.kkt, data.kkt(beta, strength), rtol=1e-9)
        assert_allclose(found.eta, data.norms(beta))
        assert not found.converged  # nothing random is optimal


def test_a_solution_is_certified_and_a_spoilt_one_is_not(rng):
    data = draw(1, (15,) * 6, DIMS)
    problem = data.problem()
    lam = 0.3 * lambda_max(problem) * np.ones((2, 4))
    best = solve(problem, lam[0], tol=1e-13)
    both = np.stack([best.beta.T, 1.001 * best.beta.T], axis=2)
    everything = Estimate(np.arange(4), np.arange(problem.d), both, np.zeros(2, np.intp))
    assert certify(problem, everything, lam, 1e-10).converged.tolist() == [True, False]
