"""Numbers of hundreds of digits, odd names and failing disks: errors of ours, and nothing lost."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from unicodedata import normalize

import numpy as np
import pytest
from journal_files import lines, written
from tuning_history import small_prior

import metakel as mk
from metakel.errors import InputError, MetaKelError
from metakel.space import Float
from metakel.tuner import JournalError, Store, Tuner
from metakel.tuner.fold import age

PRIOR = small_prior(certified=True)
X = {"rate": 0.01, "depth": 6, "kind": "adam"}
HUGE = 10**400
LONGER = 10 ** (sys.get_int_max_str_digits() + 1)  # too long even to be printed


@pytest.mark.parametrize("huge", [HUGE, -HUGE, LONGER], ids=["huge", "negative", "longer"])
@pytest.mark.parametrize(
    "use",
    [
        lambda n: Tuner(PRIOR).tell({**X, "depth": n}, 1.0),
        lambda n: Tuner(PRIOR).tell({**X, "rate": n}, 1.0),
        lambda n: Tuner(PRIOR, extrapolate=True).tell({**X, "depth": n}, 1.0),
        lambda n: Tuner(PRIOR).enqueue([{**X, "rate": n}]),
        lambda n: Tuner(PRIOR).predict([{**X, "depth": n}]),
        lambda n: Tuner(PRIOR, fixed={"depth": n}).ask(),
        lambda n: Tuner(PRIOR, adopt_after=n),
        lambda n: Tuner(PRIOR, stop_at=n),
        lambda n: Float("x", 0, n),
        lambda n: mk.Task([[n]], [1.0]),
        lambda n: mk.History.from_pairs([([n], [1.0])]),
    ],
    ids=lambda use: "use",
)
def test_a_number_of_hundreds_of_digits_is_refused(use, huge):
    with pytest.raises(MetaKelError) as caught:
        use(huge)
    assert len(str(caught.value)) < 400


ODD = {
    "array": np.array([1, 2]), "empty": np.array([]), "duration": np.timedelta64(3, "s"),
    "day": np.datetime64("2026-01"), "object": object(), "set": {1}, "text": "k", "number": 7,
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_arguments_are_refused_and_the_run_goes_on(odd):
    """Or taken, where they mean something: what follows is no error in any case."""
    optimizer, tuner = PRIOR.optimizer(), Tuner(PRIOR)
    tuner.tell(tuner.ask(), 0.5)
    for use in (
        lambda: optimizer.tell(optimizer.ask(), 0.5, constraints={"memory": odd}),
        lambda: optimizer.ask(odd),
        lambda: tuner.tell(X, 0.5, curve=odd),
        lambda: tuner.tell({**X, "kind": odd}, 0.5),
        lambda: tuner.tell({**X, "depth": odd}, 0.5),
        lambda: tuner.tell(X, 0.5, instead_of=odd),
        lambda: tuner.correct(odd, 0.5),
        lambda: tuner.drop(odd),
        lambda: tuner.observe(odd, [0.5]),
        lambda: tuner.observe([X], odd),
        lambda: tuner.enqueue(odd),
        lambda: Tuner(PRIOR, fixed=odd),
        lambda: Tuner(PRIOR, task=odd),
        lambda: Tuner(PRIOR, seed=odd),
        lambda: Tuner(PRIOR, adopt_after=odd),
        lambda: mk.History.from_frame({"t": "ab", "x": [1, 2], "y": [1, 2]}, task="t",
                                      output="y", inputs=odd),
    ):  # fmt: skip
        with suppress(MetaKelError):
            use()
    tuner.tell(tuner.ask(), 0.5)
    optimizer.tell(optimizer.ask(), 0.5)


@pytest.mark.parametrize("far", [1e40, 1e60, 1e300, -1e308, Fraction(1, 3)])
def test_a_number_far_beyond_its_range_leaves_a_journal_that_goes_on(tmp_path, far):
    """Beyond 1e50 nothing can be computed of it, so it is refused before it is written."""
    tuner = Tuner(PRIOR, tmp_path / "j")
    with suppress(InputError):
        tuner.tell({**X, "depth": far}, 0.5)
    assert len(tuner.trials.observed) == (abs(far) < 1e50)
    again = Tuner(PRIOR, tmp_path / "j")
    again.tell(again.ask(), 0.5)
    assert again.best.value == 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"by": {"pid": 10**30, "start": "1"}},
        {"configuration": {**X, "depth": HUGE}},
        {"configuration": {**X, "rate": float("nan")}},
        {"configuration": {**X, "kind": "\ud800"}},
    ],
    ids=["process", "depth", "nan", "half a character"],
)
def test_what_nobody_can_have_written_is_refused_where_it_stands(tmp_path, change):
    Tuner(PRIOR, tmp_path / "j")
    asked = {"event": "asked", "configuration": X, "by": None, **change}
    path = written(tmp_path / "j", [*lines(tmp_path / "j"), asked])
    with pytest.raises(InputError, match=r"j, (line 2|trial 0)"):
        Tuner(PRIOR, path).ask()


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "", "5"])
def test_any_time_of_day_can_be_read(tmp_path, at):
    """Clocks of other machines may say anything."""
    Tuner(PRIOR, tmp_path / "j")
    asked = {"event": "asked", "configuration": X, "by": {"pid": 5, "host": "other"}, "at": at}
    path = written(tmp_path / "j", [*lines(tmp_path / "j"), asked])
    assert Tuner(PRIOR, path, adopt_after=5).ask()
    assert age(Store.open(path).run.record[0]) is None or at[:1] in "09"


@pytest.mark.parametrize(("hours", "warned"), [(5, True), (0, False), (-5, False)])
def test_a_clock_that_is_ahead_is_named(tmp_path, caplog, hours, warned):
    Tuner(PRIOR, tmp_path / "j")
    at = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="seconds")
    asked = {"event": "asked", "configuration": X, "by": {"pid": 5, "host": "other"}, "at": at}
    path = written(tmp_path / "j", [*lines(tmp_path / "j"), asked])
    adopted = Tuner(PRIOR, path, adopt_after=60).ask() == X
    assert adopted is (hours < 0)
    assert ("in the future, by the clock of other" in caplog.text) is warned


@pytest.mark.parametrize("use", [lambda p: Tuner(PRIOR, p), mk.Prior.load, PRIOR.save])
def test_a_path_with_a_nul_is_refused(use):
    with pytest.raises(InputError, match="NUL"):
        use("a\0b")


def test_a_name_that_only_looks_like_a_parameter_says_so():
    x = np.linspace(0, 1, 12)
    rows = {"task": ["a", "b"] * 6, normalize("NFC", "é"): x, "y": x**2}
    space = mk.History.from_frame(rows, task="task", output="y").space
    with pytest.raises(InputError, match=r"e\\u0301.* looks like .*\\xe9"):
        space.encode([{normalize("NFD", "é"): 0.5}])


def test_links_to_a_journal_are_the_journal(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "j")  # nothing is there yet
    Tuner(PRIOR, tmp_path / "link").tell(X, 0.5)
    Tuner(PRIOR, tmp_path / "j").tell({**X, "depth": 5}, 0.6)
    assert len(Tuner(PRIOR, tmp_path / "link").trials.observed) == 2
    other = tmp_path / "other"
    Tuner(PRIOR, other)
    tuner = Tuner(PRIOR, tmp_path / "link")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(other)
    with pytest.raises(JournalError, match="replaced"):
        tuner.tell(X, 0.7)
    assert len(lines(other)) == 1


@pytest.mark.parametrize("call", ["ftruncate", "lseek", "read"])
def test_a_disk_that_fails_during_a_repair_is_an_error_of_ours(tmp_path, monkeypatch, call):
    path = tmp_path / "j"
    Tuner(PRIOR, path).tell(X, 0.5)
    with path.open("ab") as stream:
        stream.write(b'{"event": "tol')  # by a writer that was killed

    def fail(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(JournalError, match="nothing was recorded"):
        Tuner(PRIOR, path)
    monkeypatch.undo()
    assert len(Tuner(PRIOR, path).trials.observed) == 1


def test_a_file_system_without_locks_is_an_error_of_ours(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def fail(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(JournalError, match="locked"):
        Tuner(PRIOR, tmp_path / "j")
