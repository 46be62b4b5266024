"""Whose evaluation it is: processes on this machine, in containers, and on other hosts."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from journal_files import lines, written
from tuning_history import small_prior

from metakel.tuner import Tuner, lock
from metakel.tuner.fold import age
from metakel.tuner.lock import is_alive, this_process

PRIOR = small_prior()
HERE = {"host": "node", "machine": "m1", "boot": "b1", "namespace": lock.INITIAL_NAMESPACE}
CONTAINER = {**HERE, "host": "pod-1", "namespace": "pid:[1]"}


@pytest.fixture
def gone() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_dead_are_told_from_the_living(gone):
    me = this_process()
    assert is_alive(me)
    assert is_alive(None) is None
    assert is_alive({**me, "pid": gone}) is False
    assert is_alive({**me, "start": "1"}) is False  # another process has the number by now
    for name in ("host", "namespace"):
        assert is_alive({**me, "pid": gone, name: "another"}) is None


def test_an_owner_of_version_1_goes_by_its_host_name(gone):
    old = {name: this_process()[name] for name in ("host", "pid", "start")}
    assert is_alive(old)
    assert is_alive({**old, "pid": gone}) is False
    assert is_alive({**old, "host": "elsewhere"}) is None


@pytest.mark.parametrize(
    ("owner", "here", "alive"),
    [
        ({**HERE, "boot": "b0"}, HERE, False),  # this machine was started again since
        ({**HERE, "boot": "b0", "machine": "m2"}, HERE, None),  # another one of the same name
        ({**HERE, "boot": "b0", "machine": ""}, {**HERE, "machine": ""}, None),
        ({**CONTAINER, "boot": "b0"}, CONTAINER, None),  # images share the number of a machine
        ({**CONTAINER, "namespace": "pid:[2]"}, CONTAINER, None),  # two with one host name
        (CONTAINER, {**CONTAINER, "host": "pod-2", "namespace": "pid:[2]"}, None),
    ],
)
def test_a_process_is_taken_to_be_dead_only_where_that_is_certain(
    monkeypatch, gone, owner, here, alive
):
    monkeypatch.setattr(lock, "_place", lambda: here)
    assert is_alive({**owner, "pid": gone, "start": ""}) is alive


def asked_elsewhere(path, seconds_ago: float, **owner) -> dict:
    """A journal with one evaluation by a process of another container, and its configuration."""
    x = Tuner(PRIOR, path).ask()
    head, asked = lines(path)
    asked["by"] |= {"host": "pod-0", "namespace": "pid:[0]", **owner}
    asked["at"] = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).isoformat()
    written(path, [head, asked])
    return x


def test_an_evaluation_of_another_container_is_asked_again_after_the_lease(tmp_path):
    path = tmp_path / "j"
    x = asked_elsewhere(path, 3600)
    assert Tuner(PRIOR, path).ask() != x
    assert Tuner(PRIOR, path, adopt_after=7200).ask() != x
    again = Tuner(PRIOR, path, adopt_after=600)
    assert again.ask() == x
    assert again.ask() != x  # it has a lease of its own now
    (first, *_) = again.trials.pending
    assert first.number == 0
    assert first.note.owner == this_process()
    assert age(first) < 600


def test_the_budget_is_not_lost_to_a_container_that_never_comes_back(tmp_path):
    x = asked_elsewhere(tmp_path / "j", 3600)
    assert Tuner(PRIOR, tmp_path / "j", budget=1).done
    assert Tuner(PRIOR, tmp_path / "j", budget=1, adopt_after=60).ask() == x


def test_a_process_that_is_seen_to_live_keeps_its_evaluation(tmp_path):
    x = asked_elsewhere(tmp_path / "j", 3600, **this_process())
    assert Tuner(PRIOR, tmp_path / "j", adopt_after=1).ask() != x


def test_a_value_that_comes_after_the_lease_is_kept(tmp_path):
    x = asked_elsewhere(tmp_path / "j", 3600)
    tuner = Tuner(PRIOR, tmp_path / "j", adopt_after=60)
    assert tuner.ask() == x
    tuner.tell(x, 0.5)
    tuner.tell(x, 0.6)  # by the process that was given up
    assert [trial.value for trial in tuner.trials.observed] == [0.5, 0.6]
    assert tuner.run.spent == 1
