"""Ask and tell with named parameters and with tables; explaining."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from named_runs import loss, run, table

from metakel import learn_prior
from metakel.data import History
from metakel.errors import InputError, ShapeError


@pytest.fixture(scope="module")
def prior():
    rows = table(np.random.default_rng(0))
    history = History.from_frame(rows, task="task", output="loss", minimize=True)
    return learn_prior(history, certify="none")


def test_named_parameters_in_and_out_find_the_minimum(prior):
    optimizer = run(prior.optimizer(rng=np.random.default_rng(0)))
    row, value = optimizer.best().x, optimizer.best().value
    assert set(row) == {"rate", "depth", "kind"}
    assert type(row["depth"]) is int
    assert row["kind"] == "v"
    assert value == loss(**row) < 0.1
    assert optimizer.t == 12
    mean, sd = optimizer.predict([row])
    assert abs(mean[0] - value) < 0.3 + 2 * sd[0]


def test_fixed_parameters_stay_fixed_even_outside_the_recorded_range(prior):
    optimizer = prior.optimizer(rng=np.random.default_rng(0), fixed={"depth": 2, "kind": "u"})
    for _ in range(4):
        row = optimizer.ask()
        assert (row["depth"], row["kind"]) == (2, "u")
        optimizer.tell(row, loss(**row))
    with pytest.raises(InputError, match="'depth' is 30"):
        prior.optimizer(rng=np.random.default_rng(0), fixed={"depth": 30})
    wide = prior.optimizer(rng=np.random.default_rng(0), fixed={"depth": 30}, extrapolate=True)
    assert wide.ask()["depth"] == 30


def test_a_table_of_candidates_is_asked_without_repeats(prior):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table(np.random.default_rng(5), m=1, n=60))
    optimizer = prior.optimizer(frame)
    losses = {(row["rate"], row["depth"], row["kind"]): row["loss"] for _, row in frame.iterrows()}
    asked = []
    for _ in range(60):
        x = optimizer.ask()
        asked.append((x["rate"], x["depth"], x["kind"]))
        optimizer.tell(x, float(losses[asked[-1]]))
    assert sorted(asked) == sorted(losses)
    best = min(losses, key=losses.get)
    assert tuple(optimizer.best().x.values()) == best
    assert optimizer.best().value == losses[best]
    assert asked.index(best) < 10
    assert optimizer.done
    with pytest.raises(InputError, match="0 points are left"):
        optimizer.ask()


def test_candidates_beyond_the_recorded_ranges_are_taken_and_named(prior):
    rows = prior.space.decode(prior.space.sample(np.random.default_rng(0), 5))
    top = prior.space.columns["rate"].stop - 1
    for place, warned in ((1.05, False), (1.3, True)):
        point = prior.space.encode(rows[:1])
        point[:, top] = place
        beyond = [*rows, {**rows[0], "rate": prior.space.decode(point)[0]["rate"]}]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimizer = prior.optimizer(beyond)
        assert [str(w.message)[:30] for w in said] == ["1 of 6 candidates lie beyond t"] * warned
        if warned:
            assert "rate (1);" in str(said[0].message)
            assert said[0].filename == __file__
        optimizer.tell(beyond[5], 0.1)
        assert (optimizer.best().x, optimizer.best().value) == (beyond[5], 0.1)
        assert optimizer.predict(beyond)[0].shape == (6,)
        prior.optimizer(beyond, extrapolate=True)  # filterwarnings: error
        with pytest.raises(InputError, match=r"'rate' is .*extrapolate=True"):
            prior.optimizer(beyond, extrapolate=False)


def test_a_seed_is_not_a_generator(prior):
    with pytest.raises(InputError, match=r"rng is 7; expected .*default_rng\(7\)"):
        prior.optimizer(rng=7)


def test_wrong_uses_say_what_to_do(prior):
    with pytest.raises(InputError, match="'ei' or 'ts' or 'ucb'"):
        prior.optimizer(rng=np.random.default_rng(0), acquisition="pi")
    with pytest.raises(InputError, match="leave the other rows out"):
        prior.optimizer([{"rate": 0.1, "depth": 2, "kind": "u"}], fixed={"kind": "u"})
    optimizer = prior.optimizer([{"rate": 0.1, "depth": 2, "kind": "u"}])
    with pytest.raises(InputError, match="is not among the 1 candidates"):
        optimizer.tell({"rate": 0.1, "depth": 3, "kind": "u"}, 1.0)
    with pytest.raises(InputError, match="empty"):
        prior.optimizer([])
    with pytest.raises(InputError, match="configuration 0 is a list; expected a dict"):
        prior.optimizer([[0.1, 2, "u"]])


def test_an_unknown_name_is_refused_before_anything_is_asked(prior):
    with pytest.raises(InputError, match="no parameter 'deph'; the space has rate, depth, kind"):
        prior.optimizer(rng=np.random.default_rng(0), fixed={"deph": 1})


@pytest.mark.parametrize("rate", [0.01, 0.003, 0.1 + 0.2])
def test_a_held_number_comes_back_bit_by_bit(prior, rate):
    optimizer = prior.optimizer(rng=np.random.default_rng(0), fixed={"rate": rate, "depth": 2.0})
    for _ in range(3):
        row = optimizer.ask()
        assert row["rate"] == rate
        assert type(row["depth"]) is int
        optimizer.tell(row, loss(**row))


@pytest.mark.parametrize("value", ["0.5", "x", b"1", [1.0, 2.0], {}])
def test_what_is_refused_leaves_no_trace(prior, value):
    rows = prior.space.decode(prior.space.sample(np.random.default_rng(0), 5))
    for make in (
        lambda: prior.optimizer(rng=np.random.default_rng(1)),
        lambda: prior.optimizer(rows),
    ):
        refused, untouched = run_some(make(), 2), run_some(make(), 2)
        with pytest.raises((InputError, ShapeError), match=r"the value is|values"):
            refused.tell(rows[0], value)
        assert repr(refused) == repr(untouched)
        assert refused.ask_batch(2) == untouched.ask_batch(2)


def run_some(optimizer, steps):
    for _ in range(steps):
        x = optimizer.ask()
        optimizer.tell(x, np.float32(loss(**x)))
    return optimizer


def test_a_glance_says_how_far_it_is(prior):
    optimizer = run(prior.optimizer(rng=np.random.default_rng(0)), 2)
    optimizer.tell(optimizer.ask(), failed=True)
    text = repr(optimizer)
    for part in ("minimise over space[rate, depth, kind]", "trust ", "t=2, failed=1", "best "):
        assert part in text
    rows = prior.space.decode(prior.space.sample(np.random.default_rng(0), 5))
    table = prior.optimizer(rows)
    table.tell(table.ask(), 1.0)
    table.ask()
    assert "table of 5 candidates" in repr(table)
    assert "pending=1" in repr(table)
    band = prior.confidence(delta=0.5)
    band.tell(rows[:2], [1.0, 2.0])
    assert repr(band).startswith("ConfidenceBand(t=2, delta=0.5, norm_bound=")


def test_a_table_that_is_changed_later_changes_no_optimizer(prior):
    rows = [prior.optimizer().ask()]
    optimizer = prior.optimizer(rows)
    expected = dict(rows[0])
    rows[0].clear()
    assert optimizer.ask() == expected


def test_the_explanation_names_what_matters(prior):
    explained = prior.explain()
    common, differences = explained.common, explained.differences
    assert common["rate"] > common["kind"] > 0.005
    assert max(differences, key=differences.get) == "rate"
    assert sum(common.values()) == pytest.approx(1, abs=0.1)
    rate = next(curve for curve in explained.curves if curve.name == "rate")
    lowest = rate.values[int(np.argmin(rate.common))]
    assert 1e-3 < lowest < 1e-1  # the loss is smallest near 0.01
    assert "rate" in str(explained)
