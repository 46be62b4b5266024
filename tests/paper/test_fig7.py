from __future__ import annotations

import numpy as np
from quick_figures import drawn, failing, results

from metakel.data import History
from metakel.kernels import random_fourier
from reproduction.fig7 import duality_gap, stacked
from reproduction.figure import load_figure
from reproduction.gallery import overall


def test_small_problems_solve_the_big_one():
    assert failing("fig7") == []


def test_the_matrix_is_block_diagonal():
    one = results("fig7")
    entries = one[(one["part"] == "Phi") & (one["run"] == 0)]
    assert (entries["row"] // 6 == entries["column"] // 8).all()
    assert len(entries) == 3 * 6 * 8


def test_gap_sees_a_wrong_solution():
    rng = np.random.default_rng(0)
    base = random_fourier(3, 1, lengthscales=0.4, rng=rng)
    history = History.from_pairs([(rng.uniform(-1, 1, (5, 1)), rng.standard_normal(5))] * 2)
    Phi, y = stacked(history, base)
    nothing = np.zeros((2, base.dim))
    assert duality_gap(Phi, y, nothing, base, lam=1e-3) > 0.1
    assert abs(duality_gap(Phi, y, nothing, base, lam=1e3)) < 1e-15  # lambda above lambda_max
    assert duality_gap(Phi, y, nothing + 0.1, base, lam=1e3) > 0.1


def test_it_is_an_illustration_and_judged_as_one():
    figure = load_figure("fig7")
    for gap in (0.0, 1.0):
        numbers = {"largest gap": gap, "share of the true kernel": 0.7}
        assert overall(figure, {"resolved": numbers}) == "illustration"


def test_picture():
    assert [ax.get_title() for ax in drawn("fig7")][:2] == ["y", "Φ: one block per task"]
