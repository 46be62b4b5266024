"""Saving and loading: a loaded optimizer is the one that was saved, to the last bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from games import line_problem, optimizer, play, square_problem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from gpucb import gpucb
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, from_features, matern
from metakel.optimize import Optimizer
from metakel.search import box, candidates, grid

DOMAINS = {
    "box": box([(-1, 1)]),
    "grid": grid([(-1, 1)], 21),
    "once": candidates(np.linspace(-1, 1, 30), repeat=False),
}
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 3)),
        st.tuples(st.just("tell"), st.integers(0, 5)),
        st.tuples(st.just("forget"), st.integers(0, 5)),
        st.tuples(st.just("volunteer"), st.integers(0, 20)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("save"), st.just(0)),
    ),
    min_size=1,
    max_size=10,
)


def saved_and_loaded(game, folder):
    game.save(folder / "game.json")
    return Optimizer.load(folder / "game.json")


def act(game, problem, kind, number):
    """One step of a user; the value told depends on the point only."""
    if kind == "ask":
        game.ask_batch(number)
    elif kind in ("tell", "forget") and len(game.pending):
        x = game.pending[number % len(game.pending)]
        if kind == "forget":
            game.drop(x)
        else:
            game.tell(x, problem.f(x) + 0.03 * np.sin(1e3 * x), noise_std=0.05 + 0.01 * number)
    elif kind == "volunteer":
        x = game.domain.sample(np.random.default_rng(number), 2)
        game.tell(x, problem.f(x))
    elif kind == "look":
        game.done, game.certificate().regret, repr(game)
        game.confidence([[0.1]])
    elif kind == "fail":
        with pytest.raises(InputError):
            game.tell(5.0, 1.0)


@pytest.mark.parametrize("name", DOMAINS)
@given(actions=ACTIONS)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_history_with_saving_looking_and_failing_equals_the_straight_run(
    name, actions, tmp_path
):
    problem = line_problem()
    crooked, straight = (optimizer(problem, DOMAINS[name]) for _ in range(2))
    for kind, number in actions:
        if kind == "save":
            crooked = saved_and_loaded(crooked, tmp_path)
            continue
        act(crooked, problem, kind, number)
        if kind not in ("look", "fail"):
            act(straight, problem, kind, number)
    assert json.dumps(crooked.to_dict()) == json.dumps(straight.to_dict())
    assert_array_equal(crooked.ask_batch(2), straight.ask_batch(2))
    assert crooked.certificate().regret == straight.certificate().regret


@pytest.mark.parametrize(
    "options",
    [
        {"minimize": True},
        {"norm_bound": None},
        {"nu": 2.0, "norm_bound": None, "noise_var": 0.1},
        {"nu": 2.0},
        {"method": "amm"},
        {"norm_bound": 0.05},
        {"stop_at": 0.2, "delta": 0.2, "delta_learning": 0.1},
    ],
    ids=str,
)
def test_every_kind_of_optimizer_goes_on_exactly(options, tmp_path):
    problem = square_problem()
    game = optimizer(problem, box([(-1, 1)] * 2), **options)
    play(game, problem, 6)
    game.ask_batch(2)
    again = saved_and_loaded(game, tmp_path)
    assert json.dumps(again.to_dict()) == json.dumps(game.to_dict())
    for _ in range(2):
        x, z = game.ask(), again.ask()
        assert_array_equal(x, z)
        game.tell(x, problem.f(x))
        again.tell(z, problem.f(z))
    assert (game.best().value, game.done) == (again.best().value, again.done)
    if game.model.sequence is not None:
        assert game.model.sequence.alarms == again.model.sequence.alarms


def test_kernels_without_features_and_own_kernels_are_kept_too(tmp_path):
    def ramp(X):
        return np.column_stack([X[:, 0], X[:, 0] ** 2])

    base = matern(2.5, [0.5], d0=1) + from_features(ramp, dim=2, d0=1, name="ramp")
    kernel = KernelSum.uniform(base, weight=1.0)
    game = gpucb(
        kernel, DOMAINS["box"], rng=np.random.default_rng(0), noise_std=0.1, norm_bound=2.0
    )
    game.tell([0.3, -0.2], [1.0, 0.5])
    game.save(tmp_path / "game.json")
    again = Optimizer.load(tmp_path / "game.json", functions={"ramp": ramp})
    assert_array_equal(game.ask_batch(3), again.ask_batch(3))


def test_functions_of_time_cannot_be_stored():
    problem = line_problem()
    game = optimizer(problem, DOMAINS["grid"], norm_bound=None, nu=lambda t: 2.0)
    with pytest.raises(InputError, match="nu that is a function"):
        game.to_dict()


def entries(value, path=()):
    """Where a mapping inside of a stored optimizer holds something."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from entries(inner, (*path, key))


def damaged(stored, path, damage):
    """The optimizer as stored, with one entry gone or replaced."""
    copy = json.loads(json.dumps(stored))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if damage == "gone":
        del place[path[-1]]
    else:
        place[path[-1]] = damage
    return copy


@pytest.mark.parametrize("damage", ["gone", "x", [7], {}])
def test_any_damaged_entry_gives_an_input_error_that_names_the_file_or_is_harmless(
    damage, tmp_path
):
    game = optimizer(line_problem(), DOMAINS["grid"], stop_at=0.1)
    game.tell([0.3, -0.2], [1.0, 0.5])
    game.ask()
    stored, path = game.to_dict(), tmp_path / "game.json"
    refused = 0
    for entry in entries(stored):
        path.write_text(json.dumps(damaged(stored, entry, damage)))
        try:
            Optimizer.load(path)
        except (InputError, ShapeError) as error:
            refused += str(error).startswith(str(path))
        else:  # a setting that has a default, or "gone" where None is meant
            assert entry[-1] != "log"
    assert refused >= 25


@pytest.mark.parametrize("text", ["{", "[]", "7", '"x"', "", "\xff\xfe"])
def test_what_is_no_stored_optimizer_names_the_file(text, tmp_path):
    (tmp_path / "game.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"game\.json"):
        Optimizer.load(tmp_path / "game.json")


@pytest.mark.parametrize(
    "trial",
    [
        {"point": [0.1], "closed": True},
        {"point": [0.1], "state": "shouted", "closed": True},
        {"point": [0.1], "state": "complete", "closed": True},
        {"state": "pending", "closed": True},
        {"point": [[0.1], [0.2]], "state": "pending", "closed": True},
        7,
    ],
)
def test_a_damaged_record_is_refused(trial):
    stored = optimizer(line_problem(), DOMAINS["grid"]).to_dict()
    with pytest.raises(InputError, match="stored"):
        Optimizer.from_dict({**stored, "record": {"trials": [trial], "steps": []}})


def test_steps_that_do_not_fit_the_trials_are_refused():
    game = optimizer(line_problem(), DOMAINS["grid"])
    game.tell([0.3, -0.2], [1.0, 0.5])
    stored = game.to_dict()
    with pytest.raises(InputError, match="expected those with a result"):
        Optimizer.from_dict({**stored, "record": {**stored["record"], "steps": []}})


@pytest.mark.parametrize("damage", [{"format": "other"}, {"version": 9}])
def test_what_was_not_stored_by_an_optimizer_is_refused(damage):
    game = optimizer(line_problem(), DOMAINS["grid"])
    with pytest.raises(InputError, match="stored optimizer has format"):
        Optimizer.from_dict({**game.to_dict(), **damage})
