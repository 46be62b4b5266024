"""Ax experiments, made and run by Ax itself."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from metakel.data import History
from metakel.errors import InputError
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal

pytestmark = pytest.mark.filterwarnings("ignore::ax.exceptions.core.AxParameterWarning")


def client(name, *, objective="auc", top=5, kinds=("u", "v", "w")):
    made = Client(random_seed=0)
    made.configure_experiment(
        name=name,
        parameters=[
            RangeParameterConfig("rate", (1e-4, 1.0), parameter_type="float", scaling="log"),
            RangeParameterConfig("depth", (1, top), parameter_type="int"),
            ChoiceParameterConfig("kind", list(kinds), parameter_type="str", is_ordered=False),
            ChoiceParameterConfig("size", [8, 16, 32], parameter_type="int", is_ordered=True),
            ChoiceParameterConfig("bias", [True, False], parameter_type="bool"),
            ChoiceParameterConfig("seed", [3], parameter_type="int"),
        ],
    )
    if objective:
        made.configure_optimization(objective=objective)
    return made


def row(i):
    rate, size = 10.0 ** -(i % 4), (8, 16, 32)[i % 3]
    return {
        "rate": rate, "depth": 1 + i % 5, "kind": "uvw"[i % 3], "size": size, "bias": i % 2 == 0,
        "seed": 3,
    }  # fmt: skip


def filled(name, count=6, metric="auc", **options):
    made = client(name, **options)
    for i in range(count):
        made.complete_trial(made.attach_trial(row(i)), raw_data={metric: float(i)})
    return made


def test_the_search_space_and_the_objective_come_along():
    first, second = filled("first"), filled("second", count=4)
    history = History.from_ax([first, second])
    assert [(task.name, task.n) for task in history] == [("first", 6), ("second", 4)]
    assert history.space["rate"] == Float("rate", 1e-4, 1.0, log=True)
    assert history.space["depth"] == Integer("depth", 1, 5)
    assert history.space["kind"] == Categorical("kind", ("u", "v", "w"))
    assert history.space["size"] == Ordinal("size", (8, 16, 32))
    assert history.space["bias"] == Categorical("bias", (False, True))
    assert history.space["seed"] == Fixed("seed", 3)
    np.testing.assert_array_equal(history[0].y, np.arange(6.0))
    for i, found in enumerate(history.space.decode(history[0].X)):
        assert found == {**row(i), "rate": pytest.approx(row(i)["rate"])}
    assert (history.report.output, history.report.minimize) == ("auc", False)
    alone = History.from_ax(first._experiment)
    np.testing.assert_array_equal(alone[0].X, history[0].X)


def test_a_minus_in_the_objective_is_minimised():
    history = History.from_ax(filled("down", metric="loss", objective="-loss"))
    assert history.report.minimize
    np.testing.assert_array_equal(history[0].y, -np.arange(6.0))


def test_trials_that_did_not_complete_are_counted():
    made = filled("some", count=3)
    made.mark_trial_failed(made.attach_trial(row(3)))
    made.mark_trial_abandoned(made.attach_trial(row(4)))
    made.attach_trial(row(5))
    made.complete_trial(made.attach_trial(row(6)), raw_data={"auc": float("nan")})
    report = History.from_ax(made).report
    assert (report.rows, report.kept, report.failed) == (7, 3, 4)
    for words in ("1 trials are failed", "1 trials are abandoned", "1 trials are running"):
        assert words in str(report)


def test_of_a_learning_curve_the_last_value_counts():
    made = client("curve")
    for i in range(3):
        index = made.attach_trial(row(i))
        for step in range(4):
            made.attach_data(index, {"auc": 10.0 * i + step}, progression=step)
        made.complete_trial(index)
    np.testing.assert_array_equal(History.from_ax(made)[0].y, [3.0, 13.0, 23.0])


def test_spaces_of_experiments_are_joined():
    wide = History.from_ax([filled("a"), filled("b", top=9, kinds=("u", "v", "w", "z"))]).space
    assert wide["depth"] == Integer("depth", 1, 9)
    assert wide["kind"] == Categorical("kind", ("u", "v", "w", "z"))
    same = History.from_ax([filled("a"), filled("a")])
    assert [task.name for task in same] == ["a (1)", "a (2)"]


def test_the_inputs_to_learn_from_can_be_named():
    made = filled("some")
    history = History.from_ax(iter([made]), inputs=["depth", "rate"])
    assert history.space.names == ("depth", "rate")
    whole = History.from_ax({"some": made})
    for name in ("depth", "rate"):
        np.testing.assert_array_equal(
            history[0].X[:, history.space.columns[name]], whole[0].X[:, whole.space.columns[name]]
        )


def test_a_parameter_that_an_experiment_fixes_joins_the_range_of_others():
    two = [filled("a", count=3), filled("b", count=3, kinds=("u", "v", "w", "z"))]
    fixed = client("c", kinds=("u",))
    fixed.complete_trial(fixed.attach_trial(row(0)), raw_data={"auc": 1.0})
    history = History.from_ax([*two, fixed])
    assert history.space["kind"] == Categorical("kind", ("u", "v", "w", "z"))
    assert history.total == 7


def test_another_metric_needs_a_direction():
    made = client("two")
    for i in range(4):
        made.complete_trial(made.attach_trial(row(i)), raw_data={"auc": i, "time": 10.0 - i})
    with pytest.raises(InputError, match="'time' is not the objective of experiment 'two'"):
        History.from_ax(made, output="time")
    history = History.from_ax(made, output="time", minimize=True)
    np.testing.assert_array_equal(history[0].y, np.arange(4) - 10.0)
    with pytest.raises(InputError, match="no metric 'cost'; found auc, time"):
        History.from_ax(made, output="cost", minimize=True)


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(InputError, match="maximise auc, minimise loss"):
        History.from_ax([filled("up"), filled("down", metric="loss", objective="-loss")])
    several = client("pareto", objective="auc, -loss")
    with pytest.raises(InputError, match=r"2 objectives \(auc, loss\)"):
        History.from_ax(several)
    with pytest.raises(InputError, match="has no objective"):
        History.from_ax(client("none", objective=None))
    with pytest.raises(InputError, match="found a int"):
        History.from_ax(3)
    with pytest.raises(InputError, match="empty list"):
        History.from_ax([])
    with pytest.raises(InputError, match="Client without an experiment"):
        History.from_ax(Client())
    with pytest.raises(InputError, match="none of the 0 rows"):
        History.from_ax(client("empty"))


def test_the_example_finds_what_past_experiments_point_to(capsys):
    example = Path(__file__).parents[2] / "examples" / "ax_node.py"
    runpy.run_path(str(example))
    losses = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(losses) == 8
    assert min(losses) < 0.01 < losses[0]
    assert len(example.read_text().splitlines()) <= 40
