"""What a second attack found wrong in silence: marks between thousands, slips, names, scales."""

from __future__ import annotations

import json

import numpy as np
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.io import propose, read, read_frame

N = 72


def table(**columns):
    rng = np.random.default_rng(0)
    found = {"batch": [f"b{i % 6}" for i in range(N)], "heat": rng.integers(30, 110, N)}
    return {**found, "score": rng.uniform(0.5, 0.95, N), **columns}


def read_table(output="score", **columns):
    return History.from_frame(table(**columns), task="batch", output=output)


def test_a_workbook_of_texts_is_read_as_the_same_csv_file(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    speeds, shares = ("950", "1.050", "2.000"), ("0,52", "1,5", "0,75", "2,25")
    rows = [["Charge", "Drehzahl", "Druck", "Wert"]]
    rows += [[f"c{i % 4}", speeds[i % 3], shares[i % 4], f"{40 + i},5"] for i in range(24)]
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "runs.xlsx")
    (tmp_path / "runs.csv").write_text("\n".join(";".join(row) for row in rows))
    of_book = History.from_excel(tmp_path / "runs.xlsx", task="Charge", output="Wert")
    of_text = History.from_csv(tmp_path / "runs.csv", task="Charge", output="Wert")
    assert of_book.space == of_text.space
    assert (of_book.space["Drehzahl"].low, of_book.space["Drehzahl"].high) == (950, 2000)
    assert "points between thousands" in str(of_book.report)


@pytest.mark.parametrize("mark", ["'", "’", "\u00a0", "\u202f"])
def test_marks_that_only_stand_between_thousands_are_read(tmp_path, mark):
    cells = ("950", f"1{mark}050", f"12{mark}000")
    rows = [f"t{i % 2};{cells[i % 3]};{i / 7:.3f}" for i in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["task;speed;score", *rows]), encoding="utf-8")
    space = History.from_csv(tmp_path / "t.csv", task="task", output="score").space
    assert (space["speed"].low, space["speed"].high) == (950, 12000)


def test_numbers_with_a_space_may_be_several():
    history = read_table(layers=[("64 128", "32 256", "128 512")[i // 6 % 3] for i in range(N)])
    assert len(history.space["layers"].choices) == 3
    assert "which is no plain number" in str(history.report)


@pytest.mark.parametrize("word", [-999, -1])
def test_a_number_in_place_of_a_word_is_asked_about(word):
    accuracy = np.where(np.arange(N) % 20 == 7, word, np.linspace(0.5, 0.95, N))
    assert "?" in str(read_table("accuracy", accuracy=accuracy).report)


def test_rows_and_tasks_on_another_scale_are_asked_about():
    rows = np.linspace(0.5, 0.95, N) * np.where(np.arange(N) < 10, 100, 1)
    assert "is this one unit?" in str(read_table("accuracy", accuracy=rows).report)
    tasks = np.linspace(2, 9, N) * np.where(np.arange(N) % 6 < 3, 1000, 1)
    assert "is this one unit?" in str(read_table("titre", titre=tasks).report)
    rows = np.linspace(2, 9, N) * np.where(np.arange(N) % 7 < 2, 1000, 1)
    assert "is this one unit?" in str(read_table("titre", titre=rows).report)
    drawn = 10 ** np.random.default_rng(0).uniform(0, 4, 6)  # levels of their own
    levels = np.linspace(2, 9, N) * drawn[np.arange(N) % 6]
    assert "is this one unit?" not in str(read_table("titre", titre=levels).report)
    wide = 10 ** np.random.default_rng(0).uniform(0, 4, N)
    assert "is this one unit?" not in str(read_table("titre", titre=wide).report)


def test_a_blend_with_a_slip_is_named():
    parts = np.round(100 * np.random.default_rng(0).dirichlet([1, 1, 1], N), 1)
    parts[:, 2] = np.round(100 - parts[:, 0] - parts[:, 1], 1)
    parts[5, 0] += 0.3
    history = read_table(**dict(zip("abc", parts.T, strict=True)))
    assert "a + b + c = 100 in all rows but 1" in str(history.report)
    loose = np.random.default_rng(1).uniform(0, 100, (N, 3))
    assert "all rows but" not in str(read_table(**dict(zip("abc", loose.T, strict=True))).report)


def test_a_name_that_no_table_has_cannot_be_renamed():
    with pytest.raises(InputError, match="no column 'Heat' to rename; found batch, heat, score"):
        History.from_frame(table(), task="batch", output="score", rename={"Heat": "heat"})


def test_choices_under_two_names_have_a_note():
    solvents = [("THF", "DMF", "MeCN")[i % 3] for i in range(N)]
    one = {**table(), "solvent": solvents}
    other = {**table(), "medium": solvents, "batch": [f"c{i % 6}" for i in range(N)]}
    report = str(History.from_frame([one, other], task="batch", output="score").report)
    assert "--rename medium=solvent" in report


def test_choices_that_differ_in_spaces_have_a_note():
    history = read_table(solvent=[("THF", "THF ", "DMF")[i // 6 % 3] for i in range(N)])
    assert "solvent has .THF. and .THF ., taken as two choices".replace(".", "'") in str(
        history.report
    )


def test_numbers_are_no_path():
    assert "drop_path" in read_table(drop_path=np.linspace(0, 0.5, N)).space.names
    assert "run_id" not in read_table(run_id=np.arange(N) * 3 % 71).space.names


def test_a_list_of_runs_is_read_as_lines_of_them(tmp_path):
    columns = {name: np.asarray(cells).tolist() for name, cells in table().items()}
    runs = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "runs.json").write_text(json.dumps(runs, indent=1))
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, runs)))
    listed, lines = (
        History.from_jsonl(tmp_path / name, task="batch", output="score")
        for name in ("runs.json", "runs.jsonl")
    )
    assert listed.space == lines.space
    assert listed.total == lines.total == N


def test_columns_of_an_export_may_be_named_as_they_stand_there():
    own = {"number": np.arange(N), "state": ["COMPLETE"] * N}
    frame = {**table(), **own, "params_x": np.linspace(0, 1, N), "params_number": np.arange(N) % 7}
    wanted = {"task": "batch", "output": "score"}
    assert set(History.from_frame(frame, **wanted).space.names) == {"x", "number", "heat"}
    history = History.from_frame(frame, **wanted, inputs=["params_x", "heat"])
    assert history.space.names == ("params_x", "heat")
    noisy = {**frame, "user_attrs_sd": np.full(N, 0.1)}
    assert History.from_frame(noisy, **wanted, noise="user_attrs_sd").tasks[0].noise_std is not None
    source = read_frame(frame, **wanted)
    assert set(read(source, propose(source))[1].names) == {"x", "number", "heat"}
