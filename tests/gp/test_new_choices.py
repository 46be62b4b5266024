"""Tasks with choices that no past task had."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel import learn_prior
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.optimize import Optimizer
from metakel.space import Categorical, Float, Space
from metakel.tuner import Tuner

SPACE = Space((Float("x", -1, 1), Categorical("kind", ("a", "b", "c")), Float("y", -1, 1)))
WIDER = Space(
    (Float("x", -1, 1), Categorical("kind", ("b", "d", "a", "c", "e")), Float("y", -1, 1))
)
GAINS = {"a": 0.0, "b": 0.3, "c": 0.1, "d": 0.8, "e": -0.5}


def value(point, shift=0.0):
    x, y = point["x"], point["y"]
    return GAINS[point["kind"]] - (x - 0.4 - shift) ** 2 - (y + 0.2) ** 2


@pytest.fixture(scope="module")
def prior():
    rng, tasks = np.random.default_rng(0), []
    for s in range(8):
        X = SPACE.sample(rng, 25)
        shift = 0.1 * rng.standard_normal()
        y = np.array([value(point, shift) for point in SPACE.decode(X)])
        tasks.append(Task(X, y, f"task {s}"))
    found = learn_prior(History(tuple(tasks), SPACE), certify="none")
    assert found.helps
    return found


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(1)
    return SPACE.decode(SPACE.sample(rng, 40))


def test_known_choices_are_judged_as_without_new_ones(prior, points):
    narrow, wide = prior.optimizer(), prior.optimizer(space=WIDER)
    assert_allclose(wide.predict(points), narrow.predict(points), rtol=1e-9, atol=1e-9)


def test_before_any_value_a_new_choice_is_like_all_others_and_less_certain(prior, points):
    mean, sd = prior.optimizer().predict(points)
    for kind in ("d", "e"):
        there, unsure = prior.optimizer(space=WIDER).predict([{**p, "kind": kind} for p in points])
        ranges = [prior.optimizer().predict([{**p, "kind": k} for p in points])[0] for k in "abc"]
        assert (there > np.min(ranges, axis=0) - sd / 2).all()
        assert (there < np.max(ranges, axis=0) + sd / 2).all()
        assert (unsure > 1.2 * sd).all()
    assert len(mean) == len(points)


def test_what_is_seen_of_one_new_choice_says_less_of_another(prior):
    optimizer, point = prior.optimizer(space=WIDER), {"x": 0.4, "y": -0.2}
    here = [{**point, "kind": kind} for kind in "de"]
    before = optimizer.predict(here)
    optimizer.tell(here[0], before[0][0] + 0.5)
    after = optimizer.predict(here)
    tried, other = after[0] - before[0]
    assert tried > 1.5 * other > 0
    assert after[1][0] < 0.3 * before[1][0]
    assert after[1][1] > 0.7 * before[1][1]


@pytest.fixture(params=["learned", "cold"])
def process(request, prior):
    processes = prior.task_model(choices=(WIDER["kind"],)).prior.processes
    return processes[0 if request.param == "learned" else -1]


def test_the_kernel_is_positive_semidefinite_and_its_diagonal_is_stated(process):
    points = process.prepare(np.random.default_rng(2).uniform(-1, 1, (40, 7)))
    K = process.gram(points, points)
    assert_allclose(K, K.T, atol=1e-12)
    assert_allclose(np.diag(K), points.diag, rtol=1e-9)
    assert np.linalg.eigvalsh(K).min() > -1e-9


def test_derivatives_are_those_of_finite_differences(process):
    rng, step = np.random.default_rng(3), 1e-6
    X, Z = rng.uniform(-1, 1, (3, 7)), rng.uniform(-1, 1, (4, 7))
    left, points = process.prepare(X), process.prepare(Z)
    slopes = process.derivatives(points, Z)
    dK = process.gram_derivative(left, points, slopes)
    for i in range(7):
        ahead, behind = (process.prepare(Z + s * step * np.eye(7)[i]) for s in (1, -1))
        between = (process.gram(left, ahead) - process.gram(left, behind)) / (2 * step)
        assert_allclose(dK[:, :, i], between, atol=1e-6)
        assert_allclose(slopes.mean[:, i], (ahead.mean - behind.mean) / (2 * step), atol=1e-6)
        assert_allclose(slopes.diag[:, i], (ahead.diag - behind.diag) / (2 * step), atol=1e-6)


def searched(optimizer, trials=12):
    for _ in range(trials):
        point = optimizer.ask()
        optimizer.tell(point, value(point))
    return optimizer


def test_a_new_choice_that_is_best_is_found(prior, tmp_path):
    optimizer = searched(prior.optimizer(space=WIDER))
    assert optimizer.best().x["kind"] == "d"
    assert optimizer.best().value > 0.78
    assert "no past task had kind d, kind e" in optimizer.certificate().reason
    optimizer.save(tmp_path / "optimizer.json")
    assert Optimizer.load(tmp_path / "optimizer.json").ask() == optimizer.ask()


def test_a_new_choice_joins_beside_a_new_parameter(prior):
    wider = Space((*WIDER.parameters, Float("u", 0, 1)))
    optimizer = prior.optimizer(space=WIDER, new=(wider["u"],))
    for _ in range(12):
        point = optimizer.ask()
        optimizer.tell(point, value(point) - 0.2 * (point["u"] - 0.7) ** 2)
    assert optimizer.best().x["kind"] == "d"
    assert optimizer.best().value > 0.75


def test_a_tuner_refuses_new_choices_and_says_what_to_do(prior, tmp_path):
    with pytest.raises(InputError, match="choice 'd' of 'kind', which no past task had"):
        Tuner(prior, tmp_path / "run.jsonl", space=WIDER)
    assert not (tmp_path / "run.jsonl").exists()
