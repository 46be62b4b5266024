"""A prior from more tasks than fit in memory: a sample of them teaches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metakel as mk
from metakel._files import encode
from metakel.errors import InputError
from metakel.scale import _scan as scanning
from metakel.scale import scan
from metakel.space import Float, Integer


def table(m: int = 40, n: int = 12) -> dict[str, np.ndarray]:
    """Bowls with a moving centre; two inputs, one of them a whole number."""
    rng = np.random.default_rng(3)
    rate, depth = rng.uniform(0.1, 1, (m, n)), rng.integers(2, 9, (m, n))
    center = 0.5 + 0.1 * rng.standard_normal((m, 1))
    y = -((rate - center) ** 2) - 0.01 * (depth - 5) ** 2 + 0.001 * rng.standard_normal((m, n))
    task = np.repeat([f"t{s:03d}" for s in range(m)], n)
    return {"task": task, "rate": rate.ravel(), "depth": depth.ravel(), "y": y.ravel()}


@pytest.fixture
def stored(tmp_path):
    columns = table()
    for i, rows in enumerate(np.array_split(np.arange(40 * 12), 4)):
        part = pa.table({name: values[rows] for name, values in columns.items()})
        pq.write_table(part, tmp_path / f"part-{i}.parquet", row_group_size=50)
    return tmp_path


def exact(history: mk.History) -> list[tuple[str, bytes, bytes]]:
    return [(task.name, task.X.tobytes(), task.y.tobytes()) for task in history]


def test_where_all_tasks_fit_the_prior_is_that_of_the_table(stored, tmp_path):
    whole = mk.History.from_frame(table(), task="task", output="y")
    stored_tasks = scan(stored)
    assert exact(stored_tasks.sample()) == exact(whole)
    found, expected = (
        mk.learn_prior(stored_tasks.sample(), certify="none"),
        mk.learn_prior(whole, certify="none"),
    )
    assert encode(found) == encode(expected)


def test_ranges_are_those_of_all_tasks(stored):
    columns, space = table(), scan(stored).sample(1).space
    for name in ("rate", "depth"):
        found = space[name]
        assert (found.low, found.high) == (columns[name].min(), columns[name].max())
    assert space == mk.History.from_frame(columns, task="task", output="y").space


def test_a_space_of_the_caller_is_kept(stored):
    space = mk.Space((Float("rate", 0, 2), Integer("depth", 1, 20)))
    assert scan(stored).sample(3, space=space).space == space


def test_large_tasks_are_drawn_as_often_as_small_ones(monkeypatch):
    monkeypatch.setattr(scanning, "ROWS", 300)
    sizes = np.array([10] * 10 + [100] * 10)
    drawn = np.concatenate([scanning.draw(sizes, 1000, seed) for seed in range(400)])
    large = int((drawn >= 10).sum())
    slack = 4 * np.sqrt(drawn.size / 4)
    assert drawn.size == 400 * int(300 / 55)
    assert abs(large - drawn.size / 2) < slack


def test_of_a_large_task_some_rows_are_kept(stored, monkeypatch):
    monkeypatch.setattr(scanning, "ROWS_OF_A_TASK", 5)
    assert set(scan(stored).sample(6).sizes) == {5}


def test_the_direction_of_a_loss_has_to_be_said(tmp_path):
    columns = table(6)
    columns["loss"] = -columns.pop("y")
    pq.write_table(pa.table(columns), tmp_path / "runs.parquet")
    stored_tasks = scan(tmp_path / "runs.parquet", output="loss")
    with pytest.raises(InputError, match="minimize"):
        stored_tasks.sample()
    assert mk.learn_prior(stored_tasks.sample(minimize=True), certify="none").info.minimize


@pytest.mark.parametrize("tasks", [0, -3])
def test_no_tasks_are_no_sample(stored, tasks):
    with pytest.raises(InputError, match="expected at least 1"):
        scan(stored).sample(tasks)
