from __future__ import annotations

from quick_figures import check_picture, measured, results


def test_learned_kernel_tunes_with_less_regret_than_the_others():
    numbers = measured("fig6-right")  # one split, 4 of 13 tasks
    assert numbers["reg learned/se"] < 1.0
    assert numbers["reg learned/full"] < 1.0
    assert numbers["reg learned/random"] < 0.5


def test_few_of_the_500_features_are_selected():
    assert 1 <= measured("fig6-right")["kernels selected"] <= 50


def test_regrets_are_those_of_an_auc():
    table = results("fig6-right")
    assert table["simple"].between(0, 0.6).all()
    steps = table.groupby(["draw", "run", "kernel"])["reg"].diff().dropna()
    assert steps.min() >= -1e-12


def test_picture():
    check_picture("fig6-right")
