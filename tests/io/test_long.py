"""Long tables: a row for every step; runs that were stopped early count by their expected end."""

from __future__ import annotations

import json

import numpy as np
import pytest

from metakel import History
from metakel.curves import CurveModel
from metakel.errors import InputError

STEPS, EARLY = 12, 4


def rows(tasks=6, runs=14, early=True, first=1):
    """Losses that fall to the level of a configuration; every third run is stopped early."""
    rng = np.random.default_rng(0)
    for task in range(tasks):
        for run in range(runs):
            rate, level = float(rng.uniform(0.2, 0.6)), float(rng.uniform(0, 1))
            made = EARLY if early and run % 3 == 2 else STEPS
            for step in range(made):
                value = level + 2 * np.exp(-rate * step)
                x = {"dataset": f"d{task}", "rate": rate, "level": level}
                yield {**x, "epoch": step + first, "loss": float(value)}


def columns(found):
    found = list(found)
    return {name: [row[name] for row in found] for name in found[0]}


def read(found, **options):
    said = {"task": "dataset", "output": "loss", "minimize": True, "step": "epoch"}
    return History.from_frame(columns(found), **{**said, **options})


@pytest.mark.parametrize("first", [0, 1])
def test_a_run_is_one_row_and_counts_by_its_end(first):
    history = read(rows(early=False, first=first))
    assert history.sizes.tolist() == [14] * 6
    last = [row["loss"] for row in rows(early=False) if row["epoch"] == STEPS]
    np.testing.assert_allclose(np.concatenate([-task.y for task in history]), last)
    assert [len(curves) for curves in history.curves.values()] == [14] * 6
    assert max(next(iter(history.curves.values()))[0]) == STEPS
    assert CurveModel.learn(list(history.curves.values()), minimize=True).steps == STEPS


def test_rows_of_a_run_may_be_in_any_order():
    found = list(rows())
    drawn = np.random.default_rng(1).permutation(len(found))
    usual = read(found)
    for order in (found[::-1], [found[i] for i in drawn], sorted(found, key=lambda r: r["epoch"])):
        other = read(order)
        for name, curves in usual.curves.items():
            assert sorted(map(str, other.curves[name])) == sorted(map(str, curves))
        for one, two in zip(usual, sorted(other, key=lambda task: task.name), strict=True):
            np.testing.assert_allclose(np.sort(two.y), np.sort(one.y))


def test_a_run_that_was_stopped_early_is_neither_lost_nor_final():
    history, whole = read(rows()), read(rows(early=False))
    assert history.sizes.tolist() == [14] * 6
    assert "24 of them stopped early" in "".join(history.report.notes)
    stopped = np.arange(14) % 3 == 2
    so_far, ends = [], []
    for task, true in zip(history, whole, strict=True):
        assert task.noise_std[stopped].min() >= task.noise_std[~stopped].max()
        assert task.y.max() == task.y[~stopped].max()  # nobody's best
        ends.append(np.abs(task.y - true.y)[stopped])
    seen = [r["loss"] for r in rows() if r["epoch"] == EARLY]
    done = [r["loss"] for r in rows(early=False) if r["epoch"] == STEPS]
    early = [i for i in range(6 * 14) if i % 14 % 3 == 2]
    so_far = [abs(seen[i] - done[i]) for i in early]
    assert np.concatenate(ends).mean() < np.mean(so_far) / 2


def test_where_too_few_went_on_they_are_left_out_with_a_note():
    history = read(rows(tasks=2, runs=5))
    assert history.sizes.tolist() == [4, 4]
    assert "2 runs that were stopped early are left out" in "".join(history.report.notes)


def test_repeats_of_a_configuration_are_runs_of_their_own():
    found = list(rows(early=False))
    history = read([*found, *found[:STEPS]])
    assert history.report.rows == 6 * 14 + 1


def test_mistakes_are_said():
    with pytest.raises(InputError, match="no column 'round'"):
        read(rows(), step="round")
    with pytest.raises(InputError, match="whole number"):
        read([{**row, "epoch": 0.5} for row in rows()])
    clocked = [{**row, "clock": i} for i, row in enumerate(rows())]
    with pytest.raises(InputError, match="a run of its own"):
        read(clocked)
    assert read(clocked, inputs=["rate", "level"]).sizes.tolist() == [14] * 6


def test_json_lines_have_steps_too(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows())), encoding="utf-8")
    said = {"task": "dataset", "output": "loss", "minimize": True, "step": "epoch"}
    assert History.from_jsonl(path, **said).sizes.tolist() == [14] * 6
