"""Every line of a journal vouches for itself and for the line before it, and a cut is noticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from journal_files import lines, written
from tuning_history import measure, small_prior

from metakel import InputError
from metakel.tuner import Journal, Store, Tuner
from metakel.tuner.journal import count_file
from metakel.tuner.salvage import salvaged

PRIOR = small_prior()
X = {"rate": 0.01, "depth": 6, "kind": "adam"}


@pytest.fixture
def journal(tmp_path) -> Path:
    tuner = Tuner(PRIOR, tmp_path / "j")
    for depth in (3, 4, 5, 6):
        tuner.tell({**X, "depth": depth}, depth / 8)
    return tmp_path / "j"


def test_a_journal_has_the_format_that_is_documented(journal, tmp_path):
    assert written(tmp_path / "same", lines(journal)).read_bytes() == journal.read_bytes()
    assert lines(journal)[0]["version"] == 2


def test_every_changed_byte_is_noticed(journal):
    text = journal.read_bytes()
    for i in range(0, len(text), 5):
        if text[i : i + 1] != b"\n":
            journal.write_bytes(text[:i] + bytes([text[i] ^ 1]) + text[i + 1 :])
            line = text[:i].count(b"\n") + 1
            with pytest.raises(InputError, match=f"line ({line}|{line + 1})"):
                Journal(journal).read()


@pytest.mark.parametrize(
    "edit",
    [
        lambda rows: [rows[0], rows[1].replace(b"0.375", b"0.875"), *rows[2:]],
        lambda rows: [rows[0], *rows[2:]],  # a line is removed
        lambda rows: [rows[0], rows[2], rows[1], *rows[3:]],
        lambda rows: [*rows[:3], rows[2], *rows[3:]],  # a line is there twice
        lambda rows: [*rows, b'{"event": "told", "number": null}\n'],
    ],
    ids=["edited", "removed", "swapped", "repeated", "typed in"],
)
def test_what_others_did_to_a_journal_is_named_with_its_line(journal, edit):
    rows = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(edit(rows)))
    before = journal.read_bytes()
    for look in (Journal(journal).read, lambda: Store.open(journal), lambda: Tuner(PRIOR, journal)):
        with pytest.raises(InputError, match=r"line \d.*checksum"):
            look()
    assert journal.read_bytes() == before


def test_who_has_not_read_continues_the_chain(journal):
    late, before = Journal(journal), len(lines(journal))
    late.exclusively(lambda: late.append([{"event": "queued", "configuration": X}]))
    assert len(Journal(journal).read()) == before + 1


@pytest.fixture
def path(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j", budget=3)
    for x in tuner:
        tuner.tell(x, measure(x))
    return tmp_path / "j"


def test_a_cut_anywhere_is_noticed(path):
    text = path.read_bytes()
    ends = [i + 1 for i in range(len(text) - 1) if text[i : i + 1] == b"\n"]
    for cut in {*range(0, len(text) - 1, 37), *ends}:
        path.write_bytes(text[:cut])
        for look in (Journal(path).read, lambda: Store.open(path), lambda: Tuner(PRIOR, path)):
            with pytest.raises(InputError, match=r"had 7 at least: its end was cut off.*--salvage"):
                look()
        assert cut not in ends or path.read_bytes() == text[:cut]
    path.write_bytes(text)
    assert len(Journal(path).read()) == 7


def test_what_a_cut_left_is_salvaged(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]))
    found = salvaged(path)
    assert len(found.events) == 5
    assert [(damage.line, damage.what) for damage in found.damaged] == [
        (7, "cut off, as is all after line 5")
    ]


def test_without_its_count_a_journal_is_read_as_it_is(path):
    text, elsewhere = path.read_bytes(), path.with_name("copy")
    shutil.copy(path, elsewhere)
    count_file(path).write_text("nonsense")
    path.write_bytes(text[: text.rindex(b"\n", 0, -1) + 1])
    assert [len(Journal(place).read()) for place in (path, elsewhere)] == [6, 7]


def test_the_count_of_another_journal_does_not_matter(path):
    count = count_file(path).read_bytes()
    path.unlink()
    assert len(Journal(path).read()) == 0
    assert not Tuner(PRIOR, path).trials  # begun anew
    assert len(Journal(path).read()) == 1
    other = path.with_name("other")
    Tuner(PRIOR, other, seed=1)
    count_file(other).write_bytes(count)
    assert len(Journal(other).read()) == 1
