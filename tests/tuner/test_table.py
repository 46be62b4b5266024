"""The table is the record: a person keeps one file, and `suggest_rows` reads and adds to it."""

from __future__ import annotations

import csv
import os
import threading
from functools import cache
from zipfile import ZipFile

import numpy as np
import pytest

import metakel as mk
from metakel.errors import CannotWrite, InputError
from metakel.tuner import suggest_rows
from metakel.tuner.lock import locked

openpyxl = pytest.importorskip("openpyxl")
HEADER = ["Temperature", "Solvent", "Yield (%)"]


def yield_of(temperature, solvent):
    return 80 - 0.02 * (temperature - 70) ** 2 - 15 * (solvent == "THF")


@cache
def prior() -> mk.Prior:
    rng, rows = np.random.default_rng(0), []
    for s in range(6):
        level = rng.normal(0, 4)
        for _ in range(12):
            t, solvent = (
                round(float(rng.uniform(30, 100)), 1),
                str(rng.choice(["THF", "DMF", "MeOH"])),
            )
            noisy = yield_of(t, solvent) + level + rng.normal(0, 0.5)
            rows.append((f"batch {s}", t, solvent, round(float(noisy), 1)))
    names = ["Batch", *HEADER]
    table = {name: [row[k] for row in rows] for k, name in enumerate(names)}
    history = mk.History.from_frame(table, task="Batch", output="Yield (%)")
    return mk.learn_prior(history, certify="none")


def workbook(path, rows=(), **formats):
    book = openpyxl.Workbook()
    book.active.title = "cover"
    book["cover"]["A1"] = None
    page = book.create_sheet("runs")
    page["A1"] = "Yields of the spring"
    for row in ([], HEADER, *rows):
        page.append(row)
    for cell in page[3]:
        cell.font = openpyxl.styles.Font(bold=True, color="FFFF0000")
    other = book.create_sheet("sums")
    other["A1"] = "=SUM(runs!C4:C99)"
    book.save(path)
    return path


def cells(path, sheet="runs", first=4):
    page = openpyxl.load_workbook(path)[sheet]
    return [[cell.value for cell in row[:3]] for row in page.iter_rows(min_row=first)]


def fill(path, values, sheet="runs"):
    """What a person does: results in the third column, by row."""
    book = openpyxl.load_workbook(path)
    for row, value in values.items():
        book[sheet].cell(row, 3).value = value
    book.save(path)


def points(found):
    return [(row.trial.point["Temperature"], row.trial.point["Solvent"]) for row in found.rows]


@pytest.mark.parametrize("ending", ["xlsx", "csv"])
def test_a_file_that_is_not_there_is_begun(tmp_path, ending):
    path = tmp_path / f"runs.{ending}"
    found = suggest_rows(prior(), path, 3)
    assert len({points(found)[i] for i in range(3)}) == 3
    again = suggest_rows(prior(), path, 2)
    assert len(again.open) == 3
    assert not set(points(again)) & set(points(found))
    if ending == "csv":
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
        assert rows[0] == HEADER
        assert [(float(t), s) for t, s, y in rows[1:]] == points(found) + points(again)
    else:
        assert [tuple(row[:2]) for row in cells(path, first=2)] == points(found) + points(again)
    assert os.listdir(tmp_path) == [path.name]  # no lock is left


def test_it_goes_on_by_what_the_table_says(tmp_path):
    """Reordered rows, a changed value, one left out, `67,1 %`, a failure: all are what was done."""
    path = workbook(tmp_path / "runs.xlsx")
    first = suggest_rows(prior(), path, 4)
    rows = cells(path)
    assert [tuple(row[:2]) for row in rows] == points(first)
    rows[0][2], rows[1][2], rows[3][2] = "67,1 %", 55.5, "failed"
    rows[1][0] = 41  # another temperature was used
    book = openpyxl.load_workbook(path)
    for k, i in enumerate((3, 1, 2, 0)):
        for j, value in enumerate(rows[i], start=1):
            book["runs"].cell(4 + k, j).value = value
    book.save(path)
    found = suggest_rows(prior(), path, 1)
    record = found.tuner.trials
    assert {(t.point["Temperature"], t.value) for t in record.observed} == {
        (rows[0][0], 67.1),
        (41.0, 55.5),
    }
    assert [t.point["Temperature"] for t in record.failed] == [rows[3][0]]
    assert [t.point["Temperature"] for t in record.pending][:-1] == [rows[2][0]]
    assert found.open == ("row 6 of runs.xlsx",)
    assert not set(points(found)) & set(points(first))


def test_it_decides_as_a_journal_does(tmp_path):
    tuner = mk.Tuner(prior(), adopt_after="never")
    path = workbook(tmp_path / "runs.xlsx")
    for k in range(3):
        x = tuner.ask()
        (row,) = suggest_rows(prior(), path).rows
        assert row.trial.point == pytest.approx(x)
        value = round(yield_of(x["Temperature"], x["Solvent"]), 1)
        tuner.tell(x, value)
        fill(path, {4 + k: value})


def test_everything_else_in_a_workbook_stays(tmp_path):
    path = workbook(tmp_path / "runs.xlsx", [[70, "DMF", 61.5], [80, "THF", 33.0]])
    book = openpyxl.load_workbook(path)
    page = book["runs"]
    page["A4"].number_format = page["A5"].number_format = '0.0" °C"'
    page["E4"] = "=C4*2"
    page.conditional_formatting.add(
        "C4:C9", openpyxl.formatting.rule.CellIsRule("greaterThan", ["50"])
    )
    page.add_table(openpyxl.worksheet.table.Table(displayName="Runs", ref="A3:C5"))
    book.save(path)
    before = ZipFile(path)
    parts = {name: before.read(name) for name in before.namelist()}
    suggest_rows(prior(), path, 2)
    after = ZipFile(path)
    changed = [name for name in after.namelist() if after.read(name) != parts[name]]
    assert sorted(changed) == ["xl/tables/table1.xml", "xl/worksheets/sheet2.xml"]
    assert set(after.namelist()) == set(parts)
    found = openpyxl.load_workbook(path)
    assert found["sums"]["A1"].value == "=SUM(runs!C4:C99)"
    assert found["runs"]["E4"].value == "=C4*2"
    assert found["runs"]["A7"].number_format == '0.0" °C"'
    assert found["runs"]["A3"].font.bold
    assert found["runs"].tables["Runs"].ref == "A3:C7"
    assert found["runs"].dimensions == "A1:E7"


def test_rows_that_a_person_has_formatted_are_filled(tmp_path):
    path = workbook(tmp_path / "runs.xlsx", [[70, "DMF", 61.5]])
    book = openpyxl.load_workbook(path)
    for column in (1, 2, 3):
        book["runs"].cell(5, column).border = openpyxl.styles.Border(
            bottom=openpyxl.styles.Side("thin")
        )
    book.save(path)
    suggest_rows(prior(), path, 1)
    page = openpyxl.load_workbook(path)["runs"]
    assert page["A5"].value is not None
    assert page["A5"].border.bottom.style == page["C5"].border.bottom.style == "thin"


def test_formulas_that_were_never_worked_out_are_refused(tmp_path):
    """Their results would be lost without a word."""
    path = workbook(tmp_path / "runs.xlsx", [[70, "DMF", "=30+31.5"]])
    with pytest.raises(InputError, match=r"formulas without a value \(C4\)"):
        suggest_rows(prior(), path)


def test_a_per_cent_format_is_kept(tmp_path):
    path = workbook(tmp_path / "runs.xlsx", [[70, "DMF", 0.615], [75, "DMF", 0.6]])
    book = openpyxl.load_workbook(path)
    for row in (4, 5):
        book["runs"].cell(row, 3).number_format = "0.0%"
    book.save(path)
    found = suggest_rows(prior(), path)
    assert [t.value for t in found.tuner.trials.observed] == [61.5, 60.0]


def test_nothing_is_decided_where_the_file_cannot_be_written(tmp_path, monkeypatch):
    path = workbook(tmp_path / "runs.xlsx")
    monkeypatch.setattr(mk.Tuner, "ask_trials", lambda *a: pytest.fail("it decided"))
    for name in ("~$runs.xlsx", ".~lock.runs.xlsx#"):
        mark = tmp_path / name
        mark.touch()
        with pytest.raises(CannotWrite, match="open in another program"):
            suggest_rows(prior(), path)
        mark.unlink()
    monkeypatch.setattr(os, "access", lambda *a: False)
    with pytest.raises(CannotWrite, match="protected"):
        suggest_rows(prior(), path)


def test_a_file_that_was_saved_meanwhile_is_read_again(tmp_path, monkeypatch):
    path, told = workbook(tmp_path / "runs.xlsx", [[70, "DMF", None]]), []
    ask = mk.Tuner.ask_trials

    def saved_meanwhile(tuner, n, fixed=None):
        found = ask(tuner, n, fixed)
        if not told:
            told.append(fill(path, {4: 61.5}))
        return found

    monkeypatch.setattr(mk.Tuner, "ask_trials", saved_meanwhile)
    found = suggest_rows(prior(), path)
    assert cells(path)[0][2] == 61.5
    assert [t.value for t in found.tuner.trials.observed] == [61.5]


def test_a_second_writer_waits(tmp_path):
    path = workbook(tmp_path / "runs.xlsx")
    descriptor = os.open(tmp_path / ".runs.xlsx.lock", os.O_RDWR | os.O_CREAT)
    second = threading.Thread(target=suggest_rows, args=(prior(), path))
    with locked(descriptor, "runs.xlsx"):
        second.start()
        second.join(0.3)
        assert second.is_alive()
        assert cells(path) == []
    second.join()
    os.close(descriptor)
    assert len(cells(path)) == 1


def test_an_error_while_writing_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = workbook(tmp_path / "runs.xlsx")
    before = path.read_bytes()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CannotWrite, match="No space"):
        suggest_rows(prior(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["runs.xlsx"]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Temperature;Solvent;Yield (%)\r\n70,5;DMF;61,5\r\n71,25;THF;\r\n", "utf-8"),
        ("Temperature;Solvent;Yield (%);Ort\n70,5;DMF;61,5;Köln\n71,25;THF;;", "cp1252"),
        ("Temperature\tSolvent\tYield (%)\n70.5\tDMF\t61.5\n71.25\tTHF\t\n", "utf-16"),
        ('Yield (%),solvent ,TEMPERATURE\n"67,1 %",DMF,70\n,THF,71', "utf-8-sig"),
    ],
)
def test_text_files_are_only_added_to(tmp_path, text, encoding):
    path = tmp_path / "runs.csv"
    path.write_bytes(text.encode(encoding))
    found = suggest_rows(prior(), path, 2)
    after = path.read_bytes()
    assert after.startswith(text.encode(encoding))
    assert len(after.decode(encoding).splitlines()) == 5
    assert len(found.tuner.trials.observed) == 1
    assert found.open == ("line 3 of runs.csv",)
    again = suggest_rows(prior(), path, 1)
    assert again.tuner.trials.pending[1:3] == tuple(again.tuner.trials)[2:4]
    assert [t.point for t in again.tuner.trials][2:4] == [
        pytest.approx(row.trial.point) for row in found.rows
    ]


def test_words_and_gaps_in_a_table(tmp_path):
    rows = [
        [70, "DMF", "timeout"],
        [71, "DMF", "running"],
        [72, "DMF", "#DIV/0!"],
        [73, None, 50.0],
        [None, None, None],
        ["bought on Monday", None, None],
    ]
    path = workbook(tmp_path / "runs.xlsx", rows)
    found = suggest_rows(prior(), path)
    record = found.tuner.trials
    assert [t.point["Temperature"] for t in record.failed] == [70]
    assert [t.point["Temperature"] for t in record.pending][:2] == [71, 72]
    assert "left out: row 7 of runs.xlsx, without Solvent" in found.notes
    assert any("bought on Monday" in note for note in found.notes)
    odd = suggest_rows(prior(), workbook(tmp_path / "b.xlsx", [[70, "DMF", "kein Umsatz"]]))
    assert len(odd.tuner.trials.failed) == 1
    assert any("'kein Umsatz' is taken for a run that failed" in note for note in odd.notes)
    with pytest.raises(InputError, match=r"row 4 of c\.xlsx: Yield .* is '8;1'"):
        suggest_rows(prior(), workbook(tmp_path / "c.xlsx", [[70, "DMF", "8;1"]]))


def test_one_file_for_all_tasks(tmp_path):
    path = tmp_path / "runs.csv"
    lines = ["Batch,Temperature,Solvent,Yield (%)", "batch 1,70,DMF,61.5", "batch 9,71,DMF,60.5"]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = suggest_rows(prior(), path)
    assert [t.value for t in found.tuner.trials.observed] == [60.5]
    assert path.read_text(encoding="utf-8").splitlines()[-1].startswith("batch 9,")
    new = suggest_rows(prior(), path, task="batch 10")
    assert len(new.tuner.trials) == 1
    assert path.read_text(encoding="utf-8").splitlines()[-1].startswith("batch 10,")
    with pytest.raises(InputError, match="of 3 tasks"):
        suggest_rows(prior(), path)


def test_a_table_without_a_column_is_refused(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("Temperature,Yield (%)\n70,61\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column 'Solvent'"):
        suggest_rows(prior(), path)
    with pytest.raises(InputError, match="cannot be added to"):
        suggest_rows(prior(), tmp_path / "runs.parquet")


def test_results_as_people_write_them_into_a_table(tmp_path):
    done = {"ca. 60 %": 60, "<5 %": 0.61, "62 ± 2": 62, "~58,5": 58.5}
    rows = [
        [60 + k, "dmf " if k else "DMF", text] for k, text in enumerate(done)
    ]  # below 5 is what was measured there
    path = workbook(tmp_path / "runs.xlsx", [*rows, [65, "DMF", 0.61]])
    with pytest.raises(InputError, match=r"row 8 of runs\.xlsx: .* so per cent are expected"):
        suggest_rows(prior(), path)
    found = suggest_rows(prior(), path, confirmed=True)
    assert [t.value for t in found.tuner.trials.observed] == [*done.values(), 0.61]
    assert {t.point["Solvent"] for t in found.tuner.trials.observed} == {"DMF"}
    assert "row 5 of runs.xlsx: Solvent 'dmf' is taken for 'DMF'" in found.notes
    assert any("row 8 of runs.xlsx: Yield (%) is 0.61, about a hundredth" in n for n in found.notes)


def test_a_new_choice_has_a_note_how_to_ask_for_it(tmp_path):
    found = suggest_rows(prior(), workbook(tmp_path / "runs.xlsx", [[70, "2-MeTHF", 61.5]]))
    (text,) = [note for note in found.notes if "2-MeTHF" in note]
    assert "not suggested (--fix 'Solvent=2-MeTHF' --extrapolate asks for it)" in text


def test_a_range_beyond_the_past_names_a_way_out():
    with pytest.raises(InputError, match=r"--fix 'Temperature=VALUE' --extrapolate .* --space"):
        prior().space["Temperature"].between(40, 130)


@pytest.mark.parametrize("word", ["not done", "Not run", "skipped", "left out", "dropped"])
def test_a_row_that_was_left_out_is_no_failure(tmp_path, word):
    """As by `tell --drop`: it does not count, and is not suggested again."""
    first = suggest_rows(prior(), tmp_path / "first.xlsx")
    (point,) = points(first)
    path = workbook(tmp_path / "runs.xlsx", [[70, "DMF", 61.5], [*point, word]])
    found = suggest_rows(prior(), path, 3)
    record = found.tuner.trials
    assert (len(record.failed), len(record.observed), found.open) == (0, 1, ())
    assert f"row 5 of runs.xlsx: {word!r} is left out" in found.notes
    assert point not in points(found)


def test_words_that_leave_open_whether_a_run_failed_have_a_note(tmp_path):
    found = suggest_rows(prior(), workbook(tmp_path / "runs.xlsx", [[70, "DMF", "n.d."]]))
    assert len(found.tuner.trials.failed) == 1
    assert any("'n.d.' is taken for a run that failed; if it does not" in n for n in found.notes)


def test_rows_are_added_below_texts_with_decimal_commas_and_units(tmp_path):
    book, path = openpyxl.Workbook(), tmp_path / "runs.xlsx"
    lines = [HEADER, ["°C", None, "%"], ["70,5", "DMF", "67,1 %"], ["71,5", "THF", "failed"]]
    for row in lines:
        book.active.append(row)
    book.save(path)
    first = suggest_rows(prior(), path)
    again = suggest_rows(prior(), path)
    for record in (first.tuner.trials, again.tuner.trials):
        assert [(t.point["Temperature"], t.value) for t in record.observed] == [(70.5, 67.1)]
        assert [t.point["Temperature"] for t in record.failed] == [71.5]
    assert len(again.open) == 1
    assert cells(path, book.active.title, first=1)[:4] == lines


def test_a_new_choice_can_be_asked_for_when_it_is_said(tmp_path):
    path = workbook(tmp_path / "runs.xlsx", [[70, "Water", 75.0], [70, "DMF", 66.0]])
    with pytest.raises(InputError, match="hold it at a new one by extrapolate=True"):
        suggest_rows(prior(), path, fixed={"Solvent": "Water"})
    asked = suggest_rows(prior(), path, 2, fixed={"Solvent": "Water"}, extrapolate=True)
    assert {solvent for _, solvent in points(asked)} == {"Water"}
    assert len(set(points(asked))) == 2
    known, new = (
        suggest_rows(prior(), workbook(tmp_path / f"{s}.xlsx", [[70, "Water", y], [70, "DMF", 66]]),
                     fixed={"Solvent": "Water"}, extrapolate=True).rows[0].why.expected.value
        for s, y in (("low", 45.0), ("high", 75.0))
    )  # fmt: skip
    assert known < new  # what was measured of it counts
    # Rows that are still open may have one as well.
    assert len(suggest_rows(prior(), path).open) == 2


def test_words_that_wait_are_open_and_a_unit_of_its_own_is_said(tmp_path):
    path = tmp_path / "runs.csv"
    words = ("TBD", "offen", "55 mg", "61 %")
    rows = [f"{50 + 5 * k},DMF,{word}" for k, word in enumerate(words)]
    path.write_text("\n".join([",".join(HEADER), *rows]), encoding="utf-8")
    found = suggest_rows(prior(), path)
    assert found.open == ("line 2 of runs.csv", "line 3 of runs.csv")
    assert [trial.value for trial in found.tuner.trials.observed] == [55, 61]
    assert "line 4 of runs.csv: Yield (%) '55 mg' is read as 55" in found.notes
    assert not any("61" in note for note in found.notes)


def test_whole_numbers_are_written_as_people_write_them(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("Temperature;Solvent;Yield (%)\n60,5;DMF;61,5\n", encoding="utf-8")
    suggest_rows(prior(), path, fixed={"Temperature": 70.0})
    assert path.read_text(encoding="utf-8").splitlines()[-1].startswith("70;")
