"""Ask and tell with named parameters and with tables; saving; explaining."""

from __future__ import annotations

import json

import numpy as np
import pytest
from histories import simulate

from metakel import Prior, learn_prior
from metakel.errors import InputError
from metakel.prior.explain import even_points
from metakel.tasks import History


def table(rng, m=10, n=30):
    rows = {"task": [], "rate": [], "depth": [], "kind": [], "loss": []}
    for s in range(m):
        shift = rng.normal(0, 0.3)
        for _ in range(n):
            rate, depth = 10 ** rng.uniform(-4, 0), int(rng.integers(1, 9))
            kind = str(rng.choice(["u", "v"]))
            rows["task"].append(s)
            rows["rate"].append(float(rate))
            rows["depth"].append(depth)
            rows["kind"].append(kind)
            rows["loss"].append(loss(rate, depth, kind, shift))
    return rows


def loss(rate, depth, kind, shift=0.0):
    return (np.log10(rate) + 2 + shift) ** 2 + 0.05 * (depth - 5) ** 2 + 0.5 * (kind == "u")


@pytest.fixture(scope="module")
def prior():
    rows = table(np.random.default_rng(0))
    return learn_prior(History.from_frame(rows, task="task", output="loss", minimize=True))


def run(optimizer, steps=12):
    for _ in range(steps):
        row = optimizer.ask()
        optimizer.tell(row, loss(**row))
    return optimizer


def test_named_parameters_in_and_out_find_the_minimum(prior):
    optimizer = run(prior.optimizer(rng=np.random.default_rng(0)))
    row, value = optimizer.best
    assert set(row) == {"rate", "depth", "kind"}
    assert type(row["depth"]) is int
    assert row["kind"] == "v"
    assert value == loss(**row) < 0.1
    assert optimizer.t == 12
    mean, sd = optimizer.predict([row])
    assert abs(mean[0] - value) < 0.3 + 2 * sd[0]


def test_the_same_generator_gives_the_same_configurations(prior):
    one, other = (run(prior.optimizer(rng=np.random.default_rng(3)), 5) for _ in range(2))
    assert one._told == other._told


def test_fixed_parameters_stay_fixed_even_outside_the_recorded_range(prior):
    optimizer = prior.optimizer(rng=np.random.default_rng(0), fixed={"depth": 2, "kind": "u"})
    for _ in range(4):
        row = optimizer.ask()
        assert (row["depth"], row["kind"]) == (2, "u")
        optimizer.tell(row, loss(**row))
    with pytest.raises(InputError, match="'depth' is 30"):
        prior.optimizer(rng=np.random.default_rng(0), fixed={"depth": 30})
    wide = prior.optimizer(rng=np.random.default_rng(0), fixed={"depth": 30}, outside=True)
    assert wide.ask()["depth"] == 30


def test_a_table_of_candidates_is_asked_by_row_without_repeats(prior):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table(np.random.default_rng(5), m=1, n=60))
    optimizer = prior.optimizer(frame, outside=True)
    rows = []
    for _ in range(60):
        rows.append(optimizer.ask())
        optimizer.tell(rows[-1], float(frame["loss"][rows[-1]]))
    assert sorted(rows) == list(range(60))
    assert optimizer.best == (int(frame["loss"].argmin()), frame["loss"].min())
    assert rows.index(int(frame["loss"].argmin())) < 10
    with pytest.raises(InputError, match="all 60 candidates"):
        optimizer.ask()


def test_failed_runs_are_counted_and_not_asked_again(prior):
    rows = prior.space.decode(prior.space.sample(np.random.default_rng(0), 5))
    optimizer = prior.optimizer(rows)
    first = optimizer.ask()
    optimizer.tell(first, None)
    second = optimizer.ask()
    optimizer.tell(second, float("nan"))
    assert optimizer.failed == 2
    assert optimizer.t == 0
    assert first != second
    with pytest.raises(InputError, match="no best"):
        _ = optimizer.best


def test_ucb_and_ei_both_decide(prior):
    rows = prior.space.decode(prior.space.sample(np.random.default_rng(1), 300))
    for acquisition in ("ei", "ucb"):
        optimizer = prior.optimizer(rows, acquisition=acquisition)
        for _ in range(10):
            row = optimizer.ask()
            optimizer.tell(row, loss(**rows[row]))
        assert optimizer.best[1] < 0.2


def test_wrong_uses_say_what_to_do(prior):
    with pytest.raises(InputError, match="pass rng="):
        prior.optimizer()
    with pytest.raises(InputError, match="'ei' or 'ucb'"):
        prior.optimizer(rng=np.random.default_rng(0), acquisition="pi")
    with pytest.raises(InputError, match="leave the other rows out"):
        prior.optimizer([{"rate": 0.1, "depth": 2, "kind": "u"}], fixed={"kind": "u"})
    optimizer = prior.optimizer([{"rate": 0.1, "depth": 2, "kind": "u"}])
    with pytest.raises(InputError, match="row 4 does not exist"):
        optimizer.tell(4, 1.0)
    with pytest.raises(InputError, match="empty"):
        prior.optimizer([])


def test_save_and_load_give_the_same_decisions(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    again = Prior.load(tmp_path / "prior.json")
    one, other = (run(p.optimizer(rng=np.random.default_rng(7)), 8) for p in (prior, again))
    assert one._told == other._told
    assert str(again) == str(prior)
    assert again.norm_bound(0.2) == prior.norm_bound(0.2)
    rows = prior.space.decode(prior.space.sample(np.random.default_rng(0), 4))
    for mine, theirs in zip(
        prior.confidence(delta=0.5).interval(rows),
        again.confidence(delta=0.5).interval(rows),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_foreign_and_damaged_files_are_refused(prior, tmp_path):
    file = tmp_path / "prior.json"
    prior.save(file)
    content = json.loads(file.read_text())
    for change, message in (
        ({"version": 99}, "expected"),
        ({"format": "other"}, "expected"),
        ({"shape": {}}, "damaged"),
    ):
        file.write_text(json.dumps({**content, **change}))
        with pytest.raises(InputError, match=message):
            Prior.load(file)
    file.write_text("not json")
    with pytest.raises(InputError, match="not a saved prior"):
        Prior.load(file)
    with pytest.raises(InputError, match="no file"):
        Prior.load(tmp_path / "none.json")


def test_priors_without_shape_or_calibration_are_saved_too(tmp_path):
    for history in (
        History.from_pairs([([[0.0], [1.0]], [2.0, 2.0])]),
        History(simulate(np.random.default_rng(0), m=2).tasks),
    ):
        prior = learn_prior(history)
        prior.save(tmp_path / "prior.json")
        assert str(Prior.load(tmp_path / "prior.json")) == str(prior)


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


def test_the_explanation_can_be_drawn(prior):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = prior.explain().plot()
    assert [ax.get_xlabel() for ax in axes] == ["rate", "depth", "kind"]
    assert axes[0].get_xscale() == "log"
    matplotlib.pyplot.close("all")


def test_even_points_are_even():
    for d in (1, 3, 8):
        points = even_points(1024, d)
        np.testing.assert_allclose(points.mean(axis=0), 0.5, atol=0.01)
        np.testing.assert_allclose(points.var(axis=0), 1 / 12, atol=0.005)
