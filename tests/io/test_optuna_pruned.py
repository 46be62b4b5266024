"""Pruned trials of past studies are evidence by their predicted end: not lost, and not final."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import optuna
import pytest

from metakel import History, learn_prior
from metakel.io.optuna import recorded_studies

optuna.logging.set_verbosity(optuna.logging.ERROR)
STEPS, PRUNED_AT, AMPLITUDE = 12, 4, 2.0


def task(rng):
    """A loss of two parameters, in a unit of its own."""
    best, unit = rng.normal(0.4, 0.1), np.exp(0.3 * rng.normal())
    return lambda x: unit * (4 * (x["a"] - best) ** 2 + 0.5 * x["b"])


def past(rng, *, unit=1.0, studies=6, runs=16, final="loss"):
    """Studies whose worse half was pruned after a third of the steps."""
    made = []
    for k in range(studies):
        loss, seen = task(rng), []

        def objective(trial, loss=loss, seen=seen):
            x = {name: trial.suggest_float(name, 0, 1) for name in ("a", "b")}
            end, rate = loss(x), rng.uniform(0.2, 0.5)
            trial.set_user_attr("end", unit * end)
            for step in range(STEPS):
                value = end + AMPLITUDE * (np.exp(-rate * step) - np.exp(-rate * (STEPS - 1)))
                trial.report(unit * value, step)
                if step == PRUNED_AT:
                    seen.append(value)
                    if value > np.median(seen):
                        raise optuna.TrialPruned
            return unit * value if final == "loss" else 100 - 7 * x["b"]

        sampler = optuna.samplers.RandomSampler(seed=int(rng.integers(1 << 30)))
        study = optuna.create_study(
            study_name=f"s{k}", sampler=sampler, direction="minimize" if unit > 0 else "maximize"
        )
        study.optimize(objective, n_trials=runs)
        made.append(study)
    return made


def taken_for_final(study):
    """The mistake: the last value of a pruned trial as if it were the end."""
    rows = ((params, curve[max(curve)]) for params, curve in study.curves if params is not None)
    return replace(study, rows=(*study.rows, *rows), curves=())


def score(studies, rng) -> float:
    """Mean log density of values of new tasks, after the first few of each."""
    prior, found = learn_prior(History.from_optuna(studies), certify="none"), []
    for _ in range(4):
        loss = task(rng)
        X = [{"a": a, "b": b} for a, b in rng.uniform(size=(24, 2))]
        y, optimizer = np.array([loss(x) for x in X]), prior.optimizer()
        optimizer.tell(X[:4], y[:4].tolist())
        mean, sd = optimizer.predict(X[4:])
        sd = np.hypot(sd, 0.05)
        found.append(-np.log(sd) - ((y[4:] - mean) / sd) ** 2 / 2)
    return float(np.mean(found))


def test_the_prior_is_as_good_with_them_as_without_and_better_than_taking_them_for_final():
    gains, losses = [], []
    for seed in range(30, 36):
        studies, _ = recorded_studies(past(np.random.default_rng(seed)))
        ways = (
            studies,
            [replace(study, curves=()) for study in studies],
            [taken_for_final(study) for study in studies],
        )
        kept, dropped, final = (score(way, np.random.default_rng(100 + seed)) for way in ways)
        gains.append(kept - dropped)
        losses.append(final - kept)
    assert np.mean(gains) > 0
    assert np.mean(losses) < 0


@pytest.mark.parametrize("unit", [1.0, -1000.0])
def test_ends_are_near_what_would_have_come_and_weigh_less(unit):
    studies = past(np.random.default_rng(1), unit=unit)
    history = History.from_optuna(studies)
    count = sum(t.state.name == "PRUNED" for s in studies for t in s.trials)
    assert count > 20
    assert f"{count} pruned trials count by the ends" in "".join(history.report.notes)
    assert history.report.failed == 0
    early, late = [], []
    for study, found in zip(studies, history, strict=True):
        assert found.n == len(study.trials)
        done = [t for t in study.trials if t.state.name == "COMPLETE"]
        y = found.y if unit < 0 else -found.y
        assert max(found.y) == max(found.y[: len(done)])  # nobody's best
        noise = found.noise_std
        assert noise[len(done) :].min() >= noise[: len(done)].max()
        gone = [t for t in study.trials if t.state.name == "PRUNED"]
        true = np.array([t.user_attrs["end"] for t in gone])
        early.append(np.array([t.intermediate_values[PRUNED_AT] for t in gone]) - true)
        late.append(y[len(done) :] - true)
    assert np.abs(np.concatenate(late)).mean() < np.abs(np.concatenate(early)).mean()


def test_where_nothing_can_be_said_of_their_end_they_are_left_out():
    few = past(np.random.default_rng(2), studies=2, runs=5)
    other = past(np.random.default_rng(2), final="another metric")
    for studies in (few, other):
        history = History.from_optuna(studies)
        count = sum(t.state.name == "PRUNED" for s in studies for t in s.trials)
        assert f"{count} were pruned" in "".join(history.report.notes)
        assert all(task.noise_std is None for task in history)
