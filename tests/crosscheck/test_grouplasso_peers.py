"""Eq. 8 against other people's solvers, each on the dense block-diagonal design of Figure 7."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.grouplasso import Problem, lambda_max, solve

DIMS = (1, 3, 2, 1, 2)
D = sum(DIMS)
EDGES = np.concatenate([[0], np.cumsum(DIMS)])
GROUPS = [slice(int(a), int(b)) for a, b in pairwise(EDGES)]


def draw(seed, sizes=(12, 20, 9)):
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((len(sizes), D)) * np.repeat([1, 0, 1, 0, 1], DIMS)
    Phi = [rng.standard_normal((n, D)) for n in sizes]
    y = [F @ b + 0.3 * rng.standard_normal(len(F)) for F, b in zip(Phi, signal, strict=True)]
    return Phi, y


def stacked(Phi, y):
    """Design, observations and, for every group, its columns in all tasks."""
    design, row = np.zeros((sum(map(len, Phi)), len(Phi) * D)), 0
    for s, F in enumerate(Phi):
        design[row : row + len(F), s * D : (s + 1) * D] = F
        row += len(F)
    places = [np.concatenate([s * D + np.r_[g] for s in range(len(Phi))]) for g in GROUPS]
    return design, np.concatenate(y), places


def ours(Phi, y, share=0.2):
    problem = Problem.from_tasks(Phi, y, GROUPS)
    lam = share * lambda_max(problem)
    return solve(problem, lam, tol=1e-13), lam


def celer_beta(Phi, y, alpha):
    celer = pytest.importorskip("celer")
    design, target, places = stacked(Phi, y)
    model = celer.GroupLasso(
        groups=[list(map(int, place)) for place in places],
        alpha=alpha,
        fit_intercept=False,
        tol=1e-12,
        max_iter=500,
    )
    return model.fit(np.asfortranarray(design), target).coef_.reshape(len(Phi), D)


def skglm_beta(Phi, y, alpha):
    skglm = pytest.importorskip("skglm")
    design, target, places = stacked(Phi, y)
    # skglm wants the columns of a group side by side.
    order = np.concatenate(places)
    model = skglm.GroupLasso(
        groups=[place.size for place in places],
        alpha=alpha,
        fit_intercept=False,
        tol=1e-10,
        max_iter=500,
    )
    coefficients = np.empty(order.size)
    coefficients[order] = model.fit(np.asfortranarray(design[:, order]), target).coef_
    return coefficients.reshape(len(Phi), D)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", [celer_beta, skglm_beta])
def test_half_of_lambda_is_the_alpha_of_peers_and_lambda_is_not(peer):
    Phi, y = draw(0)
    solution, lam = ours(Phi, y)
    assert 0 < solution.active.size < len(DIMS)
    assert_allclose(peer(Phi, y, alpha=lam / 2), solution.beta, atol=1e-5)
    assert np.abs(peer(Phi, y, alpha=lam) - solution.beta).max() > 0.05


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(5))
def test_the_joint_problem_in_eta_and_f_by_a_conic_solver(seed):
    """Eq. 7 as it stands, jointly convex in (eta, f) once written quadratic over linear."""
    cp = pytest.importorskip("cvxpy")
    Phi, y = draw(seed)
    solution, lam = ours(Phi, y)
    N = sum(map(len, y))
    eta, b = cp.Variable(len(DIMS)), cp.Variable((len(Phi), D))
    loss = sum(cp.sum_squares(v - F @ b[s]) for s, (F, v) in enumerate(zip(Phi, y, strict=True)))
    norms = sum(cp.quad_over_lin(cp.vec(b[:, g], order="F"), eta[j]) for j, g in enumerate(GROUPS))
    joint = cp.Problem(cp.Minimize(loss / N + lam / 2 * (norms + cp.sum(eta))))
    value = joint.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    assert_allclose(solution.objective, value, rtol=1e-7)
    assert_allclose(solution.eta, eta.value, atol=1e-5 * solution.eta.max())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_form_by_a_conic_solver(seed):
    """f eliminated: matrix-fractional in eta, knowing Gram matrices only."""
    cp = pytest.importorskip("cvxpy")
    Phi, y = draw(seed, sizes=(7, 9))
    grams = [np.stack([F[:, g] @ F[:, g].T for g in GROUPS]) for F in Phi]
    problem = Problem.from_grams(grams, y)
    lam, N = 0.2 * lambda_max(problem), sum(map(len, y))
    solution = solve(problem, lam, tol=1e-13)
    eta = cp.Variable(len(DIMS), nonneg=True)
    terms = [
        cp.matrix_frac(
            v, sum(eta[j] * K[j] for j in range(len(DIMS))) + N * lam / 2 * np.eye(v.size)
        )
        for K, v in zip(grams, y, strict=True)
    ]
    form = cp.Problem(cp.Minimize(lam / 2 * (sum(terms) + cp.sum(eta))))
    value = form.solve(solver="CLARABEL")
    assert_allclose(solution.objective, value, rtol=1e-6)
    assert_allclose(solution.eta, eta.value, atol=1e-4 * solution.eta.max())


@pytest.mark.filterwarnings("ignore")
def test_one_lambda_per_group_by_a_conic_solver():
    cp = pytest.importorskip("cvxpy")
    Phi, y = draw(4)
    problem = Problem.from_tasks(Phi, y, GROUPS, loss="tasks")
    lam = np.array([0.1, 0.3, 0.2, 0.05, 0.4]) * lambda_max(problem)
    solution = solve(problem, lam, tol=1e-13)
    b = cp.Variable((len(Phi), D))
    losses = [
        cp.sum_squares(v - F @ b[s]) / len(v) for s, (F, v) in enumerate(zip(Phi, y, strict=True))
    ]
    penalty = sum(lam[j] * cp.norm(b[:, g], "fro") for j, g in enumerate(GROUPS))
    value = cp.Problem(cp.Minimize(sum(losses) / len(Phi) + penalty)).solve(
        solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    assert_allclose(solution.objective, value, rtol=1e-7)
    assert_allclose(solution.beta, b.value, atol=1e-4)
