"""Optuna studies that differ from each other: joined, left out with a note, or refused by name."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from metakel import InputError, learn_prior
from metakel.data import History
from metakel.integrations.optuna import MetaKelSampler, Studies
from metakel.space import Categorical, Condition, Fixed, Float, Integer, Ordinal
from metakel.space.infer import merge_parameter

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def studies(*objectives, trials=8):
    """One study s0, s1, ... per objective."""
    made = []
    for i, objective in enumerate(objectives):
        study = optuna.create_study(
            study_name=f"s{i}", sampler=optuna.samplers.RandomSampler(seed=i)
        )
        study.optimize(objective, n_trials=trials)
        made.append(study)
    return made


def with_extra(extra):
    """Of x, and whatever else is asked for."""

    def objective(trial):
        extra(trial)
        return trial.suggest_float("x", 0, 1)

    return objective


def notes(history):
    return "\n".join(history.report.notes)


@pytest.mark.parametrize("choices", [[None, 3, 5], ["balanced", None]])
def test_none_is_a_choice_where_the_distribution_has_it(choices):
    past = studies(*[with_extra(lambda t: t.suggest_categorical("depth", choices))] * 3)
    history = History.from_optuna(past)
    assert history.sizes.tolist() == [8, 8, 8]
    assert history.space["depth"] == Categorical("depth", tuple(choices))
    for task, study in zip(history, past, strict=True):
        decoded = [row["depth"] for row in history.space.decode(task.X)]
        assert decoded == [trial.params["depth"] for trial in study.trials]
    assert any(trial.params["depth"] is None for study in past for trial in study.trials)
    assert learn_prior(history, certify="none").info.runs == 24


def conditional(trial):
    kind = trial.suggest_categorical("kind", ["adam", "sgd"])
    cost = trial.suggest_float("momentum", 0.5, 1) if kind == "sgd" else 0.0
    return trial.suggest_float("x", 0, 1) + cost


def test_a_conditional_parameter_does_not_cost_the_rows_without_it():
    past = studies(conditional, conditional, conditional)
    lacking = sum("momentum" not in t.params for study in past for t in study.trials)
    assert 0 < lacking < 24
    history = History.from_optuna(past)
    assert history.total == 24
    assert history.space.conditions == (Condition("momentum", "kind", ("sgd",)),)
    assert sum("momentum" in r for t in history for r in history.space.decode(t.X)) == 24 - lacking
    assert "momentum is there only where kind is sgd" in notes(history)
    filled = History.from_optuna(past, defaults={"momentum": 0.5})
    assert filled.total == 24
    assert "momentum" in filled.space.names
    named = History.from_optuna(past, inputs=["momentum", "x"])  # asked for, and counted
    assert named.report.missing_inputs == lacking


def test_a_parameter_of_some_studies_is_left_out_or_filled():
    past = studies(
        with_extra(lambda t: t.suggest_float("wd", 0, 1)), with_extra(lambda t: None), conditional
    )
    everything = History.from_optuna(past)
    assert (everything.space.names, everything.total) == (("x",), 24)
    assert "wd is not recorded in 2 of 3 tasks" in notes(everything)
    most = History.from_optuna(
        [*studies(*[with_extra(lambda t: t.suggest_float("wd", 0, 1))] * 4), past[1]]
    )
    assert (most.space.names, most.m) == (("wd", "x"), 4)
    assert "1 of 5 tasks are left out" in notes(most)
    chosen = History.from_optuna(past, inputs=["x"])
    assert (chosen.space.names, chosen.total) == (("x",), 24)
    history = History.from_optuna(past[:2], defaults={"wd": 0.5})
    assert history.space.names == ("wd", "x")
    with pytest.raises(InputError, match="no column 'depth'; found study, wd"):
        History.from_optuna(past, inputs=["depth"])


def test_what_is_fixed_in_some_studies_joins_what_it_is_in_others():
    two, one = (
        with_extra(lambda t, c=c: t.suggest_categorical("kind", c)) for c in (["u", "v"], ["v"])
    )
    for order in ((one, two), (two, one), (two, one, one)):
        history = History.from_optuna(studies(*order))
        assert history.space["kind"] == Categorical("kind", ("u", "v"))
        assert history.total == 8 * len(order)


def test_what_is_fixed_in_every_study_describes_it():
    past = studies(
        *(with_extra(lambda t, i=i: t.suggest_categorical("data", [f"d{i}"])) for i in range(3))
    )
    history = History.from_optuna(past)
    assert history.space.names == ("x",)
    assert "left out: data has one value in every task" in notes(history)
    alike = History.from_optuna(
        studies(*[with_extra(lambda t: t.suggest_categorical("data", ["d"]))] * 2)
    )
    assert alike.space["data"] == Fixed("data", "d")


def test_log_counts_before_linear_and_fractions_before_whole_numbers():
    past = studies(
        with_extra(lambda t: (t.suggest_float("lr", 1e-4, 1, log=True), t.suggest_int("n", 1, 9))),
        with_extra(lambda t: (t.suggest_float("lr", 0.1, 2), t.suggest_float("n", 0.5, 4))),
    )
    history = History.from_optuna(past)
    assert history.space["lr"] == Float("lr", 1e-4, 2, log=True)
    assert history.space["n"] == Float("n", 0.5, 9)
    assert "lr is on a log scale in s0 and not in s1: taken on a log scale" in notes(history)
    assert "n is a whole number in s0 and not in s1: taken as any number" in notes(history)
    assert history.total == 16


def test_what_is_of_two_kinds_is_refused_with_the_names_of_the_studies():
    number, choice = (
        with_extra(lambda t: t.suggest_int("depth", 1, 9)),
        with_extra(lambda t: t.suggest_categorical("depth", ["low", "high"])),
    )
    past = studies(number, choice)
    with pytest.raises(InputError, match=r"integer in \[1, 9\] in s0 and one of low.* in s1"):
        History.from_optuna(past)
    assert History.from_optuna(past, inputs=["x"]).total == 16
    past = studies(number, number, choice)  # most studies decide
    assert "study 's2' is left out: 'depth' is one of low" in notes(History.from_optuna(past))
    assert History.from_optuna(past[:2]).space["depth"] == Integer("depth", 1, 9)


@pytest.mark.parametrize(
    ("versions", "joint"),
    [
        ([Float("p", 0, 1), Fixed("p", 3)], Float("p", 0, 3)),
        ([Float("p", 0, 1, step=0.5), Fixed("p", 0.5)], Float("p", 0, 1, step=0.5)),
        ([Float("p", 0, 1, step=0.5), Fixed("p", 0.7)], Float("p", 0, 1)),
        ([Integer("p", 2, 8, step=2), Integer("p", 2, 12, step=2)], Integer("p", 2, 12, step=2)),
        ([Integer("p", 2, 8, step=2), Fixed("p", 3)], Integer("p", 2, 8)),
        ([Integer("p", 1, 4), Fixed("p", 0.5)], Float("p", 0.5, 4)),
        ([Float("p", 0.1, 1, log=True), Fixed("p", 0)], Float("p", 0, 1)),
        ([Ordinal("p", (1, 4)), Fixed("p", 2)], Ordinal("p", (1, 2, 4))),
        ([Categorical("p", ("u", "v")), Fixed("p", None)], Categorical("p", ("u", "v", None))),
        ([Float("p", 0, 1), Fixed("p", True)], None),
        ([Float("p", 0, 1), Categorical("p", (1, 2))], None),
        ([Ordinal("p", (1, 2)), Fixed("p", "u")], None),
    ],
)
def test_a_joint_parameter_takes_the_values_of_all(versions, joint):
    for order in (versions, versions[::-1]):
        found, note = merge_parameter({p: (f"s{i}",) for i, p in enumerate(order)})
        assert found == joint or set(found.values) == set(joint.values)
        given_up = {(type(p), getattr(p, "log", None)) for p in versions} - {(Fixed, None)}
        assert bool(note) == (
            joint is None or given_up != {(type(joint), getattr(joint, "log", None))}
        )
        if joint is None:
            assert "s0" in note
            assert "s1" in note


def test_values_fixed_for_a_while_in_one_study_are_a_range():
    changed = {Fixed("p", 3): ("s0",), Fixed("p", 5): ("s0", "s1")}
    assert merge_parameter(changed)[0] == Integer("p", 3, 5)
    words = {Fixed("p", "u"): ("s0",), Fixed("p", "v"): ("s0",)}
    assert merge_parameter(words)[0] == Categorical("p", ("u", "v"))


def test_how_trials_without_a_value_ended_is_said():
    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        if trial.number % 4 == 1:
            raise optuna.TrialPruned
        if trial.number == 2:
            raise ValueError
        return x

    made = []
    for i in range(2):
        study = optuna.create_study(study_name=f"s{i}")
        study.optimize(objective, n_trials=8, catch=(ValueError,))
        made.append(study)
    history = History.from_optuna(made)
    assert history.report.failed == 6
    assert "of the trials without a value, 4 were pruned, 2 failed" in notes(history)
    assert "4 were pruned" in str(learn_prior(history, certify="none"))


def test_a_storage_is_opened_once_however_many_studies_it_has(tmp_path, monkeypatch):
    """A server has few connections, and many workers read from it."""
    url, opened = f"sqlite:///{tmp_path}/past.db", []
    for k in range(3):
        study = optuna.create_study(study_name=f"s{k}", storage=url)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    begin = optuna.storages.RDBStorage.__init__

    def counted(self, *args, **options):
        opened.append(args)
        begin(self, *args, **options)

    monkeypatch.setattr(optuna.storages.RDBStorage, "__init__", counted)
    assert History.from_optuna(url).m == 3
    assert len(opened) == 1


def test_one_damaged_study_does_not_block_the_others(tmp_path):
    url = f"sqlite:///{tmp_path / 'past.db'}"
    for i in range(5):
        study = optuna.create_study(storage=url, study_name=f"s{i}")
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=4)
        if i:
            study.set_user_attr("model", "mlp")
    with closing(sqlite3.connect(tmp_path / "past.db")) as base, base:
        base.execute("delete from study_directions where study_id = 2")
        base.execute(
            'update trial_params set distribution_json = \'{"name": "Odd"}\' where trial_id in '
            "(select trial_id from trials where study_id = 3)"
        )
    history = History.from_optuna(Studies(url, where=lambda s: s.user_attrs["model"] == "mlp"))
    assert [task.name for task in history] == ["s3", "s4"]
    for line in (
        "study 's0' is left out: where raised KeyError('model')",
        "study 's1' is left out: it has 0 objectives; expected one",
        "study 's2' is left out: it cannot be read, or is damaged",
    ):
        assert line in notes(history)


def test_new_names_that_no_study_can_take_are_refused():
    past = studies(with_extra(lambda t: None), with_extra(lambda t: None))
    with pytest.raises(InputError, match="rename has 'X', which no study has; found x"):
        History.from_optuna(Studies(past, rename={"X": "x"}))
    with pytest.raises(InputError, match="expected a dict of new names"):
        History.from_optuna(Studies(past, rename=["x"]))


def test_one_parameter_under_two_names_is_renamed_where_studies_have_it():
    called = [optuna.create_study() for _ in range(3)]
    for k, study in enumerate(called):
        name = "lr" if k else "learning_rate"
        study.optimize(lambda t, name=name: t.suggest_float(name, 0, 1), n_trials=4)
    history = History.from_optuna(called, rename={"learning_rate": "lr"})
    assert (history.m, history.space.names) == (3, ("lr",))
    chosen = Studies(called[:2], rename={"learning_rate": "rate"})
    assert History.from_optuna(chosen, rename={"lr": "rate"}).space.names == ("rate",)


def test_a_sum_that_all_past_trials_keep_is_kept_by_the_sampler_unless_it_is_told_otherwise():
    parts = {name: optuna.distributions.FloatDistribution(0, 100) for name in "abc"}
    rng, past = np.random.default_rng(0), [optuna.create_study() for _ in range(4)]
    for study in past:
        for x in np.round(100 * rng.dirichlet([2, 2, 2], 10), 1):
            params = {"a": float(x[0]), "b": float(x[1]), "c": float(round(100 - x[0] - x[1], 1))}
            value = (x[0] - 30) ** 2
            trial = optuna.trial.create_trial(params=params, distributions=parts, value=value)
            study.add_trial(trial)
    assert [str(total) for total in History.from_optuna(past).space.sums] == ["a + b + c = 100"]
    for sums, kept in ((None, True), ([], False)):
        study = optuna.create_study(sampler=MetaKelSampler(past, seed=0, sums=sums))
        study.optimize(lambda t: sum(t.suggest_float(n, 0, 100) for n in "abc"), n_trials=3)
        totals = [trial.value for trial in study.trials]
        assert (totals == pytest.approx([100] * 3)) is kept
