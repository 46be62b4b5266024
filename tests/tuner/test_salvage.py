"""Salvage: one flipped bit costs at most the line that it is in, and moves no other value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from journal_files import lines, written
from tuning_history import small_prior

from metakel import InputError
from metakel.tuner import Journal, Run, Store, Tuner
from metakel.tuner.salvage import salvaged, write

PRIOR = small_prior()
HEADER = {**Tuner(PRIOR)._store.header}


def x(depth: int) -> dict:
    return {"rate": 0.01 * depth, "depth": depth, "kind": "adam"}


def asked(depth: int) -> dict:
    return {"event": "asked", "configuration": x(depth), "by": None, "expected": [0.5, 0.1]}


def told(number: int | None, depth: int, value: float) -> dict:
    return {"event": "told", "number": number, "configuration": x(depth), "value": value}


# Each with the number of the trial that its value belongs to.
ORDINARY = [
    (asked(3), None),
    (asked(4), None),
    (asked(5), None),
    (told(1, 4, 0.25), 1),
    (told(None, 9, 0.125), 3),
    (told(0, 3, 0.375), 0),
    ({"event": "queued", "configuration": x(7)}, None),
    (asked(6), None),
    ({"event": "failed", "number": 2, "configuration": x(5), "reason": "Jammed"}, None),
    (asked(8), None),
    (told(4, 6, 0.5), 4),
    (told(5, 8, 0.75), 5),
]
AWKWARD = [
    (asked(3), None),
    (asked(4), None),
    (told(0, 3, 0.25), 0),
    ({"event": "adopted", "number": 1, "by": None}, None),
    (told(1, 4, 0.5), 1),
    (told(1, 4, 0.75), 2),  # by a process that was taken for dead
    (asked(5), None),
    ({"event": "corrected", "number": 0, "configuration": x(3), "value": 0.375, "reason": ""}, 0),
    ({"event": "dropped", "number": 3, "again": False}, None),
    (told(None, 6, 0.125), 4),
    (asked(6), None),
    (told(5, 6, 0.625), 5),
]


def values(run: Run) -> dict[int, float]:
    return {trial.number: trial.value for trial in run.record if trial.state == "complete"}


def expected(rows: list, lost: int | None) -> dict[int, float]:
    kept = [row for i, row in enumerate(rows) if i != lost]
    return {number: event["value"] for event, number in kept if number is not None}


@pytest.fixture(params=[ORDINARY, AWKWARD], ids=["ordinary", "awkward"])
def rows(request) -> list:
    return request.param


@pytest.fixture
def journal(rows, tmp_path) -> Path:
    return written(tmp_path / "j", [dict(HEADER), *(event for event, _ in rows)])


def test_a_whole_journal_stays_as_it_is(journal, rows, tmp_path):
    found = salvaged(journal)
    write(tmp_path / "out", found.events)
    assert (tmp_path / "out").read_bytes() == journal.read_bytes()
    assert found.damaged == ()
    assert values(Store.open(tmp_path / "out").run) == expected(rows, None)


def test_a_flipped_bit_costs_at_most_its_line_and_moves_no_value(journal, rows):
    """At every third byte behind the header a bit by chance, and every bit of line ends."""
    text = journal.read_bytes()
    first, rng = text.index(b"\n"), np.random.default_rng(0)
    flips = [(i, int(rng.integers(8))) for i in range(first + 1, len(text), 3)]
    flips += [(i, bit) for i in range(first, len(text)) if text[i] in b"\nJ" for bit in range(8)]
    for i, bit in flips:
        journal.write_bytes(text[:i] + bytes([text[i] ^ 1 << bit]) + text[i + 1 :])
        found = salvaged(journal)
        line = text[:i].count(b"\n") - 1
        kept = values(Run().after(found.events))
        at_end = text[i : i + 1] == b"\n"
        whole = [expected(rows, None), *([] if at_end else [expected(rows, line)])]
        assert kept in whole, (i, bit, text[:i].rpartition(b"\n")[2], found.damaged)
        named = [damage.line for damage in found.damaged]
        assert at_end or kept == expected(rows, None) or named == [line + 2]


def test_two_damaged_lines_are_named_and_cost_no_other_of_an_ordinary_run(journal, rows):
    text = journal.read_bytes().splitlines(keepends=True)
    for first in range(len(rows)):
        for second in range(first + 1, len(rows)):
            damaged = list(text)
            for line in (first, second):
                row = text[line + 1]
                at = row.index(b'"depth": ') + 9 if b'"depth"' in row else row.index(b"number") + 1
                damaged[line + 1] = row[:at] + bytes([row[at] ^ 16]) + row[at + 1 :]
            journal.write_bytes(b"".join(damaged))
            found = salvaged(journal)
            kept = [row for i, row in enumerate(rows) if i not in (first, second)]
            told_of = {n: event["value"] for event, n in kept if n is not None}
            assert len(found.damaged) >= 2
            if rows is ORDINARY:  # second results can be mistaken, as docs/reliability.md says
                assert values(Run().after(found.events)) == told_of, (first, second)


def test_a_damaged_header_is_refused_with_what_is_whole(journal, rows):
    text = journal.read_bytes()
    for i in range(0, text.index(b'"crc"') - 2, 7):
        journal.write_bytes(text[:i] + bytes([text[i] ^ 1]) + text[i + 1 :])
        found = salvaged(journal)
        assert found.events == ()
        assert list(found.whole) == [event for event, _ in rows]


def test_no_file_is_overwritten(journal, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        write(tmp_path / "out", salvaged(journal).events)
    assert (tmp_path / "out").read_text() == "mine"


def test_a_changed_last_line_end_drops_no_value(journal, rows):
    text = journal.read_bytes()
    for bit in range(8):
        damaged = text[:-1] + bytes([text[-1] ^ 1 << bit])
        journal.write_bytes(damaged)
        with pytest.raises(InputError, match=r"status .*j --salvage"):
            Journal(journal).read()
        with pytest.raises(InputError, match=r"status .*j --salvage"):
            Journal(journal).exclusively(lambda: None)
        assert journal.read_bytes() == damaged
        assert values(Run().after(salvaged(journal).events)) == expected(rows, None)


def test_an_unfinished_last_line_is_named_and_nothing_takes_its_place(journal):
    text, count = journal.read_bytes(), len(lines(journal))
    for cut in range(2, 60, 7):
        journal.write_bytes(text[:-cut])
        found = salvaged(journal)
        assert len(found.events) == count - 1
        assert "unfinished" in str(found.damaged[-1])


def test_a_run_goes_on_with_what_was_salvaged(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    for value in (0.5, 0.25, 0.75):
        tuner.tell(tuner.ask(), value)
    text = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(text.replace(b'"number": 1', b'"number": 3'))
    with pytest.raises(InputError, match="salvage OUT"):
        Tuner(PRIOR, tmp_path / "j")
    write(tmp_path / "out", salvaged(tmp_path / "j").events)
    again = Tuner(PRIOR, tmp_path / "out")
    assert values(again._store.run) == {0: 0.5, 2: 0.75}
    again.tell(again.ask(), 0.625)
