from __future__ import annotations

from dataclasses import replace

import numpy as np
from quick_figures import measured, results

from reproduction import glmnet
from reproduction.figure import load_figure
from reproduction.glmnet import learner
from reproduction.settings import Streams


def test_learned_kernel_tunes_with_less_regret_than_the_others():
    numbers = measured("fig6-right")  # one split, 4 of 13 tasks
    assert numbers["reg learned/se"] < 1.0
    assert numbers["reg learned/full"] < 1.0
    assert numbers["reg learned/random"] < 0.5


def test_lambda_and_lengthscale_come_from_past_tasks_alone(monkeypatch):
    settings = load_figure("fig6-right").configured(quick=True)
    settings = replace(settings, p=20, lams=(0.1, 0.01), lengthscales=(0.1, 0.3))
    table = glmnet.tuning_tasks("")
    _, tests = table.split(Streams(0, 0, 0).rng("split"), test=glmnet.TESTS)
    names = {task.name for task in tests}
    other = [replace(t, y=t.y[::-1]) if t.name in names else t for t in table.tasks]
    before = learner(settings, 0, 0)
    monkeypatch.setattr(glmnet, "tuning_tasks", lambda _: replace(table, tasks=tuple(other)))
    learner.cache_clear()
    after = learner(settings, 0, 0)
    learner.cache_clear()
    assert {task.name for task in before.tests} == names
    assert not np.array_equal(before.tests[0].y, after.tests[0].y)
    for made in (before, after):
        assert made.lam in (0.1, 0.01)
        assert made.lengthscale in (0.1, 0.3)
    assert (before.lam, before.lengthscale, before.smooth) == (
        after.lam,
        after.lengthscale,
        after.smooth,
    )
    assert np.array_equal(before.learned.eta, after.learned.eta)


def test_literal_reading_keeps_the_numbers_of_the_settings():
    settings = replace(load_figure("fig6-right").configured("literal", quick=True), p=20)
    made = learner(settings, 0, 0)
    learner.cache_clear()
    assert (made.lam, made.lengthscale, made.smooth) == (0.03, 0.3, 0.3)


def test_few_of_the_500_features_are_selected():
    assert 1 <= measured("fig6-right")["kernels selected"] <= 125  # no bound of the paper


def test_regrets_are_those_of_an_auc():
    table = results("fig6-right")
    assert table["simple"].between(0, 0.6).all()
    steps = table.groupby(["draw", "run", "kernel"])["reg"].diff().dropna()
    assert steps.min() >= -1e-12
