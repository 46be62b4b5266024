"""The benchmark of decisions: methods are compared on the same searches, and results are kept."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks import transfer_data, transfer_report
from benchmarks.transfer_data import Source, cases, own_tables, table_names
from benchmarks.transfer_report import COLD, OURS, Pairing, evaluations
from benchmarks.transfer_rivals import cold_gp, empirical, random_search
from benchmarks.transfer_runs import Run


def run(method, split, task, needed, table="t", kind="related"):
    regret = tuple([1.0] * (needed - 1) + [0.0] * (51 - needed))
    return Run(table, kind, method, split, task, regret, 0.0, 0.0)


def test_methods_are_compared_on_the_searches_that_both_made():
    ours = [run(OURS, split, task, 5) for split in (0, 1) for task in (0, 1)]
    cold = [run(COLD, 0, 0, 10), run(COLD, 0, 1, 30), run(COLD, 1, 7, 50)]
    found = Pairing([*ours, *cold], ["t"], OURS, "related", COLD)
    assert found.searches["t"].tolist() == [[5, 10], [5, 30]]
    assert found.ratio() == pytest.approx(0.25)
    assert found.medians() == pytest.approx(0.25)
    assert not Pairing(ours, ["t"], OURS, "related", COLD).tables
    assert found.shown().startswith("0.25 (")


def test_a_search_that_never_gets_there_counts_as_all_evaluations():
    never = Run("t", "related", OURS, 0, 0, (1.0,) * 50, 0.0, 0.0)
    assert evaluations(never, 0.05) == 50
    assert evaluations(run(OURS, 0, 0, 7), 0.05) == 7


def test_past_and_new_tasks_of_a_split_are_different_tasks():
    tasks = [(np.full((60, 1), float(s)), np.arange(60.0)) for s in range(12)]
    for case in cases(tasks, splits=range(5), rows=50):
        taught = {float(X[0, 0]) for X, _ in case.history}
        assert len(taught) == 8
        assert taught.isdisjoint(float(s) for s in case.test)
        assert {len(y) for _, y in case.history} == {50}


def test_tables_of_ones_own_are_found_by_their_columns(tmp_path, monkeypatch):
    monkeypatch.setenv("METAKEL_DATA", str(tmp_path))
    (tmp_path / "mine.csv").write_text("task,x,value\na,0.1,1\n")
    (tmp_path / "about.csv").write_text("task,rows\na,3\n")
    assert list(own_tables()) == ["mine"]
    assert "mine" in table_names()
    assert "xgboost" not in table_names()
    assert all(isinstance(source, Source) for source in transfer_data.SOURCES.values())


def test_equal_past_tasks_name_the_best_row_at_once():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (80, 2))
    y = -((X - 0.3) ** 2).sum(axis=1)
    history = [(X[rows], y[rows]) for rows in (rng.permutation(80)[:40] for _ in range(6))]
    rows = empirical(history, rng)(X, lambda i: float(y[i]), 30, rng)
    assert len(set(rows)) == 30
    assert y.max() - y[rows[:3]].max() < 0.02 * np.ptp(y)
    assert sorted(random_search(history, rng)(X, float, 80, rng)) == list(range(80))


@pytest.mark.parametrize("acquisition", ["ucb", "ei"])
def test_a_cold_search_does_not_begin_where_a_sorted_table_does(acquisition):
    X = np.linspace(-1, 1, 40)[:, None]
    search = cold_gp(acquisition)([], np.random.default_rng(0))
    tried = [search(X, lambda i: float(i), 3, np.random.default_rng(seed)) for seed in range(8)]
    assert len({rows[0] for rows in tried}) > 3
    assert all(len(set(rows)) == 3 for rows in tried)


def test_a_report_of_what_there_was_time_for_has_no_other_numbers(monkeypatch):
    monkeypatch.setattr(transfer_report, "load_table", lambda name, seed: [(np.eye(2), np.ones(2))])
    runs = [run(OURS, 0, task, 3, table) for table in ("a", "b") for task in (0, 1)]
    assert "Floors" not in transfer_report.report(runs)
    runs += [run(OURS, 0, 0, 9, "a", "shuffled"), run(COLD, 0, 0, 6, "a")]
    text = transfer_report.report(runs)
    assert re.search(r"shuffled history over cold GP, UCB, a +\| 1\.5 ", text)
    assert "over cold GP, UCB, b" not in text
    assert re.search(r"^\| metakel +\| 0\.50 \(0\.50-0\.50\) .*\| 0\.50 \| - +\|$", text, re.M)
    assert "nan" not in text
