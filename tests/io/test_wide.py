"""The work of reading a table grows linearly with its columns."""

from __future__ import annotations

import sys
from itertools import count

import numpy as np
import pytest

from metakel import History
from metakel.io import rows

ROWS = 24


def numbers(k: int, rng: np.random.Generator) -> list[object]:
    return rng.standard_normal(ROWS).round(3).tolist()


def choices(k: int, rng: np.random.Generator) -> list[object]:
    return rng.choice(["a", "b", "c"], ROWS).tolist()


def holes(k: int, rng: np.random.Generator) -> list[object]:
    """In the first half of the rows."""
    cells = choices(k, rng)
    for i in rng.choice(ROWS // 2, 4, replace=False):
        cells[i] = None
    return cells


def calls(make, columns: int) -> int:
    """Of all functions, while a table is read."""
    rng, number = np.random.default_rng(0), count()
    table = {f"p{k}": make(k, rng) for k in range(columns)}
    table |= {"x": numbers(0, rng), "y": numbers(0, rng)}
    table["task"] = [f"t{i % 3}" for i in range(ROWS)]
    sys.setprofile(lambda *_: next(number))
    try:
        History.from_frame(table, task="task", output="y")
    finally:
        sys.setprofile(None)
    return next(number)


@pytest.mark.parametrize("make", [numbers, choices, holes])
def test_twice_the_columns_are_twice_the_work(make, monkeypatch):
    monkeypatch.setattr(rows, "MOST_PARENTS", 5)
    _, some, twice, four_times = (calls(make, n) for n in (5, 50, 100, 200))  # the first imports
    assert four_times - twice < 2.2 * (twice - some)
