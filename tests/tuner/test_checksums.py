"""Version 2 of the journal: every line vouches for itself and for the line before it."""

from __future__ import annotations

from pathlib import Path

import pytest
from journal_files import lines, written
from tuning_history import small_prior

from metakel import InputError
from metakel.tuner import Journal, Store, Tuner

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
    for look in (
        Journal(journal).read,
        lambda: Store.open(journal),
        lambda: Tuner(PRIOR, journal),
    ):
        with pytest.raises(InputError, match=r"line \d.*checksum"):
            look()
    assert journal.read_bytes() == before


def test_who_has_not_read_continues_the_chain(journal):
    late, before = Journal(journal), len(lines(journal))
    late.exclusively(lambda: late.append([{"event": "queued", "configuration": X}]))
    assert len(Journal(journal).read()) == before + 1
