"""MetaKelSampler: the first trial on, by seed, from record to record, in either direction."""

from __future__ import annotations

import json
import logging
import math
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import optuna
import pytest
from numpy.testing import assert_allclose
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna_helpers import Refusing, learned, lr_loss, lr_past, past_studies

from metakel import InputError, Prior, learn_prior
from metakel.data import History
from metakel.integrations.optuna import MetaKelSampler
from metakel.integrations.optuna.record import EXPECTED, chosen, finished_trials
from metakel.integrations.optuna.study_replay import StudyReplay

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def prior():
    return MetaKelSampler(lr_past()).prior


def run(sampler, trials=8, objective=lr_loss, **options):
    study = optuna.create_study(sampler=sampler, **options)
    study.optimize(objective, n_trials=trials)
    return study


def params(study):
    return [trial.params for trial in study.trials]


def test_the_prior_decides_every_parameter_from_the_first_trial_on(prior):
    assert prior.helps
    study = run(MetaKelSampler(prior=prior, seed=0, independent_sampler=Refusing()))
    past = [trial.value for source in lr_past() for trial in source.trials]
    assert study.trials[0].value < np.quantile(past, 0.1)
    assert study.best_value < np.quantile(past, 0.01)


def test_the_pasts_of_the_host_suite_are_used_too():
    spaces = [FloatDistribution(-1, 1), IntDistribution(1, 100, log=True)]
    assert all(learned(("x", one), ("y", two)).helps for one in spaces for two in spaces)


def test_studies_and_their_prior_are_the_same_thing(prior, tmp_path):
    direct = run(MetaKelSampler(lr_past(), seed=3))
    by_hand = learn_prior(History.from_optuna(list(lr_past())))
    by_hand.save(tmp_path / "prior.json")
    saved = Prior.load(tmp_path / "prior.json")
    for other in (prior, by_hand, saved):
        assert params(run(MetaKelSampler(prior=other, seed=3))) == params(direct)


def test_another_process_gives_the_same_trials(prior):
    code = (
        "import json; from optuna_helpers import *; from metakel.integrations.optuna import *;"
        "study = optuna.create_study(sampler=MetaKelSampler(lr_past(), seed=7));"
        "study.optimize(lr_loss, n_trials=5); print(json.dumps([t.params for t in study.trials]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == params(run(MetaKelSampler(prior=prior, seed=7), 5))


def test_what_is_kept_between_trials_changes_nothing(prior):
    keeping = run(MetaKelSampler(prior=prior, seed=1), 12, failing_now_and_then)
    study = optuna.create_study()
    for _ in range(12):
        fresh = MetaKelSampler(prior=prior, seed=1, independent_sampler=Refusing())
        study.sampler = pickle.loads(pickle.dumps(fresh))
        study.optimize(failing_now_and_then, n_trials=1)
    assert params(study) == params(keeping)


def failing_now_and_then(trial):
    value = lr_loss(trial)
    if trial.number % 4 == 2:
        raise optuna.TrialPruned
    return value


def test_one_sampler_serves_studies_in_turn(prior):
    sampler = MetaKelSampler(prior=prior, seed=1)
    two = [optuna.create_study(study_name="same name", sampler=sampler) for _ in range(2)]
    for _ in range(5):
        for study, shift in zip(two, (0.0, 0.5), strict=True):
            study.optimize(lambda t, s=shift: lr_loss(t, s), n_trials=1)
    alone = run(MetaKelSampler(prior=prior, seed=1), 5, lambda t: lr_loss(t, 0.5))
    assert params(two[1]) == params(alone)


def test_minimising_a_loss_and_maximising_its_negative_are_the_same(prior):
    mirrored = MetaKelSampler(lr_past(sign=-1.0), seed=2)
    up = run(mirrored, objective=lambda t: -lr_loss(t), direction="maximize")
    assert params(up) == params(run(MetaKelSampler(prior=prior, seed=2)))


def test_it_does_not_matter_in_which_order_an_objective_asks(prior):
    def backwards(trial):
        trial.suggest_categorical("kind", ["adam", "sgd"])
        trial.suggest_int("depth", 1, 10)
        return lr_loss(trial)

    sampler = MetaKelSampler(prior=prior, seed=2)
    assert params(run(sampler, objective=backwards)) == params(run(sampler))


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_every_storage_gives_the_trials_of_the_one_in_memory(prior, tmp_path, kind):
    file = tmp_path / "study"
    backend = optuna.storages.journal.JournalFileBackend
    storage = (
        f"sqlite:///{file}"
        if kind == "sqlite"
        else optuna.storages.JournalStorage(backend(str(file)))
    )
    stored = run(MetaKelSampler(prior=prior, seed=4), 5, storage=storage)
    assert params(stored) == params(run(MetaKelSampler(prior=prior, seed=4), 5))


def test_a_past_in_a_storage_is_read_from_there(tmp_path):
    url = f"sqlite:///{tmp_path}/past.db"
    for source in past_studies({"x": FloatDistribution(0, 1)}, m=3, n=5):
        optuna.copy_study(
            from_study_name=source.study_name, from_storage=source._storage, to_storage=url
        )
    sampler = MetaKelSampler(url, seed=0)
    assert len(sampler.prior.info.tasks) == 3
    assert "3 tasks" in repr(sampler)


def test_any_iterable_of_studies_will_do():
    studies = past_studies({"x": FloatDistribution(0, 1)}, m=3, n=5)
    named = {study.study_name: study for study in studies}
    for source in (named, named.values(), iter(studies), tuple(studies)):
        assert MetaKelSampler(source).prior.info.tasks == tuple(named)


def test_studies_of_one_name_in_different_storages_stay_apart():
    studies = past_studies({"x": FloatDistribution(0, 1)}, m=2)
    for study in studies:
        study.study_name = "tuning"
    assert MetaKelSampler(studies).prior.info.tasks == ("tuning (1)", "tuning (2)")


def test_without_one_of_these_parameters_it_is_the_independent_sampler(caplog):
    plain = run(TPESampler(seed=0), 12)
    elsewhere = MetaKelSampler(past_studies({"x": FloatDistribution(0, 1)}), seed=0)
    assert params(run(elsewhere, 12)) == params(plain)
    assert caplog.text.count("no parameter that the past knows (x): a cold start") == 1
    assert elsewhere.trust(plain) == 0


def test_an_empty_past_is_a_cold_start_with_a_warning(tmp_path, caplog):
    plain = run(TPESampler(seed=0), 12)
    unfinished, infinite, bare = (optuna.create_study() for _ in range(3))
    unfinished.ask()
    infinite.optimize(lambda t: t.suggest_float("x", 0, 1) * 0 + float("inf"), n_trials=2)
    bare.optimize(lambda t: 1.0, n_trials=2)
    url = f"sqlite:///{tmp_path}/empty.db"
    optuna.storages.RDBStorage(url)
    nothing = ([], unfinished, [unfinished], [infinite, bare], iter([]), url)
    for i, past in enumerate((*nothing, optuna.storages.InMemoryStorage())):
        sampler = MetaKelSampler(past, seed=0)
        assert sampler.prior is None
        assert caplog.text.count("a cold start") == i + 1
        assert sampler.trust(plain) == 0
    assert params(run(sampler, 12)) == params(plain) == params(run(MetaKelSampler(seed=0), 12))


def test_a_resumed_study_is_not_its_own_past(tmp_path, caplog):
    url = f"sqlite:///{tmp_path}/all.db"
    for source in past_studies({"x": FloatDistribution(0, 1)}, m=3, n=5):
        optuna.copy_study(
            from_study_name=source.study_name, from_storage=source._storage, to_storage=url
        )

    def start():
        sampler = MetaKelSampler(url, seed=0)
        return sampler, optuna.create_study(
            study_name="new", storage=url, sampler=sampler, load_if_exists=True
        )

    def bad(trial):  # what was best in the past is worst here
        return -((trial.suggest_float("x", 0, 1) - 0.3) ** 2)

    first, study = start()
    study.optimize(bad, n_trials=6)
    sampler, again = start()
    assert "new" in sampler.prior.info.tasks  # nobody has said yet which study it is for
    copy = pickle.loads(pickle.dumps(sampler))
    with caplog.at_level(logging.INFO, logger="metakel"):
        for resumed in (sampler, copy):
            assert_allclose(resumed.trust(again), first.trust(study), rtol=1e-9)
            assert resumed.prior.info.tasks == first.prior.info.tasks
    assert "'new' is in the source of its own past" in caplog.text
    again.optimize(bad, n_trials=2)
    assert sampler.prior.info.tasks == first.prior.info.tasks
    # Another study of the same name is no reason to leave anything out.
    assert "new" in MetaKelSampler(url).prior.info.tasks
    assert MetaKelSampler(url).trust(optuna.create_study(study_name="new")) > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (lambda prior: {"source_studies": [], "prior": prior}, "give one"),
        (lambda prior: {"prior": "prior.json"}, "there is no file prior.json"),
        (lambda prior: {"source_studies": ["study"]}, "expected Optuna studies"),
        (lambda prior: {"source_studies": [lr_past()[0].trials]}, "found a list among the studies"),
        (lambda prior: {"source_studies": "past.db"}, "'sqlite:///past.db'"),
        (lambda prior: {"source_studies": "sqlite://past.db"}, "'sqlite:///past.db'"),
        (lambda prior: {"source_studies": 3}, "found no Optuna studies in 3"),
        (
            lambda prior: {"source_studies": [lr_past()[0], lr_past(sign=-1.0)[0]]},
            "some studies minimise and others maximise",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(prior, arguments, says):
    with pytest.raises(InputError, match=says):
        MetaKelSampler(**arguments(prior))


def test_a_wrong_direction_is_found_before_the_objective_runs(prior):
    """Also by an objective that trains before it asks for a parameter."""
    study = optuna.create_study(sampler=MetaKelSampler(prior=prior), direction="maximize")
    with pytest.raises(InputError, match="create the study with the direction of the past"):
        study.ask()


def test_nothing_is_printed_and_what_was_left_out_is_logged(capsys, caplog):
    def conditional(trial):
        x = trial.suggest_float("x", 0, 1)
        return x + trial.suggest_float("y", 0, 1) if x > 0.5 else x

    sources = [run(optuna.samplers.RandomSampler(seed=s), 8, conditional) for s in range(3)]
    with caplog.at_level(logging.INFO, logger="metakel"):
        sampler = MetaKelSampler(sources, seed=0)
        assert sampler.prior.space.names == ("x",)  # learned when it is first needed
    lacking = sum("y" not in trial.params for study in sources for trial in study.trials)
    assert f"y is missing in {lacking} of 24 rows" in caplog.text
    assert f"y is missing in {lacking} of 24 rows" in str(sampler.prior)
    run(sampler, 4, conditional)
    assert capsys.readouterr() == ("", "")


def test_sources_that_share_no_parameter_are_refused():
    one = past_studies({"x": FloatDistribution(0, 1)}, m=1)
    two = past_studies({"y": FloatDistribution(0, 1)}, m=1)
    with pytest.raises(InputError, match="no parameter that varies is in every one"):
        MetaKelSampler([*one, *two])


def test_one_line_says_which_parameters_come_from_the_past(prior, caplog):
    def more(trial):
        trial.suggest_float("dropout", 0, 1)
        trial.suggest_categorical("shape", [(1, 2), (3, 4)])  # no plain values
        return lr_loss(trial)

    with caplog.at_level(logging.INFO, logger="metakel"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's, of the choices
        run(MetaKelSampler(prior=prior, seed=0), 5, more, study_name="new")
    (line,) = [text for text in caplog.messages if "from the past" in text]
    assert line == (
        "study 'new': from the past lr, depth, kind; new in the model dropout; "
        "sampled by TPESampler shape"
    )


def test_warnings_are_seen_beside_a_storage_in_sqlite(tmp_path):
    """In a program of its own: without handlers, migrations of Optuna configure all logging."""
    code = """if True:
        import sys
        import optuna
        from metakel.integrations.optuna import MetaKelSampler
        optuna.create_study(storage=sys.argv[1], study_name="past")
        optuna.load_study(storage=sys.argv[1], study_name="past")
        MetaKelSampler(sys.argv[1])
    """
    url = f"sqlite:///{tmp_path / 'past.db'}"
    done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True)
    assert "the past has no completed trial" in done.stderr, done.stderr


def test_every_trial_carries_what_was_expected_of_it(prior):
    study = run(MetaKelSampler(prior=prior, seed=0), 8)
    sampler = MetaKelSampler(prior=prior, seed=0)
    for number, trial in enumerate(study.trials):
        before = optuna.create_study()
        before.add_trials(study.trials[:number])
        assert trial.user_attrs.keys() == {EXPECTED}
        noted = trial.user_attrs[EXPECTED]
        assert noted.keys() == {"value", "sd", "trust", "why"}
        assert "is expected to be" in noted["why"]
        assert_allclose(noted["trust"], sampler.trust(before), rtol=1e-9)
        assert noted["sd"] > 0
    late = study.trials[-1]
    noted = late.user_attrs[EXPECTED]
    assert abs(late.value - noted["value"]) < 4 * noted["sd"] + 0.1


def test_the_attributes_are_written_once_per_trial(prior, monkeypatch):
    written = []
    storage = optuna.storages.InMemoryStorage()
    write = storage.set_trial_user_attr
    monkeypatch.setattr(
        storage,
        "set_trial_user_attr",
        lambda number, key, value: (written.append((number, key)), write(number, key, value)),
    )
    run(MetaKelSampler(prior=prior, seed=0), 5, storage=storage)
    assert len(written) == len(set(written)) == 5


def test_an_alarm_is_shown_on_the_trials_after_it(prior):
    study = run(MetaKelSampler(prior=prior, seed=0), 12, lambda t: -lr_loss(t))
    alarmed = ["alarm" in trial.user_attrs[EXPECTED] for trial in study.trials]
    first = alarmed.index(True)
    assert first > 0
    assert all(alarmed[first:])
    assert "trust in the history" in study.trials[-1].user_attrs[EXPECTED]["alarm"]


def test_an_enqueued_trial_is_not_said_to_be_what_was_expected(prior):
    study = optuna.create_study(sampler=MetaKelSampler(prior=prior, seed=0))
    study.enqueue_trial({"lr": 0.05})
    study.optimize(lr_loss, n_trials=2)
    assert [bool(trial.user_attrs) for trial in study.trials] == [False, True]


def test_trust_begins_high_and_is_kept_by_a_related_study(prior):
    sampler = MetaKelSampler(prior=prior, seed=0)
    assert_allclose(sampler.trust(optuna.create_study()), 1 - prior.beside.cold_weight)
    assert sampler.trust(run(sampler, 10)) > 0.9


def test_choices_longer_than_an_attribute_are_read_back():
    long = [f"{letter * 1500}" for letter in "abc"]
    space = {name: CategoricalDistribution(long) for name in ("p", "q", "r")}
    sampler = MetaKelSampler(past_studies(space), seed=0, independent_sampler=Refusing())
    study = optuna.create_study(sampler=sampler)
    first, second = (study.ask() for _ in range(2))
    for trial in (first, second):
        for name in space:
            trial.suggest_categorical(name, long)
    assert first.params != second.params


@pytest.mark.filterwarnings("ignore:.*set_metric_names is experimental")
@pytest.mark.parametrize("said", ["output_range", "name of the metric"])
def test_nothing_that_is_noted_leaves_the_limits_of_the_value(said):
    space = {"x": FloatDistribution(0, 1)}
    past = past_studies(space, m=6, n=12)
    for study in past if said == "name of the metric" else ():
        study.set_metric_names(["error_share"])
    free = MetaKelSampler(past_studies(space, m=6, n=12), seed=0).prior
    assert free.output_range == (-math.inf, math.inf)
    options = {"output_range": (0, 1)} if said == "output_range" else {}
    sampler = MetaKelSampler(past, seed=0, **options)
    assert sampler.prior.output_range == (0, 1)
    study = optuna.create_study(sampler=sampler)
    for _ in range(4):
        trial = study.ask(space)
        study.tell(trial, (trial.params["x"] - 0.3) ** 2)
    for trial in study.trials:
        assert 0 <= trial.user_attrs["metakel:expected"]["value"] <= 1
        for end in re.findall(
            r"\(([-\d.e]+) to ([-\d.e]+)\)", trial.user_attrs["metakel:expected"]["why"]
        ):
            assert all(0 <= float(number) <= 1 for number in end)
    found = sampler.certificate(study)
    assert found.regret <= study.best_value
    by_limit = found.regret == pytest.approx(study.best_value)
    assert found.range_end == (0 if by_limit else None)
    assert ("which ends at 0: at most" in str(found)) == by_limit
    with pytest.raises(InputError, match="a prior has its own range"):
        MetaKelSampler(prior=sampler.prior, output_range=(0, 1))


def branching(trial):
    """The best is with sgd, at a momentum of 0.8; with adam nothing is as good."""
    x = trial.suggest_float("x", 0, 1)
    if trial.suggest_categorical("kind", ["adam", "sgd"]) == "adam":
        return (x - 0.3) ** 2 + 0.3
    return (x - 0.3) ** 2 + (trial.suggest_float("momentum", 0, 1) - 0.8) ** 2


def test_a_conditional_parameter_is_chosen_with_the_others(caplog):
    caplog.set_level(logging.INFO, logger="metakel")
    sources = []
    for seed in range(6):
        source = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        source.optimize(branching, n_trials=16)
        sources.append(source)
    sampler = MetaKelSampler(sources, seed=0)
    assert [c.name for c in sampler.prior.space.conditions] == ["momentum"]
    study = optuna.create_study(sampler=sampler)
    study.optimize(branching, n_trials=8)
    assert study.trials[0].params["kind"] == "sgd"
    assert study.trials[0].params["momentum"] == pytest.approx(0.8, abs=0.2)
    assert study.best_value < 0.005
    # All trials are evidence, with momentum and without.
    space = chosen(study.trials[0].distributions, sampler.prior.space)
    record = finished_trials(study.trials, minimize=True)
    replay = StudyReplay(sampler.prior, space, {}, 0)
    assert len(replay.given(record).X) == 8
    study.enqueue_trial({"kind": "adam"})
    study.optimize(branching, n_trials=3)
    (line,) = [text for text in caplog.messages if "from the past" in text]
    assert "from the past x, kind, momentum; new in the model none" in line


def test_a_study_without_the_conditional_parameter_learns_from_the_rest():
    sources = []
    for seed in range(4):
        source = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        source.optimize(branching, n_trials=12)
        sources.append(source)

    def plain(trial):
        kind = trial.suggest_categorical("kind", ["adam", "sgd"])
        return (trial.suggest_float("x", 0, 1) - 0.3) ** 2 + 0.1 * (kind == "adam")

    study = optuna.create_study(sampler=MetaKelSampler(sources, seed=0))
    study.optimize(plain, n_trials=6)
    assert {*study.trials[-1].params} == {"kind", "x"}
    assert study.best_value < 0.01


def test_a_choice_that_the_past_does_not_know_is_decided_by_the_model(prior):
    """Not drawn by another sampler, with the expectation of a known choice beside it."""
    costs = {"lion": -1.0, "adam": 0.0, "tiger": 1.0, "sgd": 0.4}

    def loss(trial):
        lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        depth = trial.suggest_int("depth", 1, 10)
        kind = trial.suggest_categorical("kind", list(costs))
        return (np.log10(lr) + 3) ** 2 + 0.05 * (depth - 6) ** 2 + costs[kind]

    sampler = MetaKelSampler(prior=prior, seed=2, independent_sampler=Refusing())
    study = run(sampler, 12, loss)
    assert study.best_params["kind"] == "lion"
    for trial in study.trials:
        expected = trial.user_attrs["metakel:expected"]
        assert abs(trial.value - expected["value"]) < 4 * expected["sd"] + 0.1


def test_an_alarm_is_logged_once_with_the_range_of_the_past(caplog):
    study = optuna.create_study(direction="maximize", sampler=MetaKelSampler(prior="lightgbm"))
    study.optimize(lambda t: 70 + 100 * t.suggest_float("learning_rate", 0.01, 0.3), n_trials=5)
    assert caplog.text.count("alarm after 1 values") == 1
    assert "between 0 and 1" in caplog.text
