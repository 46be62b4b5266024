from __future__ import annotations

import numpy as np
from quick_figures import drawn, failing, results

from metakel.kernels import fourier
from metakel.paper.fig7 import kkt_violation, stacked
from metakel.tasks import History


def test_small_problems_solve_the_big_one():
    assert failing("fig7") == []


def test_the_matrix_is_block_diagonal():
    one = results("fig7")
    entries = one[(one["part"] == "Phi") & (one["run"] == 0)]
    assert (entries["row"] // 6 == entries["column"] // 8).all()
    assert len(entries) == 3 * 6 * 8


def test_violation_sees_a_wrong_solution():
    rng = np.random.default_rng(0)
    base = fourier(3, 1, lengthscales=0.4, rng=rng)
    history = History.from_pairs([(rng.uniform(-1, 1, (5, 1)), rng.standard_normal(5))] * 2)
    Phi, y = stacked(history, base)
    assert kkt_violation(Phi, y, np.zeros((2, base.dim)), base, lam=1e-3) > 0.1
    assert kkt_violation(Phi, y, np.zeros((2, base.dim)), base, lam=1e3) == 0


def test_picture():
    assert [ax.get_title() for ax in drawn("fig7")][:2] == ["y", "Φ: one block per task"]
