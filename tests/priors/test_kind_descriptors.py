"""Descriptors of tasks weigh kinds where they tell them, and change nothing elsewhere."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from histories import draw_task, simulate
from scipy.stats import betabinom

from metakel import Prior, Tuner, learn_prior
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.optimize import Optimizer
from metakel.priors.kinds import KEPT, KindDescriptors
from metakel.priors.storage import from_dict, to_dict
from metakel.report.run import replay_journal
from metakel.search import candidates

# Kinds are mixed, so that no part of a split has one of them only.
UPSIDE_DOWN = np.random.default_rng(7).permutation([True, False] * 10)
ROWS = np.where(UPSIDE_DOWN, 1e5, 300.0) * np.random.default_rng(1).uniform(0.5, 2.0, 20)
NOISE = np.random.default_rng(2).normal(size=20)


def mixed(describe, m=20):
    """Every other task upside down, each with what ``describe`` says of its number."""
    tasks = [
        Task(t.X, -t.y if UPSIDE_DOWN[s] else t.y, f"t{s}", descriptors=describe(s))
        for s, t in enumerate(simulate(np.random.default_rng(20), m=m))
    ]
    return History(tuple(tasks))


def by_rows(s):
    return {"rows": ROWS[s], "machine": "new" if UPSIDE_DOWN[s] else "old", "noise": NOISE[s]}


@pytest.fixture(scope="module")
def plain() -> Prior:
    return learn_prior(mixed(lambda s: {}), certify="none")


@pytest.fixture(scope="module")
def prior() -> Prior:
    return learn_prior(mixed(by_rows), certify="none")


@pytest.fixture(scope="module")
def replayed() -> Prior:
    return learn_prior(mixed(by_rows))


SMALL = {"rows": 310.0, "machine": "old"}
LARGE = {"rows": 1.1e5, "machine": "new"}


def new_tasks(count=5):
    for seed in range(count):
        rng = np.random.default_rng(100 + seed)
        X = rng.uniform(-0.9, 0.9, (150, 2))
        yield X, draw_task(rng)(X)


def asked(prior, X, y, steps=8):
    """Row numbers, in the order in which they are asked for."""
    optimizer = Optimizer(
        prior.task_model(), candidates(X, repeat=False), rng=np.random.default_rng(0)
    )
    number, found = {x.tobytes(): i for i, x in enumerate(X)}, []
    for _ in range(steps):
        x = optimizer.ask()
        found.append(number[x.tobytes()])
        optimizer.tell(x, y[found[-1]])
    return found


def evaluations(prior, X, y, steps=25):
    """How many it takes to come within 5 % of the spread between best and median."""
    good = y >= y.max() - 0.05 * (y.max() - np.median(y))
    found = good[asked(prior, X, y, steps)]
    return 1 + int(np.argmax(found)) if found.any() else steps


def test_an_informative_descriptor_tells_the_kind_before_any_value(prior):
    assert prior.descriptors.used == ("rows", "machine")
    for descriptors, down in ((SMALL, False), (LARGE, True)):
        weights = prior.with_descriptors(descriptors).optimizer().kinds
        kind = next(k for k in prior.kinds if UPSIDE_DOWN[int(k.tasks[0][1:])] == down)
        right, wrong = (
            f"kind {prior.kinds.index(k) + 1}"
            for k in sorted(prior.kinds, key=lambda k: k is not kind)
        )
        assert sum(weights.values()) == pytest.approx(1, abs=1e-12)
        assert weights[right] > 10 * weights[wrong]
        X, y = next(new_tasks())
        (first,) = asked(prior.with_descriptors(descriptors), X, y, 1)
        common = kind.task_gp.mean(X)
        assert common[first] >= common.max() - 0.05 * np.ptp(common)


def test_the_right_kind_from_the_start_saves_evaluations(prior, plain):
    """Over both kinds: the largest kind alone is right half of the time without descriptors."""
    told = untold = 0
    for X, y in new_tasks():
        for sign, descriptors in ((1, SMALL), (-1, LARGE)):
            told += evaluations(prior.with_descriptors(descriptors), X, sign * y)
            untold += evaluations(plain, X, sign * y)
    assert told <= 0.8 * untold


def test_without_descriptors_of_the_task_everything_is_as_before(prior, plain):
    assert prior.task_processes[1] == plain.task_processes[1]
    with pytest.warns(UserWarning, match="not known"):
        nothing = prior.with_descriptors({"noise": 1.0})  # which is not used
    for X, y in new_tasks(2):
        assert asked(prior, X, y) == asked(nothing, X, y) == asked(plain, X, y)


@pytest.mark.parametrize("seed", range(5))
def test_useless_descriptors_change_nothing(plain, seed):
    rng = np.random.default_rng(seed)
    values, texts = rng.normal(size=(20, 3)), rng.choice(["a", "b"], 20)
    history = mixed(lambda s: {**{f"d{i}": values[s, i] for i in range(3)}, "text": texts[s]})
    found = learn_prior(history, certify="none")
    assert found.descriptors.used == ()
    assert (
        "Descriptors are not used, as they do not tell the kind of a task: d0, d1, d2, text"
        in str(found)
    )
    described = found.with_descriptors({"d0": 3.0, "d1": None, "text": "never seen"})
    assert described.task_processes[1] == plain.task_processes[1]


def test_useless_descriptors_pass_in_one_history_of_twenty():
    """The level of the gate, over histories in which descriptors say nothing of kinds."""
    passed, runs = 0, 200
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        kinds = tuple(rng.permutation([0] * 9 + [1] * 7 + [-1] * 2).tolist())
        values = {"a": tuple(rng.normal(size=18)), "b": tuple(rng.choice(["x", "y"], 18).tolist())}
        found = KindDescriptors(values, kinds)
        passed += any(found._tells(name, 2) for name in values)
    assert passed <= 20  # 0.05 of 200, and the 1 - 1e-3 quantile of the binomial


def test_certificates_are_as_before_with_useless_descriptors():
    one = learn_prior(mixed(lambda s: {"noise": NOISE[s]}, m=12))
    other = learn_prior(mixed(lambda s: {}, m=12))
    assert len(one.kinds) == 2
    assert one.certificate.to_dict() == other.certificate.to_dict()
    X, _ = next(new_tasks())
    rows = [dict(zip(one.space.names, x, strict=True)) for x in X[:20]]
    described = one.with_descriptors({"noise": 0.0})
    for each in (one, described):
        assert str(each.optimizer(rows).certificate) == str(other.optimizer(rows).certificate)


def test_weights_follow_the_rule_and_keep_a_tenth_of_the_shares():
    """One text in all tasks of a kind and in no other: by hand."""
    found = KindDescriptors({"m": ("a",) * 6 + ("b",) * 4}, (0,) * 6 + (1,) * 4, ("m",), 1.0)
    a, b = 6 * (6 + 0.6) / 7, 4 * (0 + 0.6) / 5
    expected = (1 - KEPT) * a / (a + b) + KEPT * 0.6
    np.testing.assert_allclose(found.weights({"m": "a"}), [expected, 1 - expected])
    np.testing.assert_allclose(found.weights({"m": "c"}), [0.6, 0.4])
    np.testing.assert_allclose(found.weights({}), [0.6, 0.4])


def test_leaving_a_task_out_is_learning_without_it():
    """The held-out gain by its definition. (Ranks of numbers are those of all tasks.)"""
    rng = np.random.default_rng(0)
    text = rng.choice(["a", "b", "c"], 12).tolist()
    kinds = (0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2)
    found = KindDescriptors({"text": tuple(text)}, kinds, ("text",), 0.5)
    logs = []
    for s in range(12):
        others = [i for i in range(12) if i != s]
        without = KindDescriptors(
            {"text": tuple(text[i] for i in others)},
            tuple(kinds[i] for i in others),
            ("text",),
            0.5,
        )
        sizes = np.bincount([kinds[i] for i in others])
        logs.append(np.log(without.weights({"text": text[s]})[kinds[s]] / (sizes / 11)[kinds[s]]))
    assert found.gain == pytest.approx(np.mean(logs))


def test_units_of_numbers_do_not_matter():
    kinds = (0, 1) * 8
    x = np.random.default_rng(0).normal(size=16) + np.array(kinds)
    one, other = (
        KindDescriptors({"x": tuple(v.tolist())}, kinds, ("x",)) for v in (x, np.exp(3 * x) + 7)
    )
    assert one.gain == other.gain
    given = 0.3
    np.testing.assert_array_equal(
        one.weights({"x": given}), other.weights({"x": np.exp(3 * given) + 7})
    )


def test_what_is_unknown_is_said_and_not_guessed(prior, plain):
    with pytest.raises(InputError, match="no descriptor 'columns'; known are rows, machine, noise"):
        prior.with_descriptors({"columns": 3})
    with pytest.raises(InputError, match="'rows' is 'many'; expected a number"):
        prior.with_descriptors({"rows": "many"})
    with pytest.raises(InputError, match="past tasks have none; read them with the history"):
        plain.with_descriptors({"rows": 3})
    shares = prior.task_processes[1]
    for given, said in (
        ({"machine": "broken", "rows": None}, r"rows is not known.*machine = 'broken' is new"),
        ({}, "rows is not known"),
    ):
        with pytest.warns(UserWarning, match=said):
            assert prior.with_descriptors(given).task_processes[1] == pytest.approx(shares)
    with pytest.warns(UserWarning, match=r"beyond .* of past tasks, taken as"):
        far = prior.with_descriptors({"rows": 1e9, "machine": "new"})
    end = prior.with_descriptors({"rows": float(ROWS.max()), "machine": "new"})
    assert far.task_processes[1] == end.task_processes[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prior.with_descriptors(SMALL)


def test_certificates_rest_on_replays_with_descriptors(replayed):
    """They speak for a task whose descriptors are known, and for no other."""
    X, y = next(new_tasks())
    rows = [dict(zip(replayed.space.names, x, strict=True)) for x in X[:25]]
    described = replayed.with_descriptors(SMALL)
    for each, spoken in ((described, True), (replayed, False)):
        optimizer = each.optimizer(rows, rng=np.random.default_rng(0))
        for _ in range(3):
            x = optimizer.ask()
            optimizer.tell(x, y[rows.index(dict(x))])
        assert np.isfinite(optimizer.certificate.regret) == spoken
    assert "this one is not described: rows, machine" in str(optimizer.certificate)


def test_certificates_hold_on_new_tasks_with_their_descriptors():
    """Exchangeable with the replayed ones, each with its own kind and descriptors."""
    rng, tasks = np.random.default_rng(5), []
    for s in range(60):
        X, down = rng.uniform(-1, 1, (25, 2)), rng.uniform() < 0.5
        y = (-1 if down else 1) * draw_task(rng)(X)
        tasks.append(Task(X, y, f"t{s}", descriptors={"rows": rng.normal(3.0 if down else 0.0)}))
    prior = learn_prior(History(tuple(tasks[:40])), certify="exact")
    assert prior.descriptors.used == ("rows",)
    failed = 0
    for task in tasks[40:]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a few are beyond the range of past tasks
            described = prior.with_descriptors(task.descriptors)
        rows = [dict(zip(prior.space.names, x, strict=True)) for x in task.X]
        optimizer, best, wrong = described.optimizer(rows, extrapolate=None), -np.inf, False
        for _ in range(8):
            x = optimizer.ask()
            value = task.y[rows.index(dict(x))]
            optimizer.tell(x, value)
            best = max(best, value)
            wrong |= task.y.max() - best > optimizer.certificate.regret
        failed += wrong
    # 20 replays at delta 0.2: the probability of a failure is Beta(4, 17) over histories.
    assert failed <= betabinom.ppf(1 - 1e-3, 20, 4, 17)


def test_files_and_journals_keep_the_descriptors(replayed, tmp_path):
    described = replayed.with_descriptors(LARGE)
    again = from_dict(json.loads(json.dumps(to_dict(described))))
    assert str(again) == str(described)
    assert again.task == LARGE
    assert again.task_processes[1] == described.task_processes[1]
    optimizer = described.optimizer(rng=np.random.default_rng(0))
    optimizer.tell(optimizer.ask(), 0.3)
    optimizer.save(tmp_path / "run.json")
    loaded = Optimizer.load(tmp_path / "run.json")
    assert loaded.kinds == optimizer.kinds
    assert loaded.ask() == optimizer.ask()
    journal = tmp_path / "run.jsonl"
    tuner = Tuner(described, journal)
    tuner.tell(tuner.ask(), 0.3)
    upcoming = tuner.optimizer.suggest()
    assert Tuner(described, journal).optimizer.suggest() == upcoming
    assert replay_journal(replayed, journal).next.expected.x == upcoming
    for other in (replayed, replayed.with_descriptors(SMALL)):
        with pytest.raises(InputError, match=r"was begun with descriptors = {'rows': 110000.0"):
            Tuner(other, journal)
    begun = tmp_path / "other.jsonl"
    Tuner(replayed, begun)
    assert "descriptors" not in begun.read_text()
    with pytest.raises(InputError, match=r"was begun with descriptors = {}"):
        Tuner(described, begun)


def test_whole_numbers_nan_and_one_kind_are_taken_as_they_are(tmp_path):
    """Also those that NumPy counts, which JSON does not know; without kinds nothing is weighed."""
    history = simulate(np.random.default_rng(0), m=6)
    tasks = [
        Task(t.X, t.y, f"t{s}", descriptors={"rows": np.int64(s), "mass": np.nan if s else 2})
        for s, t in enumerate(history)
    ]
    found = learn_prior(History(tuple(tasks)), certify="none")
    assert found.descriptors.values == {"rows": (0.0, 1, 2, 3, 4, 5), "mass": (2.0, *[None] * 5)}
    assert "Descriptors are not used, as there are no kinds: rows, mass." in str(found)
    described = found.with_descriptors({"rows": np.int64(3), "mass": np.nan})
    described.save(tmp_path / "prior.json")
    assert Prior.load(tmp_path / "prior.json").task == {"rows": 3.0}
    numbers = KindDescriptors({"n": (1, 2, 3, 7, 8, 9)}, (0, 0, 0, 1, 1, 1), ("n",))
    with pytest.warns(UserWarning, match=r"n = 12 is beyond 1 to 9 of past tasks, taken as 9"):
        numbers.checked({"n": 12})


def test_damaged_descriptors_are_refused_by_name(prior):
    stored = json.loads(json.dumps(to_dict(prior)))
    stored["descriptors"]["values"]["rows"].pop()
    with pytest.raises(InputError, match="'rows' has 19 values"):
        from_dict(stored)
    stored = json.loads(json.dumps(to_dict(prior)))
    stored["descriptors"]["used"] = ["size"]
    with pytest.raises(InputError, match="no descriptor 'size'"):
        from_dict(stored)
