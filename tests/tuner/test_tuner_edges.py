"""The edges of a tuner: batches that do not fit, fixed values, wrong settings, copies."""

from __future__ import annotations

import copy
import errno
import json
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from math import inf, nan
from multiprocessing import get_context

import numpy as np
import pytest
from tuning_history import measure, small_prior

from metakel import InputError
from metakel.tuner import Finished, JournalError, Tuner

PRIOR = small_prior(certified=True)
ROWS = [{"rate": 0.01, "depth": d, "kind": "adam"} for d in (3, 4, 8)]


@pytest.mark.parametrize(
    ("options", "fits"), [({"budget": 3}, 3), ({"candidates": ROWS}, 3), ({"budget": 9}, 5)]
)
def test_whatever_is_pending_after_a_batch_was_handed_out(options, fits):
    tuner = Tuner(PRIOR, **options)
    batch = tuner.ask_batch(5)
    assert len(batch) == fits
    assert list(tuner.pending) == batch
    if fits < 5:
        with pytest.raises(Finished, match=tuner.stop_reason):
            tuner.ask_batch(1)
    assert list(tuner.pending) == batch


def test_a_batch_that_cannot_be_noted_leaves_nothing_pending(tmp_path, monkeypatch):
    tuner = Tuner(PRIOR, tmp_path / "j")

    def full(descriptor: int, text: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(JournalError):
        tuner.ask_batch(3)
    monkeypatch.undo()
    assert tuner.pending == ()


def test_a_batch_of_none_is_empty_and_of_fewer_is_refused(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j", budget=1)
    assert tuner.ask_batch(0) == []
    with pytest.raises(InputError, match="n is -1; expected at least 0"):
        tuner.ask_batch(-1)
    tuner.ask()
    assert tuner.ask_batch(0) == []  # none asked for, none refused


def test_a_batch_equals_one_after_the_other():
    one = Tuner(PRIOR, seed=2)
    wish = {"rate": 0.5, "depth": 3, "kind": "sgd"}
    several = Tuner(PRIOR, seed=2)
    for tuner in (one, several):
        tuner.enqueue([wish])
    assert several.ask_batch(3) == [one.ask() for _ in range(3)]


def test_fixed_beside_candidates_and_unknown_names_are_refused():
    with pytest.raises(InputError, match=r"fixed = .*'depth': 8.* beside candidates"):
        Tuner(PRIOR, fixed={"depth": 8}, candidates=ROWS)
    with pytest.raises(InputError, match="no parameter 'deph'"):
        Tuner(PRIOR, fixed={"deph": 8})


@pytest.mark.parametrize(
    ("option", "values", "expected"),
    [
        ("budget", [nan, "5", True, 0, 2.5, -(10**400)], "expected at least one evaluation"),
        ("delta", [5, 1, 0, -1, nan, inf, "0.2", True], "expected a number between 0 and 1"),
        ("seed", [-1, 1.5, "0", True], "expected a whole number"),
        ("adopt_after", [0, -1, nan], "expected"),
    ],
)
def test_a_number_of_another_kind_is_refused(tmp_path, option, values, expected):
    for value in values:
        with pytest.raises(InputError, match=rf"{option}.*; {expected}"):
            Tuner(PRIOR, tmp_path / "j", **{option: value})
    assert not (tmp_path / "j").exists()


def test_what_is_refused_begins_no_journal(tmp_path):
    wrong = [
        {"stop_at": 0.1, "delta": 0.01},
        {"fixed": {"deph": 1}},
        {"candidates": []},
        {"candidates": [*ROWS, {**ROWS[0], "kind": "rprop"}]},
    ]
    for options in wrong:
        with pytest.raises(InputError):
            Tuner(PRIOR, tmp_path / "j", **options)
    assert not (tmp_path / "j").exists()


def test_numbers_of_numpy_are_numbers(tmp_path):
    numpys = Tuner(PRIOR, tmp_path / "j", seed=np.int64(3), delta=np.float32(0.25))
    plain = Tuner(PRIOR, tmp_path / "j", seed=3, delta=0.25)  # refused if settings differed
    assert numpys.options == plain.options
    assert {type(numpys.options.seed), type(numpys.options.delta)} == {int, float}


def evaluate_one(tuner: Tuner) -> int:
    x = tuner.ask()
    tuner.tell(x, measure(x))
    return os.getpid()


def test_copies_share_the_journal_in_this_process_and_in_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tuner = Tuner(
        PRIOR, "j", budget=4, seed=5, delta=0.3, fixed={"kind": "sgd"}, adopt_after="never"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # they know the way
    for twin in (copy.copy(tuner), copy.deepcopy(tuner), pickle.loads(pickle.dumps(tuner))):
        assert twin.options == tuner.options
        assert (twin.budget, twin.stop_at) == (4, None)
        evaluate_one(twin)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(evaluate_one, tuner).result() != os.getpid()
    assert len(tuner.trials.observed) == 4
    kinds = [json.loads(line)["event"] for line in (tmp_path / "j").read_text().splitlines()]
    assert kinds.count("started") == 1


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_tuner_in_memory_says_that_it_cannot_be_copied(duplicate):
    with pytest.raises(TypeError, match="no journal, so its memory cannot be copied"):
        duplicate(Tuner(PRIOR))
