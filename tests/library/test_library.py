"""Priors of the library: what is there, how it is loaded, and every place that takes its name."""

import csv
import gzip
import json
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import metakel as mk
from metakel import library
from metakel.errors import InputError
from metakel.library._priors import beside as library_beside
from metakel.library._priors import metric_called
from metakel.testing import check_library_entry

CARDS = library.list()


@pytest.mark.parametrize("card", CARDS, ids=lambda c: f"{c.name}-{c.metric}")
def test_every_prior_is_usable_small_and_helps(card):
    prior = library.load(card.name, card.metric)
    assert prior.info.model == card.name
    assert prior.info.output == card.metric
    assert prior.helps
    assert prior.info.minimize == (card.metric in ("log_loss", "rmse", "mae"))
    assert set(prior.space.names) == set(library.ENTRIES[card.name].parameters)
    wanted = [prior.space.key(first) for first in prior.info.tried_first]
    assert [prior.space.key(x) for x in prior.optimizer().ask_batch(3)] == wanted
    file = files("metakel.library") / "priors" / f"{card.name}-{card.metric}.json.gz"
    assert len(file.read_bytes()) <= 400_000
    assert card.title in str(card)
    assert "public data sets" in card._repr_html_()


def test_all_priors_together_leave_the_wheel_below_four_megabytes():
    folder = files("metakel.library") / "priors"
    # The rest of the wheel takes 0.95 of the four.
    assert sum(len(path.read_bytes()) for path in folder.iterdir()) < 3_040_000


def test_the_defaults_of_a_model_are_within_its_ranges():
    for card in CARDS:
        prior, entry = library.load(card.name, card.metric), library.ENTRIES[card.name]
        for name, value in entry.defaults.items():
            parameter = prior.space[name]
            known = parameter.choices or (parameter.low <= value <= parameter.high,)
            assert value in known or known == (True,) or name == "learning_rate"


def test_what_is_not_there_is_refused_with_what_is():
    with pytest.raises(InputError, match="no model 'perceptron'; it has lightgbm"):
        library.load("perceptron")
    with pytest.raises(InputError, match="it has log_loss"):
        library.load("lightgbm", "f1")


def test_other_names_of_parameters_change_no_decision():
    plain = library.load("xgboost", "auc")
    other = library.load(
        "xgboost", "auc", names={"learning_rate": "eta", "gamma": "min_split_loss"}
    )
    one, two = plain.optimizer(), other.optimizer()
    for value in (0.8, 0.82, 0.79):
        a, b = one.ask(), two.ask()
        assert list(a.values()) == list(b.values())
        assert "eta" in b
        one.tell(a, value)
        two.tell(b, value)
    assert library.ENTRIES["lightgbm"].spelled("model__feature_fraction") == "colsample_bytree"
    assert library.spelled(plain, ("eta", "max_depth")).space.names[0] == "eta"


def test_an_error_in_other_units_is_a_task_like_the_others():
    """The target of a regression is in any unit: a factor of all errors changes hardly anything."""
    chosen = []
    for unit in (1.0, 5000.0):
        optimizer = library.load("knn", "rmse").optimizer()
        for step in range(5):
            x = optimizer.ask()
            optimizer.tell(
                x, unit * (0.8 + 0.1 * abs(np.log(x["n_neighbors"] / 12)) + 0.001 * step)
            )
        assert optimizer.alarm is None
        assert optimizer.trust > 0.5
        chosen.append(optimizer.best().x["n_neighbors"])
    assert abs(np.log(chosen[0] / chosen[1])) < 0.5


def test_a_certificate_follows_the_opening_and_not_another_first_point():
    prior = library.load("knn", "log_loss")
    optimizer = prior.optimizer()
    optimizer.tell(optimizer.ask(), 0.5)
    assert not optimizer.certificate().reason
    other = prior.optimizer()
    other.tell({**prior.info.tried_first[0], "n_neighbors": 2}, 0.5)
    assert "first point" in other.certificate().reason


def test_every_door_takes_the_name(tmp_path, monkeypatch, capsys):
    first = library.load("knn").optimizer().ask()
    tuner = mk.Tuner("library:knn")
    assert tuner.ask() == first
    from metakel.cli import main

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["metakel", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        return capsys.readouterr().out

    found = json.loads(run("suggest", "library:knn", "--json"))
    assert found[0]["configuration"] == first
    assert "maximise auc" in run("show", "library:knn:auc")
    monkeypatch.chdir(tmp_path)
    program = "import sys; print('loss', 0.3 + abs(int(sys.argv[1]) - 9) / 100)"
    lines = run(
        "tune", "library:knn", "--journal", "run.jsonl", "--budget", "3", "--json", "--",
        sys.executable, "-c", program, "{k}",
    ).splitlines()  # fmt: skip
    events = [json.loads(line) for line in lines]
    assert [e["event"] for e in events] == ["complete"] * 3 + ["finished"]
    assert events[0]["configuration"]["weights"] == "uniform", "left out of the command: default"
    assert events[0]["configuration"]["k"] > 0
    # As the command says what comes next, whose parameters have the names of the journal.
    assert "k" in run("suggest", "library:knn", "--journal", "run.jsonl").splitlines()[0].split()
    assert "report.html" in run("report", "library:knn", "--journal", "run.jsonl")


def test_the_sampler_takes_the_name_in_any_spelling():
    optuna = pytest.importorskip("optuna")
    from metakel.integrations.optuna import MetaKelSampler

    def objective(trial, name):
        rate = trial.suggest_float(name, 0.005, 0.5, log=True)
        trees = trial.suggest_int("n_estimators", 20, 500, log=True)
        return 0.3 + 0.01 * np.log(rate * trees / 10) ** 2

    studies = {}
    for name in ("learning_rate", "eta"):
        studies[name] = optuna.create_study(sampler=MetaKelSampler(prior="xgboost", seed=0))
        studies[name].optimize(lambda trial, name=name: objective(trial, name), n_trials=6)
    pairs = zip(studies["learning_rate"].trials, studies["eta"].trials, strict=True)
    for one, other in pairs:
        assert one.params["learning_rate"] == other.params["eta"]
    assert studies["eta"].sampler.trust(studies["eta"]) > 0
    best = optuna.create_study(direction="maximize", sampler=MetaKelSampler(prior="xgboost"))
    best.optimize(lambda trial: -objective(trial, "eta"), n_trials=2)
    with pytest.raises(InputError, match="no model"):
        MetaKelSampler(prior="library:nothing")


def test_the_page_has_the_numbers_of_the_cards():
    page = Path(__file__).parents[2] / "docs" / "guide" / "library.md"
    if not page.exists():
        pytest.skip("only in a clone")
    text = page.read_text(encoding="utf-8")
    for card in CARDS:
        line = next(r for r in text.splitlines() if f'| `"{card.name}", "{card.metric}"' in r)
        for number in (card.data_sets, f"{card.runs:,}", f"{card.gain:.2f}", card.better):
            assert f"| {number} |" in line


def _own(function, tasks=6, runs=12, seed=0, names=("n_neighbors", "weights")):
    rng, rows = np.random.default_rng(seed), []
    for task in range(tasks):
        shift = 0.1 * rng.normal()
        for k in np.unique(np.exp(rng.uniform(0, np.log(50), runs)).astype(int)):
            row = {"n_neighbors": int(k), "weights": ["uniform", "distance"][int(rng.integers(2))]}
            rows.append({"task": f"own {task}", "auc": function(row) + 0.02 * shift, **row})
    columns = ("task", *names, "auc")
    table = {name: [row[name] for row in rows] for name in columns}
    return mk.History.from_frame(table, task="task", output="auc", minimize=False)


def _far_from_the_library(x):
    """Best at two neighbours, where public data sets are at their worst."""
    return 0.9 - 0.04 * abs(np.log(x["n_neighbors"] / 2)) + 0.01 * (x["weights"] == "uniform")


def test_a_history_of_ones_own_joins_and_the_one_that_explains_it_counts(tmp_path):
    """Own tasks unlike the library take over; a few runs like its own leave it in charge."""
    known = library.load("knn", "auc")
    own = _own(_far_from_the_library)
    both = mk.learn_prior(own, library="knn", certify="none")
    assert both.beside.library.weight < 0.3
    alone = mk.learn_prior(own, certify="none")
    first = {name: prior.optimizer().ask() for name, prior in (("both", both), ("own", alone))}
    assert first["both"]["n_neighbors"] <= 5
    task = known.optimizer()
    like = _own(lambda x: float(task.predict({**x, "p": 2})[0][0]), tasks=2, runs=5, seed=1)
    other = mk.learn_prior(like, library="knn:auc", certify="none")
    assert other.beside.library is None or other.beside.library.weight > 0.5
    assert other.info.tried_first == known.info.tried_first
    both.save(tmp_path / "both.json")
    again = mk.Prior.load(tmp_path / "both.json")
    assert again.optimizer().ask() == first["both"]
    assert again.beside.library.weight == both.beside.library.weight


def test_what_cannot_join_is_refused_with_what_can():
    own = _own(_far_from_the_library)
    with pytest.raises(InputError, match="minimised"):
        mk.learn_prior(own, library="knn:log_loss")
    with pytest.raises(InputError, match="named parameters"):
        mk.learn_prior(mk.History([mk.Task([[0.0], [1.0]], [0.0, 1.0])]), library="knn")
    with pytest.raises(
        InputError, match="n_neighbors, weights, which the library's prior of ridge"
    ):
        mk.learn_prior(own, library="ridge:r2")


def test_runs_that_are_contributed_are_checked(tmp_path):
    """The library's own runs pass; every defect of a copy is named."""
    home = Path(__file__).parents[2] / "library"
    if not home.exists():
        pytest.skip("only in a clone")
    entry, facts = library.ENTRIES["knn"], home / "datasets.csv"
    check_library_entry(entry, home / "runs" / "knn.csv.gz", facts, "rmse")
    with gzip.open(home / "runs" / "knn.csv.gz", "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "regression"]
    first = rows[0]["dataset"]
    damaged = {
        "data sets for regression": [row for row in rows if row["dataset"] == first],
        "no run of the defaults": [row for row in rows if row["configuration"] != "0"],
        "was run twice": [*rows, rows[0]],
        "are no parameters of knn": [{**row, "parameters": '{"depth": 3}'} for row in rows],
        "has one value in all runs": [{**row, "parameters": '{"p": 1}'} for row in rows],
        "runs failed": [{**row, "failed": "no memory", "rmse": ""} for row in rows],
        "neither rmse nor a reason": [{**row, "rmse": ""} for row in rows],
        "the licence is": [{**row, "dataset": f"my {row['dataset']}"} for row in rows],
    }
    for words, found in damaged.items():
        with (tmp_path / "runs.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(found)
        with pytest.raises(AssertionError, match=words):
            check_library_entry(entry, tmp_path / "runs.csv", facts, "rmse")


def test_past_studies_join_the_library_through_the_sampler():
    optuna = pytest.importorskip("optuna")
    from metakel.integrations.optuna import MetaKelSampler

    def objective(trial):
        k = trial.suggest_int("n_neighbors", 1, 50, log=True)
        return _far_from_the_library({"n_neighbors": k, "weights": "uniform"})

    past = []
    for seed in range(4):
        sampler = optuna.samplers.RandomSampler(seed=seed)
        past.append(optuna.create_study(direction="maximize", sampler=sampler))
        past[-1].optimize(objective, n_trials=12)
    sampler = MetaKelSampler(past, prior="knn:auc", seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=3)
    assert sampler.prior.info.model == "knn"
    assert sampler.prior.beside.library is not None
    assert study.trials[0].params["n_neighbors"] <= 6
    with pytest.raises(InputError, match="two ways to say the same"):
        MetaKelSampler(past, prior=library.load("knn"))
    # Without a past, and where the study is all of it, the library decides alone.
    usual = optuna.create_study(direction="maximize", sampler=MetaKelSampler(prior="knn", seed=0))
    usual.optimize(objective, n_trials=4)
    for sources in ([], [optuna.create_study(direction="maximize")], None):
        study = optuna.create_study(direction="maximize")
        for trials in (2, 2):
            own = [study] if sources is None else sources
            study.sampler = MetaKelSampler(own, prior="knn", seed=0)
            study.optimize(objective, n_trials=trials)
        assert [t.params for t in study.trials] == [t.params for t in usual.trials]


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("RMSE", "rmse"), ("neg_root_mean_squared_error", "rmse"), ("binary_logloss", "log_loss"),
        ("Log Loss", "log_loss"), ("ROC-AUC", "auc"), ("acc", "accuracy"), ("R²", None),
        ("brier", None), ("yield", None),
    ],
)  # fmt: skip
def test_a_metric_is_known_by_what_people_call_it(name, metric):
    assert metric_called(name) == metric


def test_a_library_of_another_metric_is_said_and_the_negative_of_a_loss_refused(caplog):
    def own(output):
        history = _own(_far_from_the_library)
        return replace(history, report=replace(history.report, output=output))

    assert library_beside("knn", own("acc"))[0].info.output == "accuracy"
    assert not caplog.text
    assert library_beside("knn", own("kappa"))[0].info.output == "auc"
    assert "does not know the metric 'kappa': it takes that of auc" in caplog.text
    with pytest.raises(InputError, match="not its negative"):
        library_beside("knn", own("neg_log_loss"))
