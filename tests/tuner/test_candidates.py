"""Candidates: every distinct one is asked once, however it is listed, typed or told."""

from __future__ import annotations

import logging
from itertools import islice

import numpy as np
import pytest
from tuning_history import measure, small_prior

from metakel import InputError
from metakel.tuner import Tuner

PRIOR = small_prior()
ROWS = [{"rate": 0.01, "depth": d, "kind": "adam"} for d in (4, 6, 8)]
LISTS = {
    "once": ROWS,
    "twice": [*ROWS, ROWS[0], ROWS[2], ROWS[2]],
    "the best twice": [ROWS[1], *ROWS],
    "as floats": [ROWS[0], {**ROWS[0], "depth": 4.0}, *ROWS[1:]],
}


def asked(tuner: Tuner, most: int = 20) -> list[dict]:
    """What a loop without a budget asks for; ``most`` keeps it from going on for ever."""
    found = []
    for x in islice(tuner, most):
        tuner.tell(x, measure(x))
        found.append(x)
    return found


@pytest.mark.parametrize("rows", LISTS.values(), ids=LISTS.keys())
def test_every_distinct_candidate_is_asked_once_and_the_loop_ends(rows):
    tuner = Tuner(PRIOR, candidates=rows)
    assert sorted(map(PRIOR.space.key, asked(tuner))) == sorted(map(PRIOR.space.key, ROWS))
    assert tuner.stop_reason == "all 3 candidates were asked"


def test_what_is_listed_twice_changes_nothing_and_is_noted(caplog):
    with caplog.at_level(logging.INFO, "metakel"):
        doubled = asked(Tuner(PRIOR, candidates=LISTS["twice"]))
    assert "3 of 6 candidates are listed more than once" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "metakel"):
        assert asked(Tuner(PRIOR, candidates=ROWS)) == doubled
    assert "listed" not in caplog.text


def test_a_number_is_the_same_whole_or_not():
    rows = [{"rate": r, "depth": 4, "kind": "adam"} for r in (1, 0.01)]
    tuner = Tuner(PRIOR, candidates=rows, extrapolate=True)
    x = tuner.ask()
    for told in ({**rows[0], "rate": 1.0, "depth": np.float64(4)}, {**rows[1], "depth": 4.0}):
        tuner.tell(told, 0.5)
    assert tuner.pending == ()
    assert x in rows
    with pytest.raises(InputError, match="not among the 2 candidates"):
        tuner.tell({**rows[0], "depth": 5}, 0.5)


def test_rows_of_a_frame_can_be_told_as_iterrows_gives_them():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([{"rate": r, "depth": d} for r in (0.01, 0.1) for d in (4, 6)])
    frame["kind"] = "adam"
    tuner = Tuner(PRIOR, candidates=frame)
    for _, row in frame[["rate", "depth"]].iterrows():
        assert isinstance(row["depth"], float)
        tuner.tell({**row.to_dict(), "kind": "adam"}, 0.5)
    assert tuner.stop_reason == "all 4 candidates were asked"


def test_a_journal_goes_on_with_equal_candidates_and_equal_fixed_values(tmp_path):
    Tuner(PRIOR, tmp_path / "j", candidates=ROWS)
    Tuner(PRIOR, tmp_path / "j", candidates=[{**row, "depth": float(row["depth"])} for row in ROWS])
    with pytest.raises(InputError, match="begun with candidates"):
        Tuner(PRIOR, tmp_path / "j", candidates=ROWS[::-1])  # ties are broken by the order
    Tuner(PRIOR, tmp_path / "k", fixed={"depth": 8})
    Tuner(PRIOR, tmp_path / "k", fixed={"depth": 8.0})


def test_a_dropped_candidate_is_done_with_and_a_failure_taken_back_is_not():
    tuner = Tuner(PRIOR, candidates=ROWS)
    first = tuner.ask()
    tuner.drop(first)
    others = asked(tuner)
    assert first not in others
    assert len(others) == 2
    again = Tuner(PRIOR, candidates=ROWS)
    for x in islice(again, 3):
        again.tell(x, failed=True)
    assert again.done
    assert again.drop_failed() == 3
    assert len(asked(again)) == 3


def test_a_row_that_was_run_instead_leaves_neither_open():
    tuner = Tuner(PRIOR, candidates=ROWS)
    first = tuner.ask()
    other = next(row for row in ROWS if row != first)
    tuner.tell(other, 0.5, instead_of=first)
    assert [x for x in ROWS if x not in (first, other)] == asked(tuner)
