"""Newton's method for many lambdas at once, against plain linear algebra for each of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.grouplasso.newton import bounded_newton, dual_value
from metakel.grouplasso.path.batched_newton import (
    ActiveColumns,
    dual_values,
    newton_step,
    restricted_solve,
)

DIMS = [(1, 1, 1, 1), (2, 1, 3)]
M, L = 7, 5


def drawn(dims, seed=0):
    rng = np.random.default_rng(seed)
    c = sum(dims)
    F = rng.standard_normal((M, c, c + 4)) / 4
    y = rng.standard_normal((M, c + 4))
    G = (F @ F.transpose(0, 2, 1)).transpose(1, 2, 0).copy()
    h = np.einsum("scn,sn->cs", F, y)
    starts = np.array([0, *np.cumsum(dims)])
    # Energy y'y/2, so that energy - h'beta/2 is y'r/2 as in `evaluator`.
    columns = ActiveColumns(G, h, starts, 0.5 * float(np.vdot(y, y)))
    x = rng.uniform(0.1, 3, (len(dims), L))
    x[rng.uniform(size=x.shape) < 0.3] = 0.0
    return columns, x


@pytest.mark.parametrize("dims", DIMS)
def test_a_point_and_its_hessian_are_those_of_every_lambda_and_task(dims):
    columns, x = drawn(dims)
    point = columns.point(x, columns.memory(L))
    beta, z = point.beta.copy(), point.z.copy()
    H = columns.hessian(point)
    spread = np.repeat(x, dims, axis=0)
    groups = np.repeat(np.arange(len(dims)), dims)
    for i in range(L):
        X, expected = np.diag(spread[:, i]), np.zeros((len(dims), len(dims)))
        for s in range(M):
            G, h = columns.G[:, :, s], columns.h[:, s]
            own = np.linalg.solve(np.eye(len(h)) + G @ X, h)
            assert_allclose(z[:, i, s], own, atol=1e-12)
            assert_allclose(beta[:, i, s], X @ own, atol=1e-12)
            Q = G @ np.linalg.inv(np.eye(len(h)) + X @ G)
            np.add.at(expected, np.ix_(groups, groups), np.outer(own, own) * Q)
        assert_allclose(H[:, :, i], expected, atol=1e-10)
        fit = np.vdot(beta[:, i], columns.h)
        assert_allclose(point.data[i], columns.energy - 0.5 * fit, rtol=1e-12)


@pytest.mark.parametrize("dims", DIMS)
def test_scores_halve_into_the_gradient(dims):
    """dg/dx_j = (lam_j^2 - ||z^(j)||^2) / 2, by differences of y'r/N."""
    columns, x = drawn(dims)
    point, step = columns.point(x, columns.memory(L)), 1e-6
    for j in range(len(dims)):
        moved = x.copy()
        moved[j] += step
        slope = (columns.point(moved, columns.memory(L)).data - point.data) / step
        assert_allclose(slope, -0.5 * point.scores[j], rtol=1e-4)


def test_fewer_lambdas_of_a_point_are_copies():
    columns, x = drawn(DIMS[0])
    memory = columns.memory(L)
    point = columns.point(x, memory)
    few = point.at(np.array([3, 1]))
    kept = few.z.copy()
    assert_allclose(kept, point.z[:, [3, 1]])
    memory[:] = np.nan
    assert_allclose(few.z, kept)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_the_bounded_newton_step_of_every_lambda(seed):
    columns, x = drawn(DIMS[0], seed)
    point = columns.point(x, columns.memory(L))
    lam = np.sqrt(point.scores) * np.random.default_rng(seed).uniform(0.7, 1.4, x.shape)
    H = columns.hessian(point)
    stepped = newton_step(H, x, point.scores, lam)
    assert (stepped >= 0).all()
    for i in range(L):
        v = point.scores[:, i]
        places = np.flatnonzero((x[:, i] > 0) | (v > lam[:, i] ** 2))
        q = v * (1 - np.sqrt(v) / lam[:, i])
        exact = np.zeros(len(x))
        own = H[np.ix_(places, places, [i])][:, :, 0]
        exact[places] = bounded_newton(own, q[places], x[places, i])
        if (exact[places] > 0).all():  # the bounds are handled by guesses only
            assert_allclose(stepped[:, i], exact, rtol=1e-7)


def test_fixed_groups_move_by_the_given_amounts():
    rng = np.random.default_rng(0)
    F = rng.standard_normal((4, 9, L))
    H = np.einsum("anl,bnl->abl", F, F)
    free = rng.uniform(size=(4, L)) < 0.6
    q, held = rng.standard_normal((4, L)), np.where(free, 0.0, rng.uniform(size=(4, L)))
    t = restricted_solve(H, free, q, held)
    assert_allclose(t[~free], held[~free])
    assert_allclose(np.einsum("abl,bl->al", H, t)[free], q[free], rtol=1e-8)


def test_dual_values_are_those_of_one_lambda():
    rng = np.random.default_rng(0)
    inner, square = rng.standard_normal(50), rng.uniform(size=50)
    square[::7] = 0.0
    norms, lam = rng.uniform(0, 3, (3, 50)), rng.uniform(0.5, 2, (3, 50))
    found = dual_values(inner, square, (norms / lam).max(axis=0))
    for i in range(50):
        one = dual_value(inner[i], square[i], norms[:, i], lam[:, i])
        assert_allclose(found[i], one, rtol=1e-12)


@pytest.mark.parametrize("dims", DIMS)
def test_a_short_step_needs_no_second_look(dims):
    """`nearby` errs in second order: a tenth of the step, a hundredth of the error."""
    columns, x = drawn(dims)
    direction = np.random.default_rng(1).uniform(-1, 1, x.shape) * (x > 0)
    errors = []
    for size in (1e-2, 1e-3):
        point = columns.point(x, columns.memory(L))
        columns.hessian(point)
        step = size * direction
        found = point.nearby(columns.spread(x + step), columns.spread(step))
        exact = columns.point(x + step, columns.memory(L)).beta
        errors.append(np.abs(found - exact).max())
    assert 50 < errors[0] / errors[1] < 200
