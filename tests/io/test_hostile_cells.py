"""Cells and files that no table should hold: refused by an error of ours, or decided."""

from __future__ import annotations

import numpy as np
import pytest

from metakel import Prior
from metakel.data import History
from metakel.errors import InputError, MetaKelError
from metakel.scale import scan

N = 24
RNG = np.random.default_rng(0)
ROWS = {
    "task": ["a"] * (N // 2) + ["b"] * (N // 2),
    "x": RNG.uniform(0, 1, N).tolist(),
    "y": RNG.normal(size=N).tolist(),
}
NAMED = {"task": "task", "output": "y"}
ODD = [{"a": 1}, {1}, np.zeros(3), b"x", 1j, object()]


@pytest.mark.parametrize("cell", ODD, ids=lambda cell: type(cell).__name__)
@pytest.mark.parametrize("name", ["x", "y"])
def test_a_cell_that_is_no_value_is_named(name, cell):
    rows = {**ROWS, name: [*ROWS[name][:-1], cell]}
    with pytest.raises(InputError, match=f"column '{name}' holds"):
        History.from_frame(rows, **NAMED)


@pytest.mark.parametrize("cell", [{"a": 1}, {1}, np.zeros(3)], ids=["dict", "set", "array"])
def test_a_task_that_has_no_name_is_refused(cell):
    with pytest.raises(InputError, match="expected text or numbers"):
        History.from_frame({**ROWS, "task": [*ROWS["task"][:-1], cell]}, **NAMED)


def test_lists_are_choices_as_tuples_are():
    cells = [[64, 64], [32]] * (N // 2)
    space = History.from_frame({**ROWS, "layers": cells}, **NAMED).space
    assert set(space["layers"].values) == {(64, 64), (32,)}


@pytest.mark.parametrize("cell", [[1, 2], (3,), True], ids=["list", "tuple", "flag"])
def test_one_odd_cell_does_not_turn_numbers_into_choices(cell):
    rows = {**ROWS, "x": [*ROWS["x"][:-1], cell]}
    with pytest.raises(InputError, match=f"among {N - 1} numbers; expected numbers"):
        History.from_frame(rows, **NAMED)


@pytest.mark.parametrize("name", ["x", "y"])
def test_what_a_mask_hides_is_missing(name):
    hidden = np.arange(N) == 5
    masked = {**ROWS, name: np.ma.array(ROWS[name], mask=hidden)}
    empty = {**ROWS, name: [None if h else v for v, h in zip(ROWS[name], hidden, strict=True)]}

    def outcome(rows):
        try:
            return [
                (task.X.tolist(), task.y.tolist()) for task in History.from_frame(rows, **NAMED)
            ]
        except InputError as error:
            return str(error)

    assert outcome(masked) == outcome(empty) != outcome(ROWS)
    shown = {**ROWS, name: np.ma.array(ROWS[name])}
    assert outcome(shown) == outcome(ROWS)


def with_digits(path, column: int, digits: int):
    lines = [[t, str(i * i), str(i)] for i, t in enumerate(ROWS["task"])]
    lines[3][column] = "9" * digits
    path.write_text("\n".join(",".join(line) for line in [["task", "x", "y"], *lines]) + "\n")
    return path


@pytest.mark.parametrize("digits", [30, 300])
def test_integers_of_many_digits_are_numbers(tmp_path, digits):
    for column in (1, 2):
        path = with_digits(tmp_path / "runs.csv", column, digits)
        assert History.from_csv(path, **NAMED).total == N


def test_integers_beyond_all_floats_are_refused_or_count_as_failed(tmp_path):
    assert History.from_csv(with_digits(tmp_path / "y.csv", 2, 5000), **NAMED).total == N - 1
    with pytest.raises(InputError, match=r"'x' is inf|ranges over"):
        History.from_csv(with_digits(tmp_path / "x.csv", 1, 5000), **NAMED)
    with pytest.raises(InputError, match="too large"):
        History.from_frame({**ROWS, "x": [*range(N - 1), 10**400]}, **NAMED)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_many_nested_brackets_are_no_prior(tmp_path, text):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InputError, match="is not a saved prior"):
        Prior.load(tmp_path / "p.json")


def test_a_damaged_parquet_file_is_an_error_of_ours_or_a_table(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "runs.parquet"
    kinds = [f"ä{i % 3}" for i in range(N)]
    parquet.write_table(pa.table({**ROWS, "kind": kinds}), path, compression="snappy")
    whole = path.read_bytes()
    refused = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        content = bytearray(whole if seed % 4 else whole[: rng.integers(len(whole))])
        for _ in range(3):
            if content:
                content[rng.integers(len(content))] = rng.integers(256)
        path.write_bytes(content)
        for read in (History.from_parquet, scan):
            try:
                read(path, **NAMED)
            except MetaKelError:
                refused += 1
    assert refused > 100


def test_an_array_among_numbers_is_named():
    """Compared with the name of its column it has no truth value."""
    cells = [0.1 * i for i in range(29)] + [np.arange(3.0)]
    frame = {
        "task": [f"t{i % 3}" for i in range(30)],
        "p": cells,
        "y": [0.01 * i * i for i in range(30)],
    }
    with pytest.raises(MetaKelError, match="column 'p' holds"):
        History.from_frame(frame, task="task", output="y")
