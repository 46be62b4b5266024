"""Why a point is suggested: the numbers of the model that chose it, within limits, and changing
nothing."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

import metakel as mk
from gpucb import gpucb
from metakel.errors import InputError
from metakel.priors.learn import KEPT_RUNS


@cache
def accuracies(minimize: bool = False, m: int = 10) -> mk.Prior:
    """Shares close to their limit; with ``minimize``, one minus them."""
    rng = np.random.default_rng(0)
    output = "error_share" if minimize else "accuracy"
    rows: dict[str, list] = {name: [] for name in ("task", "a", "kind", output)}
    for s in range(m):
        shift = 0.2 * rng.standard_normal()
        for _ in range(15):
            a, kind = float(rng.uniform(-1, 1)), str(rng.choice(["x", "y"]))
            value = 0.98 - 0.3 * (a - shift) ** 2 - 0.1 * (kind == "x")
            for name, cell in zip(rows, (s, a, kind, value), strict=True):
                rows[name].append(1 - cell if minimize and name == output else cell)
    history = mk.History.from_frame(rows, task="task", output=output, minimize=minimize)
    return mk.learn_prior(history, certify="none")


def configurations(prior: mk.Prior, n: int) -> list[dict]:
    return prior.space.decode(np.random.default_rng(0).uniform(-1, 1, (n, prior.space.d0)))


def played(prior: mk.Prior, n: int = 3) -> mk.Tuner:
    tuner = mk.Tuner(prior)
    for _ in range(n):
        x = tuner.ask()
        value = 0.97 - 0.5 * x["a"] ** 2
        tuner.tell(x, 1 - value if prior.info.minimize else value)
    return tuner


def test_pending_points_are_explained_by_the_model_that_chose_them():
    tuner = played(accuracies())
    asked = tuner.ask_trials(3)
    for trial in asked:
        mean, sd = trial.note.expected
        found = tuner.explain(trial.point).expected
        assert found.x == trial.point
        assert found.value == np.clip(mean, 0, 1)
        assert (found.low, found.high) == (max(mean - sd, 0), min(mean + sd, 1))


def test_alternatives_to_a_suggestion_are_possible():
    prior = accuracies()
    tuner = mk.Tuner(prior, space=prior.space.restricted({"a": (0.5, 0.9)}))
    tuner.observe([{"a": 0.0, "kind": "y"}], [0.99])  # of a day when it was
    why = tuner.explain({"a": 0.9, "kind": "y"})
    assert why.best == 0.99
    assert why.safer is None or why.safer.x["a"] >= 0.5


def test_alternatives_to_a_suggestion_are_not_what_is_running_already():
    prior = accuracies()
    tuner = mk.Tuner(prior)
    first, second = tuner.ask_batch(2)
    why = tuner.explain(second)
    assert not tuner.explain(first).awaited
    alone = mk.Tuner(prior).predict([second])[0][0]
    assert why.expected.value == pytest.approx(np.clip(alone, 0, 1), rel=1e-9)
    near = tuner.explain({**first, "a": first["a"] + 1e-3})
    for found in (why, near):
        if found.safer is not None:
            assert abs(found.safer.x["a"] - first["a"]) > 1e-2


def test_what_is_expected_to_be_better_and_is_running_is_not_denied():
    prior = accuracies()
    tuner = mk.Tuner(prior)
    batch = [tuner.explain(x) for x in tuner.ask_batch(4)]
    values = [why.expected.value for why in batch]
    sds = [why.expected.high - why.expected.low for why in batch]
    behind = [max(values) - v > 0.5 * sd for v, sd in zip(values, sds, strict=True)]
    assert any(behind)
    for why, clearly in zip(batch, behind, strict=True):
        if clearly:
            assert "none is expected to be clearly better" not in why.sentence
            assert why.explores or why.awaited


def test_another_choice_is_not_near():
    prior = accuracies()
    optimizer, past = prior.optimizer(), prior.best_runs
    for kind in ("x", "y"):
        why = optimizer.explain({"a": 0.0, "kind": kind})
        same = {task for task, x in zip(past.tasks, past.points, strict=True) if x["kind"] == kind}
        assert why.near <= len(same)
        named = [run.x["kind"] == kind for run in why.neighbors]
        assert named == sorted(named, reverse=True)
        assert sum(named) == min(len(same), len(named))


def test_where_nothing_is_known_nothing_is_claimed():
    cold = shuffled().optimizer()
    why = cold.explain(cold.peek())
    assert not why.informed
    assert "the same is expected everywhere" in why.sentence
    cold.tell(cold.ask(), 0.5)
    assert cold.explain(cold.peek()).informed


@cache
def shuffled() -> mk.Prior:
    """Of values that say nothing."""
    rng = np.random.default_rng(1)
    rows: dict[str, list] = {
        "task": [i % 8 for i in range(160)],
        "a": rng.uniform(-1, 1, 160).tolist(),
        "accuracy": rng.uniform(0, 1, 160).tolist(),
    }
    history = mk.History.from_frame(rows, task="task", output="accuracy")
    prior = mk.learn_prior(history, certify="none")
    assert not prior.helps
    return prior


def test_explaining_changes_nothing():
    first, second = played(accuracies()).optimizer, played(accuracies()).optimizer
    first.explain(first.peek())
    first.explain({"a": 0.5, "kind": "x"})
    assert first.ask() == second.ask()
    assert len(first.record) == len(second.record)


@pytest.mark.parametrize("minimize", [False, True])
def test_nothing_that_is_said_leaves_the_limits(minimize):
    prior = accuracies(minimize)
    assert prior.output_range == (0, 1)
    optimizer = prior.optimizer()
    means, sds = optimizer.predict(configurations(prior, 50))
    assert max((means + sds).max(), 1 - (means - sds).min()) > 1, "limits are never reached"
    for x in configurations(prior, 20):
        why = optimizer.explain(x)
        for end in (why.expected, *filter(None, [why.safer])):
            assert 0 <= end.low <= end.value <= end.high <= 1
        assert 0 <= why.typical.low <= why.typical.value <= why.typical.high <= 1
        said = [
            float(n) for pair in re.findall(r"\(([\d.]+) to ([\d.]+)\)", str(why)) for n in pair
        ]
        assert len(said) >= 2
        assert all(0 <= number <= 1 for number in said)
    space = configurations(prior, 20)
    assert 0 <= prior.mean(space).min() <= prior.mean(space).max() <= 1
    if prior.calibration is not None:
        lower, upper = prior.confidence(delta=0.5).interval(space)
        assert lower.min() >= 0
        assert upper.max() <= 1


@pytest.mark.parametrize("minimize", [False, True])
@pytest.mark.parametrize("n", [1, 6])
def test_a_typical_value_is_that_of_a_random_point_with_what_is_not_known_of_it(minimize, n):
    tuner = played(accuracies(minimize), n)
    why, rows = tuner.explain(tuner.ask()), configurations(tuner.source.prior, 300)
    means, _ = tuner.predict(rows)
    low, high = why.typical.low, why.typical.high
    assert means.min() < why.typical.value < means.max()
    true = np.array([0.97 - 0.5 * x["a"] ** 2 for x in rows])
    true = 1 - true if minimize else true
    assert low < np.median(true) < high
    assert np.mean((low <= true) & (true <= high)) > 0.5
    assert f"where {why.typical.value:.4g} ({low:.3g} to {high:.3g}) is typical" in why.sentence


def test_no_run_of_a_past_task_stands_below_a_sentence_that_there_is_none():
    prior = accuracies()
    optimizer, past = prior.optimizer(), prior.best_runs
    for x in [*past.points[:5], *configurations(prior, 10), {"a": 0.97, "kind": "x"}]:
        why = optimizer.explain(x)
        near = [run for run in why.neighbors if run.distance <= 1 and run.x["kind"] == x["kind"]]
        assert min(why.near, len(why.neighbors)) == len(near)
        assert ("elsewhere; the nearest were:" in why.support) == (why.near == 0)
        assert why.neighbors
        assert "None of" not in str(why)


def test_a_minimum_is_explained_like_the_maximum_of_one_minus_it():
    big, small = (played(accuracies(flag)).optimizer for flag in (False, True))
    x = {"a": 0.4, "kind": "x"}
    a, b = big.explain(x), small.explain(x)
    assert a.expected.value == pytest.approx(1 - b.expected.value)
    assert a.expected.low == pytest.approx(1 - b.expected.high)
    assert a.best == pytest.approx(1 - b.best)
    assert (a.explores, a.near) == (b.explores, b.near)
    assert [n.task for n in a.neighbors] == [n.task for n in b.neighbors]


def test_the_first_suggestion_exploits_and_a_bad_place_is_worse():
    optimizer = accuracies().optimizer()
    assert not optimizer.explain(optimizer.peek()).explores
    bad = optimizer.explain({"a": 0.97, "kind": "x"})
    assert bad.worse
    assert bad.purpose in bad.sentence
    assert "explores" not in bad.sentence
    assert bad.expected.value < bad.typical.value
    assert bad.safer is not None
    assert bad.safer.low > bad.expected.low


def test_the_nearest_best_runs_of_past_tasks_speak_for_it():
    prior = accuracies()
    past = prior.best_runs
    assert len(past.tasks) == KEPT_RUNS * len(prior.info.tasks)
    assert (past.values >= past.typical).all(), "the best runs are above the median"
    optimizer = prior.optimizer()
    x = optimizer.peek()
    why = optimizer.explain(x)
    distances = [run.distance for run in why.neighbors]
    assert distances == sorted(distances)
    assert len({run.task for run in why.neighbors}) == len(why.neighbors)
    assert distances[0] == pytest.approx(past.distances(prior.space.encode([x])[0]).min())
    assert why.tasks == len(prior.info.tasks)
    far = optimizer.explain({"a": 0.97, "kind": "x"})
    assert far.near <= why.near
    assert f"{why.near} of 10 past tasks" in str(why)


def test_runs_of_this_task_are_named_first():
    tuner = played(accuracies())
    why = tuner.explain(tuner.best.x)
    assert why.neighbors[0].task == ""
    assert why.neighbors[0].distance == 0
    assert "this run: " in str(why)


def test_a_kernel_without_past_runs_explains_too():
    base = mk.kernels.matern(2.5, 0.5, d0=2)
    optimizer = gpucb(
        mk.KernelSum.uniform(base), mk.box([(-1, 1)] * 2), rng=np.random.default_rng(0),
        noise_std=0.1, norm_bound=2.0,
    )  # fmt: skip
    optimizer.tell(np.zeros((1, 2)), [0.5])
    why = optimizer.explain(optimizer.ask())
    assert why.tasks == 0
    assert str(why).startswith("value is expected to be")
    with pytest.raises(InputError, match="2 points; expected one"):
        optimizer.explain(np.zeros((2, 2)))


def test_only_choices_beside_the_same_fixed_values_are_compared():
    prior = accuracies()
    optimizer, here = prior.optimizer(), {"kind": "x"}  # the worse kind
    for x in configurations(prior, 4):
        optimizer.tell({**x, "kind": "y"}, 0.98 - 0.3 * x["a"] ** 2)
    assert optimizer.explain({"a": 0.9, "kind": "x"}).safer.x["kind"] == "y"  # without the context
    why = optimizer.explain({"a": 0.9, "kind": "x"}, here)
    assert why.safer.x["kind"] == "x"
    assert why.best is None  # nothing was tried here
    there = optimizer.explain({"a": 0.9, "kind": "y"}, {"kind": "y"})
    assert why.typical.value < there.typical.value
    optimizer.tell({"a": 0.2, "kind": "x"}, 0.86)
    assert optimizer.explain({"a": 0.9, "kind": "x"}, here).best == 0.86
    with pytest.raises(InputError, match="does not have"):
        optimizer.explain({"a": 0.9, "kind": "y"}, here)
