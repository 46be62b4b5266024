"""learn_prior on histories good, bad and degenerate."""

from __future__ import annotations

import numpy as np
import pytest
from histories import draw_task, learn, shape, simulate

from metakel import datasets, learn_prior
from metakel.data import History, Task
from metakel.errors import InputError, ShapeError
from metakel.gp.processes import LearnedProcess
from metakel.optimize import Optimizer
from metakel.optimize.mixture import OVERRULED
from metakel.priors.learn import cold_prior
from metakel.space import Fixed, Float, Space


def search(prior, X, y, horizon=20):
    optimizer = prior.optimizer(X, extrapolate=True)
    values = {tuple(x): float(value) for x, value in zip(X.tolist(), y, strict=True)}
    for _ in range(horizon):
        x = optimizer.ask()
        optimizer.tell(x, values[tuple(x.values())])
    return optimizer


def regret(prior, X, y, horizon=20):
    best = search(prior, X, y, horizon).best().value
    return (y.max() - best) / (y.max() - np.median(y))


@pytest.fixture(scope="module")
def prior():
    return learn(simulate(np.random.default_rng(0), m=20))


def test_the_common_shape_is_found(prior):
    X = np.random.default_rng(1).uniform(-0.95, 0.95, (300, 2))
    assert np.corrcoef(prior.mean(X), shape(X))[0, 1] > 0.9
    assert prior.helps
    assert prior.heldout.log_score > 0.5
    assert prior.heldout.better_than_cold > 0.5 * len(prior.heldout.tasks)


def test_differences_are_sparse_and_few(prior):
    # three functions make the tasks differ (plus their interplay with the scale)
    assert 1 <= prior.task_gp.eta.size <= 30
    assert np.sort(prior.task_gp.eta)[-3:].min() > 1.5 * np.median(prior.task_gp.eta)


def test_a_learned_prior_beats_a_cold_start_on_tasks_like_the_past():
    rng = np.random.default_rng(5)
    history = simulate(rng, m=20)
    learned = learn(history)
    shuffled = History(tuple(Task(t.X, rng.permutation(t.y)) for t in history))
    cold = learn(shuffled)  # is refused, so this is a cold start
    assert not cold.helps
    X = rng.uniform(-1, 1, (300, 2))
    tasks = [draw_task(rng)(X) for _ in range(20)]
    ours, theirs = (np.mean([regret(p, X, y, 4) for y in tasks]) for p in (learned, cold))
    assert ours < 0.7 * theirs


def test_unrelated_histories_cost_little():
    """Shuffled targets: never worse than 1.15x the cold start's regret at 20 evaluations."""
    rng = np.random.default_rng(6)
    history = simulate(rng, m=16)
    X = rng.uniform(-1, 1, (300, 2))
    tasks = [draw_task(rng, spread=1.0)(X) for _ in range(12)]
    shuffled = learn(History(tuple(Task(t.X, rng.permutation(t.y)) for t in history)))
    assert not shuffled.helps
    assert "NOT used" in str(shuffled)
    rough = learn(History(tuple(Task(t.X[:1], t.y[:1]) for t in history)))  # levels only
    one, other = (np.mean([regret(p, X, y) for y in tasks]) for p in (shuffled, rough))
    assert one <= 1.15 * other + 0.005


def test_a_mirrored_history_loses_weight_and_costs_little():
    rng = np.random.default_rng(7)
    history = simulate(rng, m=16, spread=0.1)
    honest = learn(history)
    mirrored = learn(History(tuple(Task(-t.X, t.y) for t in history)))
    cold = learn(History(tuple(Task(t.X, rng.permutation(t.y)) for t in history)))
    assert mirrored.helps  # held-out tasks are mirrored alike: nothing to see there
    assert not cold.helps
    X = rng.uniform(-1, 1, (300, 2))
    tasks = [draw_task(rng, spread=0.1)(X) for _ in range(8)]
    trusts = [np.mean([search(p, X, y, 8).trust for y in tasks]) for p in (mirrored, honest)]
    assert trusts[0] < 0.8 < 0.9 < trusts[1]
    misled, start = (np.mean([regret(p, X, y) for y in tasks]) for p in (mirrored, cold))
    assert misled <= 1.15 * start + 0.005


@pytest.mark.parametrize("running", [0, 2])
def test_a_cold_start_decides_while_the_history_is_overruled(running):
    """From the same values it asks for the same point, and what is shown is what it says."""
    rng = np.random.default_rng(7)
    history = simulate(rng, m=16, spread=0.1)
    misled = learn(History(tuple(Task(-t.X, t.y) for t in history)))
    cold = cold_prior(misled.space)
    X = rng.uniform(-1, 1, (300, 2))
    y, same = draw_task(rng, spread=0.1)(X), []
    values = {tuple(x): float(value) for x, value in zip(X.tolist(), y, strict=True)}
    pair = [p.optimizer(X, extrapolate=True) for p in (misled, cold)]
    optimizer, names = pair[0], misled.space.names
    for each in pair:
        each.add_pending([dict(zip(names, x, strict=True)) for x in X[:running].tolist()])
    for _ in range(12):
        asked = optimizer.ask()
        for each in pair:
            each.tell(asked, values[tuple(asked.values())])
        shown, expected = (each.predict(X) for each in pair)
        same.append(pair[0].peek() == pair[1].peek() and np.allclose(shown, expected))
        assert same[-1] == (optimizer.trust < OVERRULED)
    assert {True, False} == set(same)
    again = Optimizer.from_dict(optimizer.to_dict())
    assert again.peek() == optimizer.peek()


def test_an_outlier_task_is_named():
    rng = np.random.default_rng(8)
    tasks = list(simulate(rng, m=14))
    X = rng.uniform(-1, 1, (25, 2))
    odd = Task(X, 3 * np.sign(np.sin(40 * X[:, 0]) * np.sin(55 * X[:, 1])), "odd")
    prior = learn(History((*tasks, odd)))
    assert "odd" in prior.outliers
    assert len(prior.outliers) <= 2
    assert "Predicted worse than white noise by the other tasks" in str(prior)


def test_adding_levels_and_scaling_outputs_changes_no_decision():
    rng = np.random.default_rng(9)
    history = simulate(rng, m=12)
    X = rng.uniform(-1, 1, (200, 2))
    y = draw_task(rng)(X)
    moved = History(tuple(Task(t.X, 7 + 3 * t.y) for t in history))
    runs = [search(learn(h), X, v, 8) for h, v in ((history, y), (moved, 7 + 3 * y))]
    rows = [[trial.point for trial in run.record.trials] for run in runs]
    assert rows[0] == rows[1]


def test_very_bad_values_do_not_hide_the_shape():
    rng = np.random.default_rng(10)
    history = simulate(rng, m=12)
    crashed = [Task(t.X, np.where(t.X[:, 0] < -0.85, -1000.0, t.y), t.name) for t in history]
    prior = learn(History(tuple(crashed)))
    assert prior.info.winsorized >= 12
    X = rng.uniform(-0.7, 0.95, (300, 2))
    assert np.corrcoef(prior.mean(X), shape(X))[0, 1] > 0.85
    assert prior.model.scale < 10


def test_zero_mean_is_the_papers_prior():
    history = simulate(np.random.default_rng(11))
    prior = learn(history, mean=False, cold_weight=0)
    assert not prior.task_gp.mu.any()
    assert all(isinstance(gp, LearnedProcess) for gp in prior.task_processes[0])  # no cold start
    X = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    assert np.ptp(prior.mean(X)) == 0


@pytest.mark.parametrize("lam", ["cv", "square-root", 0.01])
def test_every_rule_for_lambda_gives_a_prior(lam):
    prior = learn(simulate(np.random.default_rng(12)), lam=lam)
    assert prior.helps
    assert prior.task_gp.eta.size <= 100


def test_names_that_tasks_share_change_nothing_but_the_names():
    named = simulate(np.random.default_rng(15), m=9)
    X = np.random.default_rng(0).uniform(-1, 1, (25, 2))
    odd = Task(X, 3 * np.sign(np.sin(40 * X[:, 0]) * np.sin(55 * X[:, 1])), "odd")
    own = (Task(X, np.full(25, 0.5), "flat"), *named.tasks, odd)
    alike = tuple(Task(t.X, t.y) for t in own)  # every name is the default
    one, other = (learn_prior(History(tasks), certify="none") for tasks in (own, alike))
    np.testing.assert_array_equal(one.calibration.norms, other.calibration.norms)
    np.testing.assert_array_equal(one.heldout.log_scores, other.heldout.log_scores)
    assert len(set(other.info.tasks)) == len(own)
    number = {name: i for i, name in enumerate(other.info.tasks)}
    assert "odd" in one.outliers
    assert tuple(own[number[name]].name for name in other.outliers) == one.outliers
    assert [own[number[name]].name for name in other.info.constant] == ["flat"]


def test_a_history_with_a_space_takes_no_other():
    plain = simulate(np.random.default_rng(14), m=6)
    own = Space((Float("a", -2, 2), Float("b", -2, 2)))
    history = History(plain.tasks, own)
    assert learn_prior(history, own, certify="none").space == own
    with pytest.raises(InputError, match=r"space of its own \(a, b\)"):
        learn_prior(history, Space((Float("a", -3, 3), Float("b", -2, 2))))


def degenerate() -> dict[str, History]:
    rng = np.random.default_rng(13)
    good = simulate(rng, m=6)
    X = rng.uniform(-1, 1, (25, 2))
    return {
        "one task": History(good.tasks[:1]),
        "two tasks": History(good.tasks[:2]),
        "one point per task": History(tuple(Task(t.X[:1], t.y[:1]) for t in good)),
        "two points per task": History(tuple(Task(t.X[:2], t.y[:2]) for t in good)),
        "constant outputs": History(tuple(Task(t.X, np.full(t.n, 3.0)) for t in good)),
        "one constant task": History((*good.tasks, Task(X, np.full(25, 0.5), "flat"))),
        "duplicated rows": History(
            tuple(Task(np.tile(t.X, (3, 1)), np.tile(t.y, 3)) for t in good)
        ),
        "constant column": History(
            tuple(Task(np.column_stack([t.X, np.full(t.n, 4.0)]), t.y) for t in good)
        ),
        "large values": History(tuple(Task(t.X, 1e9 + t.y) for t in good)),
        "sizes that differ": History(
            tuple(Task(t.X[: 3 + 4 * i], t.y[: 3 + 4 * i]) for i, t in enumerate(good))
        ),
    }


@pytest.mark.parametrize("case", list(degenerate()))
def test_degenerate_histories_give_a_prior_that_decides(case):
    history = degenerate()[case]
    prior = learn_prior(history)
    assert str(prior)
    X = np.random.default_rng(0).uniform(-0.3, 0.3, (30, history.d0))
    if history.d0 == 3:
        X[:, 2] = 4.0
        assert prior.space["x2"] == Fixed("x2", 4.0)
    optimizer = prior.optimizer(X, extrapolate=True)
    rows = []
    for i in range(10):
        x = optimizer.ask()
        rows.append(tuple(x.values()))
        optimizer.tell(x, float(i % 3))
    assert len(set(rows)) == 10
    mean, sd = optimizer.predict(X)
    assert np.isfinite(mean).all()
    assert (sd >= 0).all()


def test_a_space_can_be_given_to_unnamed_inputs():
    history = simulate(np.random.default_rng(14), m=6)
    space = Space((Float("a", -2, 2), Float("b", -2, 2)))
    assert learn_prior(history, space, certify="none").space is space
    with pytest.raises(ShapeError, match="2 inputs but the space 1"):
        learn_prior(history, Space((Float("a", -2, 2),)))
    with pytest.raises(InputError, match="expected a History"):
        learn_prior([1, 2])
    with pytest.raises(InputError, match="cold_weight is 1"):
        learn_prior(history, cold_weight=1)


def test_the_bundled_history_teaches_that_lambda_matters():
    history = datasets.load_glmnet()
    assert history.m == 37
    assert history.space.names == ("alpha", "lambda")
    small = History(
        tuple(Task(t.X[::23], t.y[::23], t.name) for t in history), history.space, history.report
    )
    prior = learn(small)
    explained = prior.explain()
    assert explained.common["lambda"] > 0.7 > explained.common["alpha"]
    assert "maximise auc" in str(prior)
    assert "exchangeable" in str(prior)
