"""Outputs that are bounds, and runs that a status calls failed."""

from __future__ import annotations

import numpy as np
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.io.outputs import settled

NAMED = {"task": "data", "output": "score"}


def table(scores, **more):
    n = len(scores)
    return {"data": ["a"] * n, "rate": np.linspace(0.1, 0.9, n), "score": scores, **more}


def kaplan_meier_mean_beyond(values, observed, bound):
    """By the product of the shares that survive each observed value: another way to compute it."""
    values, observed = np.asarray(values, float), np.asarray(observed, bool)
    observed = observed | (values == values.max())  # Efron: the largest counts as observed
    mass, survival, total = 0.0, 1.0, 0.0
    for v in np.unique(values[values > bound]):
        step = survival * ((values == v) & observed).sum() / (values >= v).sum()
        mass, total, survival = mass + step, total + step * v, survival - step
    return total / mass


def test_a_bound_is_the_kaplan_meier_mean_beyond_it():
    values = np.array([1.0, 3.0, 4.0, 2.0, 6.0, 5.0, 9.0])
    signs = np.array([0, 1, 0, 1, 0, 1, 0], dtype=np.int8)
    found = settled(values, signs, np.zeros(7, dtype=np.intp))
    for i in np.flatnonzero(signs):
        assert found[i] == pytest.approx(kaplan_meier_mean_beyond(values, signs == 0, values[i]))
    np.testing.assert_array_equal(found[signs == 0], values[signs == 0])


def test_a_bound_beyond_all_values_stays_and_sides_mirror_each_other():
    rng = np.random.default_rng(0)
    values, signs = rng.uniform(size=30), rng.integers(-1, 2, 30).astype(np.int8)
    tasks = rng.integers(0, 3, 30)
    found = settled(values, signs, tasks)
    assert (found[signs > 0] >= values[signs > 0]).all()
    assert (found[signs < 0] <= values[signs < 0]).all()
    one = np.where(signs > 0, signs, 0).astype(np.int8)
    mirrored = -settled(-values, -one, tasks)
    np.testing.assert_allclose(mirrored, settled(values, one, tasks))
    alone = settled(np.array([1.0, 2.0]), np.array([0, 1], dtype=np.int8), np.zeros(2, dtype=int))
    np.testing.assert_array_equal(alone, [1.0, 2.0])


@pytest.mark.parametrize(
    ("cell", "value"), [("<0.01", 0.01), ("< 0.01", 0.01), ("≤0.01", 0.01), (">3600", 3600.0)]
)
def test_cells_with_a_bound_are_read(cell, value):
    history = History.from_frame(table(["1", "2", "3.5", cell]), **NAMED)
    assert history.total == 4
    assert history[0].y[-1] == value  # nothing is beyond
    assert any(f"score is a bound in 1 rows (e.g. {cell!r})" in n for n in history.report.notes)


def test_a_run_that_was_stopped_early_is_as_slow_as_those_that_took_longer(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("data;rate;seconds\na;0,1;10,5\na;0,2;>20\na;0,3;30\na;0,4;50\nb;0,3;7\n")
    history = History.from_csv(path, task="data", output="seconds", minimize=True)
    np.testing.assert_allclose(history[0].y, [-10.5, -40, -30, -50])


def test_a_status_overrules_the_output():
    rows = table([1.0, 2.0, 0.0, 3.0, 0.0], status=["ok", "ok", "failed", "ok", "crashed"])
    history = History.from_frame(rows, **NAMED)
    assert (history.total, history.report.failed, len(history[0].failed)) == (3, 2, 2)
    assert "status" not in history.space.names
    assert any("status says that 2 runs with an output failed" in n for n in history.report.notes)
    named = {**rows, "how": rows["status"]}
    del named["status"]
    assert History.from_frame(named, **NAMED, status="how").total == 3
    with pytest.raises(InputError, match=r"the status 'odd' in row 1 is not known"):
        History.from_frame(table([1.0, 2.0], how=["ok", "odd"]), **NAMED, status="how")
    with pytest.raises(InputError, match="no column 'nothing'"):
        History.from_frame(rows, **NAMED, status="nothing")


def test_a_setting_called_state_stays_a_setting():
    rows = table([1.0, 2.0, 3.0, 4.0], state=["solid", "liquid", "solid", "liquid"])
    assert "state" in History.from_frame(rows, **NAMED).space.names
