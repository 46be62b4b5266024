"""Who asks while others do, which trial a value is of, and what a loop that is left gives back."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from itertools import islice

import numpy as np
import pytest
from tuning_history import measure, small_prior

from metakel import History, learn_prior
from metakel.optimize import Optimizer
from metakel.tuner import Journal, Tuner

PRIOR = small_prior()


def test_the_choice_is_computed_while_others_may_write(tmp_path, monkeypatch):
    tuner, other = (Tuner(PRIOR, tmp_path / "j") for _ in range(2))
    pending = other.ask()
    suggest, results = Optimizer.peek, []

    def slow(self: Optimizer, fixed=None):
        chosen = suggest(self, fixed)
        if self is tuner._optimizer and not results:
            reporting = threading.Thread(target=other.tell, args=(pending, 0.5))
            reporting.start()
            reporting.join(timeout=10)
            results.append(reporting.is_alive())
        return chosen

    monkeypatch.setattr(Optimizer, "peek", slow)
    tuner.ask()
    assert results == [False], "the value had to wait until the choice was made"
    assert len(tuner.trials.observed) == 1


def test_who_asks_meanwhile_changes_the_choice(tmp_path, monkeypatch):
    tuner, other = (Tuner(PRIOR, tmp_path / "j") for _ in range(2))
    suggest, asked = Optimizer.peek, []

    def disturbed(self: Optimizer, fixed=None):
        chosen = suggest(self, fixed)
        waits = tuner._store._journal._descriptor is not None
        if self is tuner._optimizer and not waits:
            asked.append(other.ask())
        return chosen

    monkeypatch.setattr(Optimizer, "peek", disturbed)
    mine = tuner.ask()
    assert len(asked) == 3, "after some tries the others wait"
    alone = Tuner(PRIOR)
    assert [alone.ask() for _ in range(4)] == [*asked, mine]


def categories() -> History:
    rng, rows = np.random.default_rng(0), {"task": [], "kind": [], "score": []}
    for s in range(8):
        for kind, level in (("a", 0.1), ("b", 0.5)):
            for _ in range(4):
                rows["task"].append(f"t{s}")
                rows["kind"].append(kind)
                rows["score"].append(level + 0.1 * float(rng.standard_normal()))
    return History.from_frame(rows, task="task", output="score")


def test_trials_of_repeated_configurations_have_their_own_numbers():
    tuner = Tuner(learn_prior(categories(), certify="none"), adopt_after="never")
    trials = tuner.ask_trials(6)
    assert [trial.number for trial in trials] == list(range(6))
    assert len({trial.point["kind"] for trial in trials}) < 6
    assert trials == list(tuner.trials)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_value_belongs_to_the_trial_of_its_own_process(tmp_path):
    tuner = Tuner(learn_prior(categories(), certify="none"), tmp_path / "j")
    mine = tuner.ask_trials(2)
    child = os.fork()
    if child == 0:
        theirs = tuner.ask_trials(6)
        same = next(t for t in theirs if t.point == mine[0].point)
        tuner.tell(same.point, 0.25)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    (done,) = tuner.trials.observed
    assert done.number not in {trial.number for trial in mine}


def test_what_is_read_in_parts_is_what_is_read_at_once(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j", budget=8)
    watching = Tuner(PRIOR, tmp_path / "j")
    for i, x in enumerate(tuner):
        tuner.tell(x, measure(x), failed=i == 3)
        if i == 5:
            tuner.correct(0, 0.1)
            tuner.drop(3)
        fresh = Tuner(PRIOR, tmp_path / "j").optimizer.record
        for a, b in zip(watching.optimizer.record.trials, fresh.trials, strict=True):
            assert a.to_dict() == b.to_dict()
            assert (a.x == b.x).all()
        assert watching.optimizer.record.steps == fresh.steps
    assert Journal(tmp_path / "j").read()


class Interrupted(Exception):
    pass


def kinds(path) -> list[str]:
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


def left_by_an_error(tuner: Tuner, after: int) -> None:
    with suppress(Interrupted):
        for i, x in enumerate(tuner):
            if i == after:
                raise Interrupted
            tuner.tell(x, measure(x))


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_run_with_an_error_ends_as_one_without(tmp_path, after):
    """In the same process, where nothing looks dead."""
    whole = Tuner(PRIOR, budget=4)
    for x in whole:
        whole.tell(x, measure(x))
    left_by_an_error(Tuner(PRIOR, tmp_path / "j", budget=4), after)
    again = Tuner(PRIOR, tmp_path / "j", budget=4)
    for x in again:
        again.tell(x, measure(x))
    assert [(t.number, t.point, t.value) for t in again.trials.observed] == [
        (t.number, t.point, t.value) for t in whole.trials.observed
    ]
    assert again.pending == ()


@pytest.mark.parametrize("result", [{"value": 0.5}, {"failed": True}])
def test_a_break_after_a_result_gives_nothing_back(tmp_path, result):
    tuner = Tuner(PRIOR, tmp_path / "j")
    for x in tuner:
        tuner.tell(x, **result)
        break
    assert "released" not in kinds(tmp_path / "j")
    assert tuner.run.spent == 1


def test_what_was_given_back_can_still_be_told(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j", budget=1)
    loop = iter(tuner)
    x = next(loop)
    loop.close()
    assert kinds(tmp_path / "j")[-1] == "released"
    assert tuner.pending == (x,)
    assert not tuner.done
    tuner.tell(x, 0.5)
    assert [t.number for t in tuner.trials.observed] == [0]
    assert tuner.done


def test_a_loop_that_collects_keeps_what_it_collected(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    batch = list(islice(tuner, 3))
    assert "released" not in kinds(tmp_path / "j")
    assert tuner.ask() not in batch


def test_evaluations_that_outlive_the_process_are_not_given_back(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j", adopt_after="never")
    left_by_an_error(tuner, 0)
    assert "released" not in kinds(tmp_path / "j")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_gives_nothing_of_its_parent_back(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    loop = iter(tuner)
    x = next(loop)
    child = os.fork()
    if child == 0:
        loop.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert "released" not in kinds(tmp_path / "j")
    tuner.tell(x, measure(x))
    loop.close()
    assert kinds(tmp_path / "j") == ["started", "asked", "told"]


def test_a_loop_whose_journal_is_lost_is_left_without_a_second_error(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    loop = iter(tuner)
    next(loop)
    (tmp_path / "j").unlink()
    loop.close()
