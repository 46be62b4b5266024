"""A loop that is left early gives back what it did not tell, and nothing else."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from itertools import islice

import pytest
from tuning_history import measure, small_prior

from metakel.tuner import Tuner

PRIOR = small_prior()


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
