"""Readers against real files, frames and studies; nothing is dropped in silence."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.space import Categorical, Fixed, Float

COLUMNS = {
    "dataset": ["a"] * 4 + ["b"] * 4,
    "rate": [0.001, 0.1, 1.0, 0.01, 0.002, 0.2, 0.5, 0.03],
    "kind": ["u", "v", "u", "v", "u", "u", "v", "v"],
    "score": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
}
WANTED = {"task": "dataset", "output": "score"}


def same(one: History, other: History) -> bool:
    return one.space == other.space and all(
        a.name == b.name and np.array_equal(a.X, b.X) and np.array_equal(a.y, b.y)
        for a, b in zip(one, other, strict=True)
    )


def test_pandas_polars_arrow_csv_and_parquet_read_alike(tmp_path):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    reference = History.from_frame(COLUMNS, **WANTED)
    frame = pandas.DataFrame(COLUMNS)
    frame.to_csv(tmp_path / "runs.csv", index=False)
    frame.to_parquet(tmp_path / "runs.parquet")
    with gzip.open(tmp_path / "runs.csv.gz", "wt") as stream:
        stream.write((tmp_path / "runs.csv").read_text())
    assert reference.m == 2
    assert reference.d0 == 3
    for history in (
        History.from_frame(frame, **WANTED),
        History.from_frame(polars.DataFrame(COLUMNS), **WANTED),
        History.from_frame(polars.DataFrame(COLUMNS).lazy(), **WANTED),
        History.from_frame(pyarrow.table(COLUMNS), **WANTED),
        History.from_csv(tmp_path / "runs.csv", **WANTED),
        History.from_csv(tmp_path / "runs.csv.gz", **WANTED),
        History.from_parquet(tmp_path / "runs.parquet", **WANTED),
    ):
        assert same(history, reference)


def test_inputs_are_numbers_in_the_domain_and_minimising_flips_the_sign():
    up, down = (History.from_frame(COLUMNS, **WANTED, minimize=m) for m in (False, True))
    assert up.space["rate"] == Float("rate", 0.001, 1.0, log=True)
    assert up.space["kind"] == Categorical("kind", ("u", "v"))
    for a, b in zip(up, down, strict=True):
        np.testing.assert_array_equal(a.y, -b.y)
        assert np.abs(a.X).max() <= 1
    assert "log scale" in str(up)
    assert "minimise score" in str(down)


def test_what_cannot_be_used_is_counted(tmp_path):
    (tmp_path / "runs.csv").write_text(
        "task,x,k,y\n"
        "a,0.1,1,1.0\na,0.2,2,\na,0.3,1,nan\na,,1,2.0\n,0.4,1,3.0\n"
        "a,0.1,1,1.0\na,0.1,1,1.5\na,0.5,2,inf\nb,0.5,2,4.0\nb,0.25,1,2.0\n"
    )
    history = History.from_csv(tmp_path / "runs.csv", task="task", output="y")
    report = history.report
    assert (report.rows, report.kept) == (10, 4)
    assert (report.failed, report.missing_inputs, report.missing_tasks) == (3, 1, 1)
    assert report.duplicates == 1  # an exact copy; a repeated run with another value is kept
    for words in ("3 failed", "1 with a missing input", "1 exact cop"):
        assert words in str(history)


def test_a_replicate_with_the_same_result_is_no_copy(tmp_path):
    (tmp_path / "runs.csv").write_text(
        "no,task,x,day,y\n"
        "1,a,0.1,Monday,1.0\n2,a,0.1,Tuesday,1.0\n3,a,0.2,Monday,2.0\n4,a,0.2,Monday,2.0\n"
        + "".join(f"{i},b,0.{i},Monday,{i}\n" for i in range(5, 15))
    )
    options = {"task": "task", "output": "y", "inputs": ["x"]}
    report = History.from_csv(tmp_path / "runs.csv", **options).report
    assert (report.kept, report.duplicates) == (13, 1)  # a running number tells no rows apart


def test_descriptions_of_tasks_and_constant_columns_are_not_inputs():
    table = {**COLUMNS, "size": [10] * 4 + [20] * 4, "seed": [1] * 8}
    history = History.from_frame(table, **WANTED)
    assert "size" not in history.space.names
    assert history.space["seed"] == Fixed("seed", 1)
    assert any("size has one value in every task" in note for note in history.report.notes)
    chosen = History.from_frame(table, **WANTED, inputs=["rate"])
    assert chosen.space.names == ("rate",)


def test_wrong_columns_and_files_are_named(tmp_path):
    with pytest.raises(InputError, match="no column 'auc'; found dataset"):
        History.from_frame(COLUMNS, task="dataset", output="auc")
    with pytest.raises(InputError, match="'kind' holds 'u'"):
        History.from_frame(COLUMNS, task="dataset", output="kind")
    with pytest.raises(InputError, match="there is no file"):
        History.from_csv(tmp_path / "none.csv", **WANTED)
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(InputError, match="line 3: 1 cells"):
        History.from_csv(tmp_path / "ragged.csv", task="a", output="b")
    with pytest.raises(InputError, match="found a int"):
        History.from_frame(3, **WANTED)


@pytest.fixture
def storage(tmp_path):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = f"sqlite:///{tmp_path / 'studies.db'}"

    def objective(trial):
        x = trial.suggest_float("x", 1e-3, 1.0, log=True)
        k = trial.suggest_int("k", 1, 5)
        kind = trial.suggest_categorical("kind", ["u", "v"])
        if trial.number == 3:
            raise RuntimeError
        return x + k + (kind == "u")

    for name in ("first", "second"):
        study = optuna.create_study(
            study_name=name, storage=url, sampler=optuna.samplers.RandomSampler(seed=0)
        )
        study.optimize(objective, n_trials=8, catch=RuntimeError)
    return url


def test_a_real_optuna_storage_is_read_with_its_distributions(storage):
    import optuna

    history = History.from_optuna(storage)
    assert [task.name for task in history] == ["first", "second"]
    assert history.sizes.tolist() == [7, 7]
    assert history.report.failed == 2
    assert history.report.minimize
    assert history.space["x"] == Float("x", 1e-3, 1.0, log=True)
    study = optuna.load_study(study_name="first", storage=storage)
    done = [t for t in study.get_trials() if t.state.name == "COMPLETE"]
    np.testing.assert_allclose(history[0].y, [-t.value for t in done])
    for row, trial in zip(history.space.decode(history[0].X), done, strict=True):
        assert row == {**trial.params, "x": pytest.approx(trial.params["x"])}
    assert same(History.from_optuna([study]), History(history.tasks[:1], history.space))


def test_studies_that_do_not_fit_together_are_refused():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    up, down = (optuna.create_study(direction=d) for d in ("maximize", "minimize"))
    for study, low in ((up, 0.0), (down, -1.0)):
        study.optimize(lambda t, low=low: t.suggest_float("x", low, 1.0), n_trials=2)
    with pytest.raises(InputError, match="minimise and others maximise"):
        History.from_optuna([up, down])
    several = optuna.create_study(directions=["minimize", "minimize"])
    with pytest.raises(InputError, match="2 objectives"):
        History.from_optuna(several)
