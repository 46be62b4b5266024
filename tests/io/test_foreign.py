"""Whatever is given to a reader, it is read, or refused by an error of ours."""

from __future__ import annotations

import csv
import random
import sqlite3

import numpy as np
import pytest

from metakel import History, InputError, learn_prior
from metakel._arrays import check_choice
from metakel.io.csv_files import csv_columns
from metakel.kernels import legendre
from metakel.optimize.record import as_values
from metakel.scale import scan
from metakel.space import Categorical, Float, Space
from metakel.tuner import Store, Tuner
from metakel.tuner.journal import Journal, encoded

pd = pytest.importorskip("pandas")
ROWS = 24
NUMBERS = np.random.default_rng(0).standard_normal(ROWS)
TABLE = {"task": [f"t{i % 3}" for i in range(ROWS)], "x": NUMBERS, "y": NUMBERS[::-1]}


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (np.zeros((ROWS, 2)), r"column 'p' is of \(24, 2\); expected a value for every row"),
        (np.array(3.0), r"column 'p' is of \(\); expected"),
        (3.0, "column 'p' is of float; expected"),
        (None, "column 'p' is of NoneType; expected"),
        ([{"a": i} for i in range(ROWS)], r"column 'p' holds \{'a': 0\}; expected numbers, text"),
        (np.arange(ROWS).astype("timedelta64[s]"), ""),
        ([10**400 if i % 2 else "a" for i in range(ROWS)], ""),
        ([10**400 if i % 2 else 0.5 for i in range(ROWS - 1)] + [None], "too large for a float"),
        ([*range(ROWS - 1), np.array([1, 2])], "column 'p' holds array.*expected numbers"),
        ([pd.NA if i % 3 == 0 else i for i in range(ROWS)], ""),
        (pd.array([None if i % 4 == 0 else i for i in range(ROWS)], dtype="Int64"), ""),
    ],
)
def test_odd_columns_are_read_or_refused(column, error):
    if error:
        with pytest.raises(InputError, match=error):
            History.from_frame({**TABLE, "p": column}, task="task", output="y")
        return
    History.from_frame({**TABLE, "p": column}, task="task", output="y")


def test_names_of_columns_may_be_numbers():
    frame = pd.DataFrame({0: TABLE["task"], 1: TABLE["x"], 2: NUMBERS**2, 3: TABLE["y"]})
    history = History.from_frame(frame, task=0, output=3, inputs=[1], exclude=[2])
    assert history.space.names == ("1",)


def test_choices_that_cannot_be_compared_are_refused():
    with pytest.raises(InputError, match=r"'c' has the value \{'a': 1\}; expected numbers, text"):
        Categorical("c", ({"a": 1}, {"a": 2}))


def test_a_damaged_storage_of_optuna_is_refused(tmp_path):
    optuna = pytest.importorskip("optuna")
    url = f"sqlite:///{tmp_path}/sound.db"
    study = optuna.create_study(storage=url)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    sound, refused = (tmp_path / "sound.db").read_bytes(), 0
    for seed in range(12):
        rng, content = random.Random(seed), bytearray(sound)
        for _ in range(300):
            content[rng.randrange(100, len(content))] = rng.randrange(256)
        (tmp_path / f"{seed}.db").write_bytes(content)
        try:
            History.from_optuna(f"sqlite:///{tmp_path}/{seed}.db")
        except InputError:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE trial_values SET value = 'abc'", "could not convert string to float"),
        ("DELETE FROM study_directions", "has 0 objectives; expected one"),
        ("UPDATE trial_params SET param_name = NULL", "a parameter is called None"),
    ],
)
def test_a_storage_of_optuna_with_cells_that_are_wrong_is_refused(tmp_path, change, what):
    optuna = pytest.importorskip("optuna")
    url = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(storage=url)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    with sqlite3.connect(tmp_path / "study.db") as base:
        base.execute(change)
    with pytest.raises(InputError, match=what):
        History.from_optuna(url)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("mysql+cymysql://x/y", "needs a package that is not installed: No module named"),
        ("sqlite:///" + "a" * 5000, "there is no file"),
    ],
)
def test_a_url_that_leads_to_no_storage_is_refused(url, what):
    pytest.importorskip("optuna")
    with pytest.raises(InputError, match=what):
        History.from_optuna(url)


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "t.csv").symlink_to("t.csv")
    with pytest.raises(InputError, match=r"t\.csv cannot be read"):
        History.from_csv(tmp_path / "t.csv", task="task", output="y")


@pytest.mark.parametrize("url", ["foo://x/y", "http://x/y.parquet", "://x"])
def test_an_unknown_url_of_a_scan_is_refused(url):
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="its place cannot be read"):
        scan(url, output="y")


def test_a_header_of_a_table_that_is_too_long_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text(f"task,{'x' * 140_000},y\nt,1,2\n")
    with pytest.raises(InputError, match=r"t\.csv, at its beginning: a cell of more than 131,072"):
        History.from_csv(tmp_path / "t.csv", task="task", output="y")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_header_of_many_short_names_is_read(tmp_path, delimiter):
    names = ["task", "y", *(f"parameter{k}" for k in range(13_000))]
    rows = [names, *([f"t{i % 2}", *map(str, range(i, i + 13_001))] for i in range(4))]
    text = "\n".join(map(delimiter.join, rows))
    (tmp_path / "t.csv").write_text(text)
    assert len(text.partition("\n")[0]) > csv.field_size_limit()
    assert list(csv_columns(tmp_path / "t.csv")) == names


class Broken:
    """An object of others that can be neither compared nor shown."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        raise RuntimeError("compared")

    def __repr__(self):
        raise RuntimeError("shown")


@pytest.mark.parametrize("column", ["task", "x", "y"])
def test_a_cell_that_cannot_be_compared_is_refused(column):
    table = {name: list(cells) for name, cells in TABLE.items()}
    table[column][2] = Broken()
    with pytest.raises(InputError, match="a cell of type Broken cannot be compared"):
        History.from_frame(table, task="task", output="y")


@pytest.mark.parametrize(
    "use",
    [
        lambda space: space.encode([{"x": Broken(), "kind": "a"}]),
        lambda space: space.encode([{"x": 0.5, "kind": Broken()}]),
        lambda space: space.encode(Broken()),
        lambda space: Float("x", Broken(), 1.0),
        lambda space: check_choice("certify", Broken(), ["none", "tasks"]),
        lambda space: as_values(Broken(), 1),
    ],
)
def test_an_object_that_cannot_be_shown_is_refused(use):
    with pytest.raises(InputError, match="an object of Broken, which cannot be shown"):
        use(Space((Float("x", 0.0, 1.0), Categorical("kind", ("a", "b")))))


def test_a_kernel_of_a_huge_order_is_refused():
    with pytest.raises(InputError, match="order 1000000; expected at most 2000"):
        legendre(10**6, scaling="l2")


@pytest.mark.parametrize(("line", "name"), [(0, "minimize"), (0, "output"), (3, "value")])
def test_an_event_that_lacks_what_it_needs_is_named(tmp_path, line, name):
    prior = learn_prior(History.from_frame(TABLE, task="task", output="y"), certify="none")
    tuner = Tuner(prior, tmp_path / "j")
    tuner.tell(tuner.ask(), 0.5)
    tuner.correct(0, 0.25)
    events = Journal(tmp_path / "j").read()
    del events[line][name]
    (tmp_path / "k").write_bytes(encoded(events))
    with pytest.raises(InputError, match=f"line {line + 1}: .* has nothing as {name}; expected"):
        Store.open(tmp_path / "k")


def test_half_a_character_is_written_as_its_number(tmp_path):
    from metakel._files import write_atomically

    write_atomically(tmp_path / "page.html", "a \ud800 b")
    assert (tmp_path / "page.html").read_text() == r"a \ud800 b"
