"""Processes on tasks with inputs that no past task had."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel import learn_prior
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.gp.processes import NEW_VARIANCE
from metakel.optimize import Optimizer
from metakel.space import Categorical, Float, Space

RNG = np.random.default_rng(0)
KNOWN = Space((Float("x", -1, 1), Float("y", -1, 1)))
NEW = (Float("u", 0.0, 10.0), Categorical("kind", ("a", "b")))


@pytest.fixture(scope="module")
def prior():
    tasks = []
    for s in range(6):
        X = RNG.uniform(-1, 1, (20, 2))
        shift = 0.1 * RNG.standard_normal(2)
        tasks.append(Task(X, -((X - 0.4 - shift) ** 2).sum(axis=1), name=f"task {s}"))
    found = learn_prior(History(tuple(tasks), KNOWN), certify="none")
    assert found.helps
    return found


@pytest.fixture(scope="module", params=["learned", "cold"])
def process(request, prior):
    return prior.task_processes[0][0 if request.param == "learned" else -1]


def widened(process, d_new):
    return process.widened(d_new, np.eye(2 + d_new), ())


def test_points_that_differ_in_new_inputs_only_have_the_same_mean(prior):
    process = widened(prior.task_processes[0][0], 2)
    Z = RNG.uniform(-1, 1, (5, 4))
    other = Z.copy()
    other[:, 2:] = RNG.uniform(-1, 1, (5, 2))
    assert_allclose(process.prepare(Z).mean, process.prepare(other).mean, rtol=1e-12)
    assert_allclose(process.prepare(Z).mean, prior.task_gp.mean(Z[:, :2]), rtol=1e-12)


def test_where_new_inputs_do_not_move_the_past_is_as_it_was(prior):
    """Up to the effect of the new inputs, which is the same or nearly so everywhere."""
    learned = prior.task_processes[0][0]
    X, far = RNG.uniform(-1, 1, (6, 2)), np.full((6, 1), 60.0)
    extended = widened(learned, 1)
    here, away = (extended.prepare(np.hstack([X, u])) for u in (np.zeros((6, 1)), far))
    past = learned.gram(learned.prepare(X), learned.prepare(X))
    assert_allclose(extended.gram(here, away), past, atol=1e-9)
    excess = extended.gram(here, here) - past
    assert excess.min() > 0
    assert_allclose(np.diag(excess), NEW_VARIANCE, rtol=1e-9)


def test_the_kernel_is_positive_semidefinite_and_its_diagonal_is_stated(process):
    extended = widened(process, 2)
    points = extended.prepare(RNG.uniform(-1, 1, (40, 4)))
    K = extended.gram(points, points)
    assert_allclose(K, K.T, atol=1e-12)
    assert_allclose(np.diag(K), points.diag, rtol=1e-9)
    assert np.linalg.eigvalsh(K).min() > -1e-9


def test_derivatives_are_those_of_finite_differences(process):
    extended, step = widened(process, 2), 1e-6
    X, Z = RNG.uniform(-1, 1, (3, 4)), RNG.uniform(-1, 1, (4, 4))
    left, points = extended.prepare(X), extended.prepare(Z)
    slopes = extended.derivatives(points, Z)
    dK = extended.gram_derivative(left, points, slopes)
    for i in range(4):
        ahead, behind = (extended.prepare(Z + s * step * np.eye(4)[i]) for s in (1, -1))
        between = (extended.gram(left, ahead) - extended.gram(left, behind)) / (2 * step)
        assert_allclose(dK[:, :, i], between, atol=1e-6)
        assert_allclose(slopes.mean[:, i], (ahead.mean - behind.mean) / (2 * step), atol=1e-6)
        assert_allclose(slopes.diag[:, i], (ahead.diag - behind.diag) / (2 * step), atol=1e-6)


def measured(point):
    effect = 0.2 * (point["u"] - 7) ** 2 / 10 + 0.3 * (point["kind"] == "a")
    return -((point["x"] - 0.4) ** 2) - (point["y"] - 0.4) ** 2 - effect


def test_new_parameters_are_optimized_with_the_known_ones(prior, tmp_path):
    optimizer = prior.optimizer(new=NEW)
    for _ in range(15):
        point = optimizer.ask()
        assert point.keys() == {"x", "y", "u", "kind"}
        optimizer.tell(point, measured(point))
    assert optimizer.best().value > -0.02
    assert optimizer.best().x["kind"] == "b"
    assert optimizer.trust > 0.5
    assert "no past task had u, kind" in optimizer.certificate().reason
    optimizer.save(tmp_path / "optimizer.json")
    assert Optimizer.load(tmp_path / "optimizer.json").ask() == optimizer.ask()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"new": (Float("x", 0, 1),)}, "'x' is not new: past tasks have it"),
        ({"new": NEW, "candidates": [{"x": 0.0, "y": 0.0}]}, "fixed or new parameters"),
    ],
)
def test_what_cannot_be_new_is_refused(prior, options, says):
    with pytest.raises(InputError, match=says):
        prior.optimizer(**options)
