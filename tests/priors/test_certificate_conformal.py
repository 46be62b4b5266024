"""Conformal regret: what is promised, on which tasks it holds, and where nothing is promised."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from histories import draw_task, simulate
from numpy.testing import assert_allclose
from scipy.stats import binom

from metakel import History, Tuner, learn_prior
from metakel._files import decode, encode
from metakel.data import Task
from metakel.errors import InputError
from metakel.optimize import Optimizer
from metakel.optimize.certificate import Replayed, as_tolerance, stops
from metakel.optimize.replays import (
    EARLY,
    PLATEAU,
    SCALE_WEIGHT,
    RegretScores,
    RegretTrace,
    shape,
    unlike,
)
from metakel.priors import Prior
from metakel.priors.regret_calibration import TaskScore, emulate, replay_table
from metakel.search import candidates
from metakel.space import Categorical, Float, Integer, Space

SPACE = Space((Float("a", -1.0, 1.0), Float("b", -1.0, 1.0)))
ROWS = 25


@pytest.fixture(scope="module")
def prior() -> Prior:
    return learn_prior(simulate(np.random.default_rng(3), m=20, n=ROWS), SPACE)


@pytest.fixture(scope="module")
def untested() -> Prior:
    return learn_prior(simulate(np.random.default_rng(4), m=12, n=ROWS), SPACE, certify="none")


def table(rng, n=ROWS):
    X = rng.uniform(-1, 1, (n, 2))
    return X, draw_task(rng)(X) + 0.01 * rng.standard_normal(n)


def plain(document):
    """As it is read from a file."""
    return json.loads(json.dumps(document))


def certified_run(optimizer: Optimizer, X, y, steps: int):
    """True regrets and certificates, value by value."""
    regrets, certificates = [], []
    for _ in range(steps):
        x = optimizer.ask()
        row = int(np.argmin(np.abs(X - [x["a"], x["b"]]).sum(axis=1)))
        optimizer.tell(x, y[row])
        regrets.append(y.max() - optimizer.best().value)
        certificates.append(optimizer.certificate())
    return np.array(regrets), certificates


# The arithmetic


def test_the_factor_is_the_right_order_statistic_or_infinite():
    scores = RegretScores(np.arange(1.0, 10.0), np.arange(1.0, 10.0), "folds", 50, 25)
    assert (scores.factor(0.1), scores.factor(0.2), scores.factor(0.09)) == (9, 8, np.inf)
    assert (scores.missing(0.1), scores.missing(0.05)) == (0, 10)
    assert scores.failure_probability(0.09) == 1
    assert 0.2 < scores.failure_probability(0.2) < 0.4
    with pytest.raises(InputError, match="delta is 1"):
        scores.factor(1.0)


def test_the_ceiling_never_rises_and_ends_with_the_horizon():
    trace = (
        RegretTrace().after(0, 0.0, 2.0).after(1, 1.0, 0.5).after(2, 1.0, 0.9).after(3, 1.5, 0.1)
    )
    assert [trace.ceiling(2.0, t) for t in (1, 2, 3, 4)] == [4, 2, 2, 1.7]
    assert RegretTrace().ceiling(1.0, 5) == np.inf


def test_the_shape_is_positive_and_falls_with_time_up_to_a_plateau():
    sure = [shape(1.0, 2.0, 3.0, t) for t in range(1, 100)]
    assert (np.diff(sure) < 0).all()
    least = SCALE_WEIGHT * 3.0 / PLATEAU
    assert min(sure) > least
    assert sure[EARLY - 1] > 2 * least * PLATEAU / EARLY * 0.99
    assert sure[-1] == pytest.approx(least, rel=1e-3)
    assert shape(4.0, 2.0, 3.0, 7) - shape(3.0, 2.0, 3.0, 7) == pytest.approx(1 / 7)


@pytest.mark.parametrize(("given", "expected"), [(0.5, 0.5), ("1%", 0.02), (" 0.3 ", 0.3)])
def test_a_tolerance_is_in_units_of_the_output_or_of_the_spread(given, expected):
    assert as_tolerance(given, 2.0) == pytest.approx(expected)


@pytest.mark.parametrize("bad", ["a lot", "-1%", -1.0, float("nan"), True, "%"])
def test_a_tolerance_that_is_none_is_refused(bad):
    with pytest.raises(InputError, match="stop_at is"):
        as_tolerance(bad, 2.0)
    with pytest.raises(InputError, match="spread of a task is not known"):
        as_tolerance("1%", None)


# What is promised


def test_the_certificate_covers_new_tasks_at_all_times_and_is_small(prior):
    rng, held, last = np.random.default_rng(11), 0, []
    runs = 25
    for _ in range(runs):
        X, y = table(rng)
        regrets, found = certified_run(prior.optimizer(X, delta=0.2), X, y, 12)
        held += all(r <= c.regret + 1e-9 for r, c in zip(regrets, found, strict=True))
        last.append(found[-1].regret)
    assert held >= binom.ppf(1e-3, runs, 0.8)
    assert np.median(last) < 0.1 * prior.certificate.spread


def test_minimising_the_negative_gives_the_same_certificate():
    rng = np.random.default_rng(8)
    rows = {"task": [], "a": [], "b": [], "loss": [], "gain": []}
    for s in range(8):
        X, y = table(rng, 12)
        for (a, b), value in zip(X, y, strict=True):
            for name, v in zip(rows, (s, a, b, -value, value), strict=True):
                rows[name].append(v)
    X, y = table(rng, 12)
    found = []
    for output, sign in (("gain", 1.0), ("loss", -1.0)):
        columns = {name: rows[name] for name in ("task", "a", "b", output)}
        history = History.from_frame(columns, task="task", output=output, minimize=sign < 0)
        optimizer = learn_prior(history).optimizer(X)
        for _ in range(5):
            x = optimizer.ask()
            i = int(np.argmin(np.abs(X - [x["a"], x["b"]]).sum(axis=1)))
            optimizer.tell(x, sign * y[i])
        found.append(optimizer.certificate().regret)
    assert found[0] < np.inf
    assert_allclose(found[0], found[1], rtol=1e-6)


def test_a_replay_decides_as_the_optimizer_does(prior):
    X, y = table(np.random.default_rng(6))
    optimizer = prior.optimizer(X)
    regrets, _ = certified_run(optimizer, X, y, ROWS)
    trace = optimizer.model.trace
    assert trace.rows == tuple(range(ROWS))
    assert len(trace.best) == ROWS
    assert replay_table(prior, X, y).score == pytest.approx(
        (regrets / np.array(trace.shapes)).max()
    )


def test_over_a_space_the_certificate_is_emulated():
    space = Space((Float("a", -1.0, 1.0), Integer("b", 0, 6), Categorical("c", ("u", "v"))))
    rng, pairs = np.random.default_rng(1), []

    def value(rows, f):
        Z = np.array([[row["a"], row["b"] / 3 - 1] for row in rows])
        return f(Z) + np.array([0.3 * (row["c"] == "u") for row in rows])

    for _ in range(6):
        rows = space.decode(space.sample(rng, 15))
        pairs.append((rows, value(rows, draw_task(rng))))
    columns = {name: [row[name] for rows, _ in pairs for row in rows] for name in space.names}
    columns["task"] = [s for s, (rows, _) in enumerate(pairs) for _ in rows]
    columns["y"] = [v for _, values in pairs for v in values]
    prior = learn_prior(History.from_frame(columns, task="task", output="y", space=space))
    optimizer, f = prior.optimizer(delta=0.2), draw_task(rng)
    for _ in range(8):
        x = optimizer.ask()
        optimizer.tell(x, float(value([x], f)[0]))
    assert optimizer.model.trace.rows == tuple(range(optimizer.t))
    if optimizer.alarm is None:
        assert optimizer.certificate().basis == "emulated"
        assert "(checked on emulated tasks)" in str(optimizer.certificate())
    assert "all parameters free" in prior.optimizer(fixed={"b": 3}).certificate().reason


def test_an_emulated_task_agrees_with_its_runs_and_is_a_function_beyond_them(prior):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (40, 2))
    y = draw_task(rng)(X)
    draws = [emulate(prior, Task(X, y), np.random.default_rng(i)) for i in range(8)]
    assert max(np.abs(draw.function(X) - y).max() for draw in draws) < 0.5 * y.std()
    Z = rng.uniform(-1, 1, (50, 2))
    apart = np.std([draw.function(Z) for draw in draws], axis=0)
    assert (apart > 0).all()
    assert all(draw.noise_std > 0 for draw in draws)


def test_where_runs_are_dense_an_emulated_task_has_no_peaks_and_no_noise_that_they_do_not_show():
    """A process takes a cliff for noise, and swings beyond it."""
    rng, pairs = np.random.default_rng(0), []
    for _ in range(6):
        edge = rng.uniform(-0.3, 0.3)
        X = rng.uniform(-1, 1, (1000, 2))
        pairs.append((X, np.where(X[:, 0] > edge, 0.5, 0.9 - 0.05 * X[:, 1] ** 2)))
    cliffs = learn_prior(History.from_pairs(pairs), SPACE, certify="none")
    Z, beyond, noise = rng.uniform(-1, 1, (2000, 2)), [], []
    for number, (X, y) in enumerate(pairs):
        draw = emulate(cliffs, Task(X, y), np.random.default_rng(number))
        beyond.append((draw.function(Z) > y.max() + 0.05 * np.ptp(y)).mean())
        noise.append(draw.noise_std / np.ptp(y))
    assert np.median(beyond) < 2e-3
    assert max(noise) < 0.02


# Where nothing is promised


def test_too_few_tasks_promise_nothing_and_say_how_many_are_missing(prior):
    X, _ = table(np.random.default_rng(0))
    optimizer = prior.optimizer(X, delta=0.02)
    optimizer.tell(optimizer.ask(), 0.0)
    assert optimizer.certificate().regret == np.inf
    assert "29 more are needed" in optimizer.certificate().reason
    few = learn_prior(simulate(np.random.default_rng(0), m=3), SPACE)
    assert "fewer than 4" in few.optimizer(X).certificate().reason


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"acquisition": "ei"}, "replayed with acquisition='ucb'"),
        ({"extrapolate": True}, "beyond the recorded ranges"),
    ],
)
def test_another_rule_than_the_replayed_one_has_no_certificate(prior, options, why):
    X, _ = table(np.random.default_rng(0))
    assert why in prior.optimizer(X, **options).certificate().reason


def test_a_larger_table_is_certified_on_tasks_emulated_at_its_rows(prior):
    rng, held, runs = np.random.default_rng(14), 0, 3
    for _ in range(runs):
        X, y = table(rng, n=4 * ROWS)
        optimizer = prior.optimizer(X, delta=0.2)
        regrets, found = certified_run(optimizer, X, y, 6)
        assert found[0].basis == "emulated"
        if not found[0].reason:
            assert "none of the candidates is better" in str(found[0])
            assert "(checked on emulated tasks)" in str(found[0])
        held += all(r <= c.regret + 1e-9 for r, c in zip(regrets, found, strict=True))
    assert held >= binom.ppf(1e-3, runs, 0.8)
    X, y = table(rng)
    _, found = certified_run(prior.optimizer(X), X, y, 1)
    assert found[0].basis == "folds"
    calibration = prior.certificate
    optimistic = replace(calibration.table, scores=np.full(9, 1e-3), lasting=np.full(9, 1e-3))
    larger = candidates(table(rng, n=4 * ROWS)[0])
    for unlikely in (optimistic, replace(optimistic, scores=np.zeros(9), lasting=np.zeros(9))):
        found = calibration.scores_for(larger, 0.2, lambda Z, scores=unlikely: scores)
        assert found.factor(0.2) == pytest.approx(calibration.table.factor(0.2))
    few = prior.optimizer(table(rng, n=4 * ROWS)[0], delta=0.02)  # past tasks count, draws do not
    assert "29 more are needed" in few.certificate().reason


def test_rows_that_were_chosen_near_optima_do_not_stand_for_others(prior):
    rng, past = np.random.default_rng(15), prior.certificate.table.rows
    assert past.shape == (10, 10, 2)
    same = sum(unlike(past, rng.uniform(-1, 1, (ROWS, 2))) for _ in range(40))
    assert same <= 4
    centers = rng.uniform(-0.7, 0.7, (10, 1, 2))
    near = centers + 0.2 * rng.standard_normal((10, 10, 2))
    assert all(unlike(near, rng.uniform(-1, 1, (ROWS, 2))) for _ in range(20))
    shifted = rng.uniform(-1, 1, (10, 10, 2))
    shifted[..., 0] = np.abs(shifted[..., 0])
    assert unlike(shifted, rng.uniform(-1, 1, (100, 2)))
    assert not unlike(np.empty((0, 0, 0)), rng.uniform(-1, 1, (ROWS, 2)))


def test_a_prior_that_was_stored_without_rows_can_be_read(prior):
    stored = plain(encode(prior))
    assert decode(Prior, stored, "prior").certificate.table.rows.shape == (10, 10, 2)
    del stored["certificate"]["table"]["rows"], stored["certificate"]["space"]["rows"]
    assert not decode(Prior, stored, "prior").certificate.table.rows.size


def test_points_that_the_rule_would_not_choose_leave_the_ceiling_where_it_was(prior):
    X, y = table(np.random.default_rng(9))
    optimizer = prior.optimizer(X)
    certified_run(optimizer, X, y, 3)
    before = optimizer.certificate().regret + optimizer.best().value
    worst = int(np.argmin(y))
    optimizer.tell({"a": X[worst, 0], "b": X[worst, 1]}, y[worst])
    assert optimizer.model.trace.rows == (0, 1, 2)
    assert optimizer.certificate().regret + optimizer.best().value == pytest.approx(before)
    stray = prior.optimizer(X)
    stray.tell({"a": X[worst, 0], "b": X[worst, 1]}, y[worst])
    assert "the first point is not" in stray.certificate().reason


@pytest.mark.parametrize("step", [1, 5])
def test_in_whatever_order_values_come_the_ceiling_is_that_of_the_replayed_rule(prior, step):
    """The rule asks for values in its own order; it needs them known, and no more."""
    X, y = table(np.random.default_rng(9))
    in_turn, mixed = prior.optimizer(X), prior.optimizer(X)
    certified_run(in_turn, X, y, ROWS)
    order = np.random.default_rng(0).permutation(ROWS)
    for start in range(0, ROWS, step):
        rows = order[start : start + step]
        mixed.tell([{"a": X[i, 0], "b": X[i, 1]} for i in rows], y[rows])
    found, expected = mixed.model.trace, in_turn.model.trace
    assert sorted(found.rows) == list(expected.rows)
    assert found.rows != expected.rows
    assert_allclose(found.best, expected.best)
    assert_allclose(found.shapes, expected.shapes, rtol=1e-8)


def test_batches_in_any_order_go_on_improving_the_certificate(prior):
    rng, found = np.random.default_rng(3), []
    for seed in range(6):
        X, y = table(np.random.default_rng(20 + seed))
        optimizer, regrets = prior.optimizer(X), []
        for _ in range(4):
            batch = [optimizer.ask() for _ in range(3)]
            for x in rng.permutation(batch):
                near = np.abs(X - [x["a"], x["b"]]).sum(axis=1).argmin()
                optimizer.tell(x, y[near])
            regrets.append(optimizer.certificate().regret)
        if optimizer.alarm is None:
            found.append(regrets[-1] / regrets[0])
    assert np.median(found) < 0.2


def test_what_follows_an_alarm_does_not_count_in_a_replay(prior):
    X, y = table(np.random.default_rng(6))
    assert 0 < replay_table(prior, X, y).score < np.inf
    far = y + 1e3 * prior.model.scale  # the first value already is that of no past task
    optimizer = prior.optimizer(X)
    x = optimizer.ask()
    optimizer.tell(x, far[int(np.argmin(np.abs(X - [x["a"], x["b"]]).sum(axis=1)))])
    assert optimizer.certificate().reason.startswith("alarm after 1 values")
    assert replay_table(prior, X, far).score == 0


# Negative controls


def test_a_model_of_nonsense_still_covers(untested):
    """Mean and kernel have nothing to do with the tasks; the scores do not mind."""
    rng = np.random.default_rng(7)
    gp = untested.task_gp
    nonsense = replace(
        untested,
        task_gp=replace(
            gp, mu=5 * rng.standard_normal(gp.mu.shape), eta=rng.exponential(size=gp.eta.shape)
        ),
        beside=replace(untested.beside, cold_weight=0.0),  # nobody notices
    )
    groups = 40
    found = [replay_table(nonsense, *table(rng, 10)) for _ in range(5 * groups)]
    assert sum(replay.ended for replay in found) < groups
    calibrating, new = found[: 4 * groups], found[4 * groups :]
    factors = [scores_of(calibrating[4 * g : 4 * g + 4]).factor(0.2) for g in range(groups)]
    covered = sum(replay.score <= q for replay, q in zip(new, factors, strict=True))
    assert groups > covered >= binom.ppf(1e-3, groups, 0.8)


def scores_of(replays) -> RegretScores:
    everything = np.sort([replay.score for replay in replays])
    lasting = np.sort([replay.score for replay in replays if not replay.ended])
    return RegretScores(everything, lasting, "exact", 50, 10)


def test_tasks_that_last_are_vouched_for_by_tasks_that_lasted():
    """An alarm hides bad scores. Without the second factor, 1 of 4 that last would be wrong."""
    rng = np.random.default_rng(0)
    wrong, lasted, delta = 0, 0, 0.2
    for _ in range(400):
        scores, ended = rng.exponential(size=(2, 31))[0], rng.uniform(size=31) < 0.4
        replays = [TaskScore(0.0 if e else s, bool(e)) for s, e in zip(scores, ended, strict=True)]
        *past, (score, end, *_) = replays
        if not end:
            lasted += 1
            wrong += score > scores_of(past).factor(delta)
    assert wrong <= binom.ppf(1 - 1e-3, lasted, delta)
    assert scores_of([TaskScore(0.0, True)] * 9 + [TaskScore(1.0, False)] * 3).factor(0.2) == np.inf
    assert scores_of([TaskScore(0.0, True)] * 9 + [TaskScore(1.0, False)] * 4).factor(0.2) == 1


def test_tasks_from_another_urn_are_not_covered(prior):
    rng, covered, runs = np.random.default_rng(12), 0, 30
    factor = prior.certificate.table.factor(0.2)
    for _ in range(runs):
        X, y = table(rng)
        needle = int(rng.integers(len(y)))
        y[needle] = y.max() + 5.0
        covered += replay_table(prior, X, y).score <= factor
    assert covered < binom.ppf(1e-3, runs, 0.8)


# How it is learned and kept


def test_exact_calibration_leaves_half_of_the_tasks_out_of_learning():
    history = simulate(np.random.default_rng(3), m=12, n=12)
    done = []
    prior = learn_prior(history, SPACE, certify="exact", progress=lambda *n: done.append(n))
    assert len(prior.info.tasks) == 6
    assert (prior.certificate.table.basis, prior.certificate.table.tasks) == ("exact", 6)
    assert done == [(i + 1, 12) for i in range(12)]
    with pytest.raises(InputError, match="at least 4"):
        learn_prior(history[:3], SPACE, certify="exact")
    with pytest.raises(InputError, match="certify is 'no'"):
        learn_prior(history, SPACE, certify="no")


def test_workers_change_the_time_and_nothing_else():
    history = simulate(np.random.default_rng(3), m=6, n=10)
    done = []
    one = learn_prior(history, SPACE).certificate
    two = learn_prior(history, SPACE, workers=2, progress=lambda *n: done.append(n)).certificate
    assert (one.table.scores == two.table.scores).all()
    assert (one.space.scores == two.space.scores).all()
    assert done == [(i + 1, 12) for i in range(12)]
    with pytest.raises(InputError, match="workers is 0"):
        learn_prior(history, SPACE, workers=0)


# Stopping


def test_a_run_stops_at_a_share_of_the_spread_and_says_why(prior):
    X, y = table(np.random.default_rng(5))
    rows = [{"a": a, "b": b} for a, b in X.tolist()]
    tuner = Tuner(prior, candidates=rows, stop_at="5%", budget=ROWS)
    for x in tuner:
        tuner.tell(x, float(y[rows.index(x)]))
    assert len(tuner.trials.observed) < ROWS
    assert tuner.stop_reason.startswith("no candidate is better by more than")
    assert "wrong in about 1 of 5 searches that stop" in tuner.stop_reason
    assert "past searches that would have stopped so were wrong" in tuner.stop_reason
    used = len(tuner.trials.observed)
    optimizer = prior.optimizer(X, stop_at="5%")
    while not optimizer.done:
        x = optimizer.ask()
        optimizer.tell(x, float(y[rows.index(x)]))
    assert optimizer.t == used
    assert optimizer.certificate().reached("5%") == optimizer.stop_reason
    assert not optimizer.certificate().reached(1e-9)
    with pytest.raises(InputError, match="stop_at needs a certificate"):
        Tuner(prior, candidates=rows, stop_at="5%", delta=0.001)


def test_a_run_on_a_space_stops_by_the_same_rule_and_says_that_tasks_were_emulated(prior):
    f = draw_task(np.random.default_rng(21))
    tuner = Tuner(prior, stop_at="10%", budget=50)
    for x in tuner:
        tuner.tell(x, float(f(np.array([[x["a"], x["b"]]]))[0]))
    assert len(tuner.trials.observed) < 50
    assert tuner.stop_reason.startswith("no configuration is better by more than")
    assert "wrong in about 1 of 5 searches that stop" in tuner.stop_reason
    assert "emulated; " in tuner.stop_reason


def test_few_of_the_stops_on_a_space_are_wrong(prior):
    rng, stopped, wrong = np.random.default_rng(22), 0, 0
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    for _ in range(12):
        f = draw_task(rng)
        optimizer = prior.optimizer(stop_at="10%")
        while optimizer.t < 20 and not optimizer.done:
            x = optimizer.ask()
            optimizer.tell(x, float(f(np.array([[x["a"], x["b"]]]))[0]))
        stopped += optimizer.done
        regret = f(grid).max() - optimizer.best().value
        wrong += optimizer.done and regret > 0.1 * prior.certificate.spread
    assert stopped >= 6
    assert wrong <= binom.ppf(1 - 1e-3, stopped, 0.2)


# A certificate that the values disprove


def test_a_value_above_the_ceiling_is_an_alarm_and_never_a_certificate_of_zero(prior):
    X, y = table(np.random.default_rng(5))
    optimizer = prior.optimizer(X)
    for _ in range(3):
        x = optimizer.ask()
        optimizer.tell(x, float(y[_row(X, x)]))
    before = optimizer.certificate()
    assert 0 < before.regret < np.inf
    assert optimizer.alarm is None
    x = optimizer.ask()
    optimizer.tell(x, optimizer.best().value + 1.01 * before.regret + 1e-3)
    assert optimizer.alarm is not None
    assert "better than past tasks allow" in optimizer.alarm.reason
    certificate = optimizer.certificate()
    assert certificate.regret == np.inf
    assert "disproved" in str(certificate)
    assert not certificate.reached("5%")


def _row(X, x):
    return int(np.argmin(np.abs(X - np.array([x["a"], x["b"]])).sum(axis=1)))


def test_foreign_tasks_ring_and_tasks_of_the_same_urn_hardly_do(prior):
    rung = {}
    for foreign in (False, True):
        rng, rung[foreign] = np.random.default_rng(3), 0
        for _ in range(25):
            X, y = table(rng)
            if foreign:  # a needle where past tasks have none
                y[rng.integers(len(y))] = y.max() + 5.0
            optimizer = prior.optimizer(X)
            for _ in range(len(y)):
                x = optimizer.ask()
                optimizer.tell(x, float(y[_row(X, x)]))
            rung[foreign] += optimizer.alarm is not None
    assert rung[False] <= binom.ppf(1 - 1e-3, 25, 0.2)
    assert rung[True] >= 15


# Stopping


def test_the_rule_stops_by_its_definition():
    regrets = np.array([[4.0, 1.0, 0.0], [4.0, 3.0, np.nan]])
    shapes = np.array([[2.0, 1.0, 0.5], [2.0, 0.1, np.nan]])
    assert stops(regrets, shapes, 1.0, 1.0) == (2, 1)
    assert stops(regrets, shapes, 3.0, 1.0) == (1, 1)
    assert stops(regrets, shapes, 20.0, 1.0) == (0, 0)
    shapes[1] = [9.0, 2.0, np.nan]  # the wrong ones are the last to be sure
    many = Replayed(np.repeat(regrets, 12, axis=0)[:16], np.repeat(shapes, 12, axis=0)[:16])
    factor, count, wrong = many.factor(1.0, 0.5)
    assert (count, wrong) == stops(many.regrets, many.shapes, factor, 1.0)
    assert binom.cdf(wrong, count, 0.5) <= 0.2
    assert many.factor(1.0, 0.01) == (np.inf, 0, 0)


def test_few_of_the_searches_that_stop_are_wrong_and_more_stop_with_a_larger_tolerance():
    """Hard tasks, on which the shape says little: stops are rare, and right when they happen."""
    rng, delta, wrong, stopped = np.random.default_rng(0), 0.2, 0, 0

    def draw(m):
        found = rng.uniform(size=(m, 1)) < 0.5  # half of the searches are stuck far from the best
        regrets = np.where(found, 0.2 * 0.8 ** np.arange(20), 0.3 + 0 * np.arange(20))
        shapes = regrets * rng.uniform(0.5, 2, (m, 20)) + 0.02
        return regrets, shapes

    for _ in range(150):
        past, (regrets, shapes) = Replayed(*draw(30)), draw(1)
        factor, _, _ = past.factor(0.05, delta)
        if np.isfinite(factor):
            count, bad = stops(regrets, shapes, factor, 0.05)
            stopped, wrong = stopped + count, wrong + bad
    assert stopped > 20
    assert wrong <= binom.ppf(1 - 1e-3, stopped, delta)


def test_a_tolerance_that_nobody_can_vouch_for_is_named_at_once(prior, caplog):
    X, _ = table(np.random.default_rng(5))
    rows = [{"a": a, "b": b} for a, b in X.tolist()]
    with caplog.at_level("WARNING", logger="metakel"):
        Tuner(prior, stop_at=1e-9)  # on the space, of which nobody tries every point
    assert "no search could stop there" in caplog.text
    assert "of the usual spread" in caplog.text
    caplog.clear()
    Tuner(prior, candidates=rows, stop_at="5%")
    assert not caplog.text


# Limits of the output


def accuracies(rng, name):
    rows = {"task": [], "a": [], "b": [], name: []}
    for s in range(6):
        X = rng.uniform(-1, 1, (12, 2))
        y = 1 / (1 + np.exp(-draw_task(rng)(X)))
        for (a, b), value in zip(X, y, strict=True):
            for key, v in zip(rows, (s, a, b, value), strict=True):
                rows[key].append(v)
    return rows


def test_limits_are_guessed_aloud_and_cap_everything_shown():
    rows = accuracies(np.random.default_rng(0), "valid_accuracy")
    history = History.from_frame(rows, task="task", output="valid_accuracy")
    prior = learn_prior(history)
    assert prior.info.output_range == (0, 1)
    assert any("between 0 and 1" in note for note in prior.info.notes)
    X = np.random.default_rng(1).uniform(-0.9, 0.9, (12, 2))
    optimizer = prior.optimizer(X)
    optimizer.tell(optimizer.ask(), 0.99)
    assert optimizer.certificate().regret <= 0.01 + 1e-12
    assert decode(Prior, plain(encode(prior)), "prior").info.output_range == (0, 1)
    wide = learn_prior(history, output_range=(-np.inf, 2), certify="none")
    assert decode(Prior, plain(encode(wide)), "prior").info.output_range == (-np.inf, 2)


def test_a_limit_of_the_output_is_about_the_best_value_also_after_a_batch():
    rows = accuracies(np.random.default_rng(0), "valid_accuracy")
    prior = learn_prior(History.from_frame(rows, task="task", output="valid_accuracy"))
    optimizer = prior.optimizer()
    batch = optimizer.ask_batch(3)
    values = np.clip(optimizer.predict(batch)[0] - [0.05, 0, 0], 0, 0.99)
    for x, value in zip(batch, values, strict=True):
        optimizer.tell(x, value)
    best, found = int(np.argmax(values)), optimizer.certificate()
    assert best > 0
    assert found.regret <= 1 - values[best] + 1e-12
    assert found.range_end == 1
    assert (found.x, found.lower) == (batch[best], values[best])


def test_limits_that_the_history_exceeds_are_refused():
    rows = accuracies(np.random.default_rng(0), "loss")
    history = History.from_frame(rows, task="task", output="loss", minimize=False)
    assert learn_prior(history, certify="none").info.output_range is None
    with pytest.raises(InputError, match="expected a range around all of them"):
        learn_prior(history, output_range=(0.0, 0.5))
