"""MLflow runs from a real store on disk; nothing is dropped in silence."""

from __future__ import annotations

import mlflow
import numpy as np
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.io import mlflow as reader
from metakel.space import Categorical, Fixed, Float, Integer

PARAMS = [
    {"rate": rate, "depth": depth, "kind": kind, "flag": flag, "seed": 7}
    for rate, depth, kind, flag in zip(
        (0.001, 0.01, 0.1, 1.0, 0.02, 0.5),
        (1, 2, 3, 4, 5, 6),
        ("u", "v", "u", "v", "u", "u"),
        (True, False, True, True, False, False),
        strict=True,
    )
]


@pytest.fixture
def store(tmp_path, monkeypatch):
    # MLflow 3 keeps the file store, which most runs on disk are in, behind a switch.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


@pytest.fixture
def client(store):
    return mlflow.MlflowClient(tracking_uri=store)


def log(client, experiment, params, metrics, *, status="FINISHED", tags=None):
    run = client.create_run(experiment, tags=tags or {}).info.run_id
    for name, value in params.items():
        client.log_param(run, name, value)
    for name, value in metrics.items():
        client.log_metric(run, name, value)
    if status != "RUNNING":
        client.set_terminated(run, status)
    return run


def fill(client, names=("first", "second")):
    for shift, name in enumerate(names):
        experiment = client.create_experiment(name)
        for i, params in enumerate(PARAMS):
            log(client, experiment, params, {"auc": i + shift / 2}, tags={"site": "ab"[i % 2]})


def test_experiments_are_tasks_and_text_becomes_parameters(client, store):
    fill(client)
    history = History.from_mlflow(["first", "second"], output="auc", tracking_uri=store)
    assert [task.name for task in history] == ["first", "second"]
    np.testing.assert_array_equal(history[1].y, np.arange(6) + 0.5)
    assert history.space["rate"] == Float("rate", 0.001, 1.0, log=True)
    assert history.space["depth"] == Integer("depth", 1, 6)
    assert history.space["kind"] == Categorical("kind", ("u", "v"))
    assert history.space["flag"] == Categorical("flag", (False, True))
    assert history.space["seed"] == Fixed("seed", 7)
    for row, params in zip(history.space.decode(history[0].X), PARAMS, strict=True):
        assert row == {**params, "rate": pytest.approx(params["rate"])}
    assert (history.report.kept, history.report.failed) == (12, 0)


def test_a_store_may_be_a_path(client, store, tmp_path):
    fill(client)
    history = History.from_mlflow("first", output="auc", tracking_uri=tmp_path / "mlruns")
    assert history.total == 6


def test_every_page_is_read(client, store, monkeypatch):
    fill(client)
    whole = History.from_mlflow(["first", "second"], output="auc", tracking_uri=store)
    monkeypatch.setattr(reader, "PAGE", 2)
    paged = History.from_mlflow(["first", "second"], output="auc", tracking_uri=store)
    assert paged.total == 12
    np.testing.assert_array_equal(paged[0].X, whole[0].X)
    with pytest.raises(InputError, match="found Default, first, second"):
        History.from_mlflow("third", output="auc", tracking_uri=store)


def test_what_cannot_be_used_is_counted(client, store):
    fill(client, ["only"])
    experiment = client.get_experiment_by_name("only")
    for status in ("FAILED", "KILLED", "RUNNING", "FAILED"):
        log(client, experiment.experiment_id, PARAMS[0], {"auc": 9.0}, status=status)
    log(client, experiment.experiment_id, PARAMS[1], {"loss": 1.0})
    log(client, experiment.experiment_id, PARAMS[2], {"auc": float("nan")})
    incomplete = {name: PARAMS[3][name] for name in ("rate", "kind", "flag", "seed")}
    log(client, experiment.experiment_id, incomplete, {"auc": 3.0})
    deleted = log(client, experiment.experiment_id, PARAMS[4], {"auc": 100.0})
    client.delete_run(deleted)
    report = History.from_mlflow(experiment, output="auc", tracking_uri=store).report
    assert (report.rows, report.kept) == (13, 6)
    assert report.failed == 6  # not finished: 4, without the metric: 1, nan: 1
    assert report.missing_inputs == 1
    for words in ("2 runs are failed", "1 runs are running", "1 finished runs have no 'auc'"):
        assert words in str(report)


def test_a_tag_or_a_parameter_can_tell_tasks_apart(client, store):
    fill(client)
    wanted = {"output": "auc", "tracking_uri": store, "minimize": True}
    by_tag = History.from_mlflow(["first", "second"], task="site", **wanted)
    assert sorted(task.name for task in by_tag) == ["a", "b"]
    np.testing.assert_array_equal(sorted(by_tag[0].y), [-4.5, -4, -2.5, -2, -0.5, 0])
    by_parameter = History.from_mlflow("first", task="kind", **wanted)
    assert {task.name: task.n for task in by_parameter} == {"u": 4, "v": 2}
    assert "kind" not in by_parameter.space.names
    with pytest.raises(InputError, match=r"tag or parameter 'sites'; found depth, .*, site$"):
        History.from_mlflow("first", task="sites", **wanted)


def test_runs_are_filtered_in_the_words_of_mlflow(client, store):
    fill(client)
    history = History.from_mlflow(
        ["first", "second"],
        output="auc",
        tracking_uri=store,
        filter_string="tags.site = 'a' and metrics.auc > 1",
        inputs=["rate"],
    )
    assert [task.y.tolist() for task in history] == [[2.0, 4.0], [2.5, 4.5]]


def test_the_last_value_of_a_metric_counts_and_mixed_text_is_a_category(client, store):
    experiment = client.create_experiment("steps")
    for i, width in enumerate(("0.5", "auto", "1e-3", "0.5")):
        run = log(client, experiment, {"width": width, "i": i}, {}, status="RUNNING")
        for step in range(3):
            client.log_metric(run, "auc", 10 * i + step, step=step)
        client.set_terminated(run)
    history = History.from_mlflow("steps", output="auc", tracking_uri=store)
    assert history[0].y.tolist() == [2.0, 12.0, 22.0, 32.0]
    assert history.space["width"] == Categorical("width", ("0.5", "1e-3", "auto"))


@pytest.mark.parametrize("text", ["1_000", "\uff13\uff13", "\u0663\u0663"])
def test_parameters_that_are_no_numbers_in_ascii_stay_text(client, store, text):
    experiment = client.create_experiment("digits")
    for i in range(4):
        log(client, experiment, {"width": text if i % 2 else "7", "i": i}, {"auc": float(i)})
    history = History.from_mlflow("digits", output="auc", tracking_uri=store)
    assert history.space["width"] == Categorical("width", tuple(sorted(("7", text))))


def test_what_is_not_there_is_named(client, store):
    fill(client, ["only"])
    with pytest.raises(InputError, match="no run has the metric 'acc'; found auc"):
        History.from_mlflow("only", output="acc", tracking_uri=store)
    client.create_experiment("empty")
    with pytest.raises(InputError, match=r"no finished runs in empty \(no runs\)"):
        History.from_mlflow("empty", output="auc", tracking_uri=store)
    with pytest.raises(InputError, match="no MLflow experiments were named"):
        History.from_mlflow([], output="auc", tracking_uri=store)


def test_a_parameter_named_like_the_metric_is_left_out_with_a_note(client, store):
    experiment = client.create_experiment("clash")
    for i in range(4):
        log(client, experiment, {"x": i / 4, "auc": "macro"}, {"auc": float(i)})
    history = History.from_mlflow("clash", output="auc", tracking_uri=store)
    assert history.space.names == ("x",)
    assert any("another column has this name: auc" in note for note in history.report.notes)
