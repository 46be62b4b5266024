"""Files that are no journal are left alone; a journal changed by others, or damaged, is named."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from journal_files import lines, written
from tuning_history import small_prior

from metakel import InputError
from metakel.tuner import Journal, JournalError, Store, Tuner
from metakel.tuner.salvage import salvaged

PRIOR = small_prior()
X = {"rate": 0.01, "depth": 6, "kind": "adam"}


@pytest.mark.parametrize(
    "text",
    [
        '{"format": "metakel.Prior", "version": 1}',
        "a,b\n1,2",
        "x",
        '{"event": "login", "user": "me"}\n{"event": "lo',  # a log of somebody else
        '{"event": "started", "format": "other"}',
    ],
)
def test_a_file_without_a_last_newline_that_is_no_journal_stays_as_it_is(tmp_path, text):
    path = tmp_path / "mine"
    path.write_text(text)
    with pytest.raises(InputError, match="mine is not a journal"):
        Tuner(PRIOR, path)
    assert path.read_text() == text


def test_a_journal_whose_first_line_was_cut_anywhere_begins_again(tmp_path):
    Tuner(PRIOR, tmp_path / "whole")
    first = (tmp_path / "whole").read_bytes()
    for cut in (0, 1, 5, 12, 40, 60, 300, len(first) - 2, len(first) - 1):
        path = tmp_path / str(cut)
        path.write_bytes(first[:cut])
        Tuner(PRIOR, path).tell(X, 0.85)
        assert [event["event"] for event in lines(path)] == ["started", "told"]


def replaced(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def shortened(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def edited_in_place(path: Path) -> None:
    text = path.read_bytes().replace(b"0.25", b"0.125")
    with path.open("r+b") as stream:
        stream.write(text)


def changed_far_from_the_end(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.seek(40)
        byte = stream.read(1)
        stream.seek(40)
        stream.write(bytes([byte[0] ^ 1]))
    os.utime(path, (1, 1))  # clocks of file systems are coarse


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (os.remove, "removed"),
        (changed_far_from_the_end, "rewritten"),
        (replaced, "replaced"),
        (shortened, "rewritten"),
        (edited_in_place, "rewritten"),
    ],
)
def test_a_journal_that_changed_under_a_tuner_takes_no_more_values(tmp_path, change, what):
    path = tmp_path / "j"
    tuner = Tuner(PRIOR, path)
    tuner.tell(X, 0.25)
    change(path)
    left = path.read_bytes() if path.exists() else None
    for act in (lambda: tuner.tell({**X, "depth": 3}, 0.5), tuner.ask, lambda: tuner.best):
        with pytest.raises(JournalError, match=f"was {what} by another program"):
            act()
    assert (path.read_bytes() if path.exists() else None) == left


def test_a_file_replaced_while_a_value_is_written_is_not_confirmed(tmp_path, monkeypatch):
    path = tmp_path / "j"
    tuner = Tuner(PRIOR, path)
    sync = os.fsync

    def late(descriptor: int) -> None:
        sync(descriptor)
        monkeypatch.undo()
        replaced(path)

    monkeypatch.setattr(os, "fsync", late)
    with pytest.raises(JournalError, match="was replaced"):
        tuner.tell(X, 0.85)


def test_a_process_that_changes_its_folder_keeps_its_journal(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    tuner = Tuner(PRIOR, "j")
    monkeypatch.chdir("elsewhere")
    tuner.tell(X, 0.85)
    assert tuner.best.value == 0.85
    assert len(lines(tmp_path / "j")) == 2
    assert not any(Path().iterdir())


def test_what_others_append_meanwhile_is_no_change(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    Tuner(PRIOR, tmp_path / "j").tell(X, 0.85)
    assert tuner.best.value == 0.85


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"event": "told"}, "'told' has nothing as configuration"),
        ({"event": "told", "configuration": X, "value": "high"}, "'high' as value; expected a fin"),
        ({"event": "told", "configuration": X, "value": float("nan")}, "nan as value"),
        ({"event": "told", "configuration": X, "value": 10**400}, "as value; expected a finite"),
        ({"event": "told", "configuration": X, "value": 1, "number": 9}, "found trial 9"),
        ({"event": "asked", "configuration": 3}, "3 as configuration; expected named values"),
        ({"event": "asked", "configuration": X, "by": "me"}, "'me' as by"),
        ({"event": "adopted", "by": None}, "nothing as number"),
        ({"event": "alarm", "told": "x"}, "'x' as told"),
    ],
)
def test_a_damaged_event_is_named_with_its_line_and_asks_nothing(tmp_path, damage, message):
    path = tmp_path / "j"
    live = Tuner(PRIOR, path)
    live.tell(X, 0.85)
    sound = lines(path)
    written(path, [*sound, damage])
    for look in (lambda: Tuner(PRIOR, path), lambda: Store.open(path), live.ask, live.ask):
        with pytest.raises(InputError, match=r"j, line 3: ") as caught:
            look()
        assert message in str(caught.value)
    written(path, [*sound, {"event": "of a later version"}])
    assert len(Tuner(PRIOR, path).trials.observed) == 1


@pytest.mark.parametrize("name", ["space", "seed", "delta", "fixed", "outside"])
def test_a_damaged_header_is_named(tmp_path, name):
    path = tmp_path / "j"
    Tuner(PRIOR, path)
    first = lines(path)[0]
    del first[name]
    with pytest.raises(InputError, match=f"line 1: 'started' has nothing as {name}"):
        Store.open(written(path, [first]))


def test_a_configuration_that_the_space_does_not_know_is_named_with_its_trial(tmp_path):
    path = tmp_path / "j"
    Tuner(PRIOR, path).tell(X, 0.85)
    head, told = lines(path)
    written(path, [head, told, {**told, "configuration": {**X, "kind": 7}}])
    with pytest.raises(InputError, match=r"j, trial 1: .*'kind'"):
        Tuner(PRIOR, path)


def test_events_that_were_refused_are_read_again(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.exclusively(lambda: journal.append([{"event": "a"}, {"event": "b"}]))

    class Refused(Exception):
        pass

    def refuse(_events) -> None:
        raise Refused

    with pytest.raises(Refused):
        journal.fold(refuse)
    assert journal.read() == [{"event": "a"}, {"event": "b"}]
    with (tmp_path / "j").open("a") as stream:
        stream.write("nonsense\n")
    for _ in range(2):
        with pytest.raises(InputError, match="line 3"):
            journal.read()


def test_a_long_reading_is_announced_with_its_time(tmp_path, monkeypatch, caplog):
    path = tmp_path / "j"
    Tuner(PRIOR, path).tell(X, 0.85)
    monkeypatch.setattr("metakel.tuner.journal.LARGE", 100)
    Store.open(path)
    assert re.search(r"j: reading 0 MB of events takes about \d+ s", caplog.text)


def test_the_work_of_reading_is_proportional_to_the_events(tmp_path):
    """In calls of functions, which do not depend on the machine."""
    counts, told = [], {"event": "told", "number": None, "configuration": X, "value": 0.5}
    Tuner(PRIOR, tmp_path / "j")
    head = lines(tmp_path / "j")
    for n in (100, 200, 300):
        path, calls = written(tmp_path / "j", [*head, *([told] * n)]), 0

        def count(frame, event, arg):
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            Store.open(path)
        finally:
            sys.setprofile(None)
        counts.append(calls)
    first, second = np.diff(counts)
    assert second < 1.1 * first < 100 * 30  # the garbage collector may call something, too


@pytest.mark.parametrize(
    ("asked", "run", "differs"), [(6, 6, False), (6, 6.0, False), (6, 7, True)]
)
def test_what_was_run_is_what_was_asked_where_only_the_form_differs(tmp_path, asked, run, differs):
    Tuner(PRIOR, tmp_path / "j")
    events = [
        {"event": "asked", "configuration": {**X, "depth": asked}},
        {"event": "told", "number": 0, "configuration": {**X, "depth": run}, "value": 0.5},
    ]
    path = written(tmp_path / "j", [*lines(tmp_path / "j"), *events])
    assert (Store.open(path).run.record[0].note.suggested is not None) is differs


def test_an_interrupt_while_a_file_is_closed_sends_no_value_to_another_file(tmp_path, monkeypatch):
    tuner, close = Tuner(PRIOR, tmp_path / "j"), os.close

    def interrupted(descriptor: int) -> None:
        close(descriptor)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tuner.tell(X, 0.85)
    with (tmp_path / "notes.txt").open("w+b") as other:  # it gets the number of the closed file
        tuner.tell({**X, "depth": 5}, 0.8)
        assert other.read() == b""
    assert [trial.value for trial in Store.open(tmp_path / "j").run.record.observed] == [0.85, 0.8]
    assert [trial.value for trial in tuner.trials.observed] == [0.85, 0.8]


def test_a_long_reason_is_shortened(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    tuner.tell(X, failed=True, reason="x" * (1 << 24))
    tuner.correct(0, failed=True, reason="y" * (1 << 24))
    reasons = [event["reason"] for event in lines(tmp_path / "j")[1:]]
    assert reasons == ["x" * 1997 + "...", "y" * 1997 + "..."]
    assert Tuner(PRIOR, tmp_path / "j").trials[0].note.reason == reasons[1]


def test_no_line_is_written_that_cannot_be_read(tmp_path, monkeypatch):
    path = tmp_path / "j"
    tuner = Tuner(PRIOR, path)
    longest = max(map(len, path.read_bytes().splitlines(keepends=True)))
    monkeypatch.setattr("metakel.tuner.journal.LONGEST_LINE", longest)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"an event 'told' of \d+ bytes; .*nothing was recorded"):
        tuner.tell(X, 0.85, {"a" * longest: 1.0})
    assert path.read_bytes() == before
    tuner.tell(X, 0.85)
    assert [trial.value for trial in Store.open(path).run.record.observed] == [0.85]


def test_a_line_of_the_longest_length_is_read(tmp_path, monkeypatch):
    journal, event = Journal(tmp_path / "j"), {"event": "a"}
    journal.exclusively(lambda: journal.append([event]))
    size = (tmp_path / "j").stat().st_size
    monkeypatch.setattr("metakel.tuner.journal.LONGEST_LINE", size)
    journal.exclusively(lambda: journal.append([event]))
    with pytest.raises(InputError, match="nothing was recorded"):
        journal.exclusively(lambda: journal.append([event, {"event": "ab"}]))
    assert journal.read() == [event, event]


def crlf(text: bytes) -> bytes:
    return text.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    "change",
    [
        crlf,
        lambda text: text + b"\n",
        lambda text: crlf(text + b"\n\n"),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: b"\xef\xbb\xbf" + crlf(text)[:-1],
        lambda text: b"\xef\xbb\xbf" + text[:-1],
    ],
)
@pytest.mark.parametrize("events", [0, 2])
def test_line_ends_and_marks_of_other_programs_change_nothing(tmp_path, change, events):
    path, values = tmp_path / "j", [0.85, 0.8][:events]
    tuner = Tuner(PRIOR, path)
    for value in values:
        tuner.tell(X, value)
    path.write_bytes(change(path.read_bytes()))
    looked = Store.open(path)  # as `metakel status` and `metakel tell` do
    assert [trial.value for trial in looked.run.record.observed] == values
    looked.tell(X, 0.75)
    values.append(0.75)
    for value in (0.5, 0.25):
        again = Tuner(PRIOR, path)
        again.tell(X, value)
        again.tell(X, value)
        values += [value, value]
        assert [trial.value for trial in again.trials.observed] == values
        path.write_bytes(path.read_bytes() + b"\n")
        assert [trial.value for trial in Store.open(path).run.record.observed] == values
    text = path.read_bytes()
    path.write_bytes(text.replace(b"0.25", b"0.35", 1))
    with pytest.raises(InputError, match="was changed after it was written"):
        Store.open(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_journal_in_another_encoding_names_the_remedy_and_stays_as_it_is(tmp_path, encoding):
    path = tmp_path / "j"
    Tuner(PRIOR, path).tell(X, 0.5)
    text = path.read_text(encoding="utf-8")
    path.write_text(text, encoding=encoding)
    for look in (Store.open, salvaged, lambda path: Tuner(PRIOR, path)):
        with pytest.raises(InputError, match="iconv -f UTF-16 -t UTF-8"):
            look(path)
    assert path.read_text(encoding=encoding) == text
    path.write_text(text, encoding="utf-8-sig")  # what the remedy gives
    assert [trial.value for trial in Tuner(PRIOR, path).trials.observed] == [0.5]


def test_an_empty_line_under_a_tuner_is_no_change(tmp_path):
    path = tmp_path / "j"
    tuner = Tuner(PRIOR, path)
    for value in (0.85, 0.8):
        with path.open("ab") as stream:
            stream.write(b"\r\n")
        tuner.tell(X, value)
    assert [trial.value for trial in Store.open(path).run.record.observed] == [0.85, 0.8]


@pytest.mark.parametrize("text", [b"\n", b"\n" * 100_000])
def test_a_file_of_empty_lines_is_no_journal(tmp_path, text):
    (tmp_path / "j").write_bytes(text)
    with pytest.raises(InputError, match="is it a journal"):
        Tuner(PRIOR, tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == text
