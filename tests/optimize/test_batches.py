"""Points of a batch differ by more than what one measurement says of the other."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import metakel as mk
from metakel.gp.factor import CrossPosterior
from metakel.kernels.stationary import typical_lengthscale
from metakel.optimize.model import APART


@cache
def couplings() -> mk.Prior:
    """Tasks that are nearly alike, so that a model is sure after a few values."""
    rng = np.random.default_rng(0)
    rows: dict[str, list] = {name: [] for name in ("task", "heat", "base", "metal", "yield")}
    for s in range(10):
        for _ in range(12):
            heat, base = int(rng.integers(75, 91)), round(float(rng.uniform(1.5, 3)), 1)
            metal = str(rng.choice(["Pd", "Ni"]))
            cells = (s, heat, base, metal, reaction(heat, base, metal) + 0.3 * rng.normal())
            for name, cell in zip(rows, cells, strict=True):
                rows[name].append(cell)
    history = mk.History.from_frame(rows, task="task", output="yield")
    return mk.learn_prior(history, certify="none")


def reaction(heat: float, base: float, metal: str) -> float:
    return 70 - ((heat - 84) / 6) ** 2 * 10 - 30 * (base - 2.6) ** 2 - 20 * (metal == "Ni")


def closest(prior: mk.Prior, batch: list[dict]) -> float:
    """The smallest distance of two points, in typical length scales."""
    X = prior.space.encode(batch)
    away = np.linalg.norm(X[:, None] - X, axis=2)[np.triu_indices(len(X), 1)]
    return float(away.min()) / typical_lengthscale(X.shape[1])


@pytest.mark.parametrize("size", [2, 3, 5])
def test_no_two_points_of_a_batch_are_nearly_the_same_however_sure_the_model_is(size):
    prior = couplings()
    optimizer = prior.optimizer()
    for _ in range(4):
        batch = optimizer.ask_batch(size)
        assert closest(prior, batch) >= APART
        for x in batch:
            optimizer.tell(x, reaction(**x))
    assert optimizer.best().value > 69


def test_results_in_between_change_nothing_about_it():
    prior = couplings()
    optimizer = prior.optimizer()
    first = optimizer.ask_batch(3)
    for x in first:
        optimizer.tell(x, reaction(**x))
    running = [optimizer.ask(), optimizer.ask()]
    optimizer.tell(running.pop(0), 68.0)
    running += optimizer.ask_batch(2)
    assert closest(prior, running) >= APART


def test_where_only_near_ones_are_left_they_are_given():
    prior = couplings()
    rows = [{"heat": 84, "base": base, "metal": "Pd"} for base in (2.58, 2.59, 2.6, 2.61)]
    batch = prior.optimizer(rows).ask_batch(4)
    assert sorted(x["base"] for x in batch) == [row["base"] for row in rows]


def test_one_at_a_time_nothing_keeps_the_search_from_coming_close():
    prior = couplings()
    optimizer = prior.optimizer()
    asked = []
    for _ in range(12):
        asked.append(optimizer.ask())
        optimizer.tell(asked[-1], reaction(**asked[-1]))
    assert closest(prior, asked) < APART


def test_running_trials_do_not_make_a_model_predict_everything_again(monkeypatch):
    """What is known of the start points of a search is kept; only a few others are predicted."""
    optimizer, predicted = couplings().optimizer(), []
    whiten = CrossPosterior.whiten
    for _ in range(12):
        x = optimizer.ask()
        optimizer.tell(x, reaction(**x))

    def counted(self, points):
        predicted.append(len(points[0].mean))
        return whiten(self, points)

    def asked() -> int:
        predicted.clear()
        optimizer.explain(optimizer.peek())
        return sum(predicted)

    monkeypatch.setattr(CrossPosterior, "whiten", counted)
    alone = asked()
    optimizer.ask_batch(8)
    assert asked() < min(4 * alone, len(optimizer.state.start.X))
