"""Sums of parameters that every suggestion keeps: blends, budgets, and how they are found."""

from __future__ import annotations

import numpy as np
import pytest

import metakel as mk
from metakel.errors import InputError
from metakel.search import SearchSpace
from metakel.space import Categorical, Condition, Fixed, Float, Integer, Space, Sum

BLEND = tuple(Float(name, 0, 100) for name in "ABC")


@pytest.mark.parametrize(
    ("text", "terms", "relation", "total", "shown"),
    [
        ("A+B+C = 100", {"A": 1, "B": 1, "C": 1}, "=", 100, "A + B + C = 100"),
        ("2 A - 0.5*B <= 7,5", {"A": 2, "B": -0.5}, "<=", 7.5, "2 A - 0.5 B <= 7.5"),
        ("A + B >= 10 %", {"A": -1, "B": -1}, "<=", -10, "A + B >= 10"),
        ("A - C ≥ 0", {"A": -1, "C": 1}, "<=", 0, "-A + C <= 0"),
    ],
)
def test_a_sum_is_read_as_people_write_it(text, terms, relation, total, shown):
    found = Sum.of(text, ("A", "B", "C"))
    assert (dict(found.terms), found.relation, found.total) == (terms, relation, total)
    assert str(found) == shown
    assert Sum.of(str(found), ("A", "B", "C")) == found


def test_names_may_hold_anything():
    names = ("Water (%)", "Water (%) + salt", "C-1")
    found = Sum.of("Water (%) + salt + 2 Water (%) - C-1 = 1", names)
    assert dict(found.terms) == {"Water (%) + salt": 1, "Water (%)": 2, "C-1": -1}


@pytest.mark.parametrize("text", ["A + D = 1", "A B = 3", "A + B", "= 5", "A + B = much"])
def test_what_is_no_sum_is_refused(text):
    with pytest.raises(InputError, match=r"expected names, as in"):
        Space(BLEND, sums=(text,))


def test_sums_are_of_numbers_that_are_always_there():
    kind = Categorical("kind", ("x", "y"))
    with pytest.raises(InputError, match="expected numbers"):
        Space((*BLEND, kind), sums=("A + kind = 1",))
    with pytest.raises(InputError, match="always there"):
        Space((*BLEND, kind), (Condition("A", "kind", ("x",)),), ("A + B = 1",))
    with pytest.raises(InputError, match=r"no configuration keeps A \+ B \+ C = 301"):
        Space(BLEND, sums=("A + B + C = 301",)).sample(np.random.default_rng(0), 1)


def totals(space, X):
    return np.array([[row[name] for name in "ABC"] for row in space.decode(X)])


@pytest.mark.parametrize(
    "parameters",
    [
        BLEND,
        tuple(Float(n, 0, 100, digits=1) for n in "ABC"),
        tuple(Integer(n, 0, 100) for n in "ABC"),
        (Float("A", 0, 100, digits=1), Float("B", 10, 60), Float("C", 0.1, 80, log=True)),
    ],
)
def test_what_is_drawn_and_what_is_near_keeps_the_sums(parameters):
    space, rng = Space(parameters, sums=("A + B + C = 100", "A <= 70", "2 B + A >= 20")), None
    rng = np.random.default_rng(0)
    drawn = space.sample(rng, 200)
    near = space.nearest(rng.uniform(-1.2, 1.2, (200, 3)))
    for X in (drawn, near):
        V = totals(space, X)
        np.testing.assert_allclose(V.sum(axis=1), 100, atol=1e-6)
        assert (V[:, 0] <= 70 + 1e-6).all()
        assert (2 * V[:, 1] + V[:, 0] >= 20 - 1e-6).all()
    np.testing.assert_allclose(space.nearest(drawn), drawn, atol=1e-6)  # a possible point stays
    assert np.ptp(totals(space, drawn)[:, 0]) > 50


def test_points_are_drawn_from_all_of_a_blend():
    """Uniformly on a triangle the mean of each part is a third, the variance 1/18."""
    V = totals(space := Space(BLEND, sums=("A + B + C = 100",)), space.sample(_rng(), 4000)) / 100
    np.testing.assert_allclose(V.mean(axis=0), 1 / 3, atol=0.02)
    np.testing.assert_allclose(V.var(axis=0), 1 / 18, rtol=0.1)


def _rng():
    return np.random.default_rng(1)


def test_a_held_parameter_counts():
    space = Space(BLEND, sums=("A + B + C = 100",))
    V = totals(space, SearchSpace(space, space, {"A": 30.0}).sample(_rng(), 50))
    np.testing.assert_allclose(V[:, 0], 30)
    np.testing.assert_allclose(V.sum(axis=1), 100)
    one = Space((Fixed("A", 30.0), *BLEND[1:]), sums=("A + B + C = 100",))
    np.testing.assert_allclose(totals(one, one.sample(_rng(), 50)).sum(axis=1), 100)
    odd = Space(BLEND, sums=("A = 20",))
    with pytest.raises(InputError, match="cannot be kept with A = 30"):
        SearchSpace(odd, odd, {"A": 30.0}).sample(_rng(), 1)


def test_sums_are_stored_and_carried():
    space = Space(BLEND, sums=("A + B + C = 100",))
    assert Space.from_dict(space.to_dict()) == space
    assert "always A + B + C = 100" in str(space)
    assert str(space.renamed({"A": "water"}).sums[0]) == "water + B + C = 100"
    narrow = space.restricted({"A": (10, 20)}, sums=["B <= 30"])
    assert [str(s) for s in narrow.sums] == ["A + B + C = 100", "B <= 30"]
    text = 'sums = ["A + B = 1"]\n' + "".join(
        f'[{n}]\ntype = "float"\nlow = 0\nhigh = 1\n' for n in "AB"
    )
    assert [str(s) for s in Space.from_toml(text).sums] == ["A + B = 1"]


def test_the_search_climbs_within_the_sums():
    """The best point of a plane is found to the digits of a climb, also on a face."""
    space = Space(BLEND, sums=("A + B + C = 100", "B <= 30"))
    from metakel.search import SearchSpace

    domain, best = SearchSpace(space, space), np.array([0.5, 0.4, 0.3])

    def values(X):
        return -(((X + 1) / 2 - best) ** 2).sum(axis=1)

    def gradient(X):
        return values(X), best - (X + 1) / 2

    x, _ = domain.maximize(values, _rng(), gradient=gradient)
    found = domain.decode(x)
    # The projection of (50, 40, 30): 6.67 off each; then B at 30 and 3.33 on each of the others.
    assert [found[n] for n in "ABC"] == pytest.approx([45.0, 30.0, 25.0], abs=0.02)
    assert sum(found.values()) == pytest.approx(100)
    assert domain.contains(x[None]).all()


def blends(rows=60, tasks=4, digits=None):
    rng = np.random.default_rng(0)
    table: dict[str, list] = {n: [] for n in ("batch", "A", "B", "C", "T", "score")}
    for i in range(rows):
        part = rng.dirichlet([2, 2, 2]) * 100
        part = part if digits is None else np.round(part, digits)
        t = rng.uniform(20, 80)
        score = -((part[0] - 40) ** 2 + (part[1] - 35) ** 2) / 400 - (t - 50) ** 2 / 900
        cells = (f"b{i % tasks}", *part.tolist(), t, score + 0.01 * rng.normal())
        for name, cell in zip(table, cells, strict=True):
            table[name].append(cell)
    return table


@pytest.mark.parametrize("digits", [None, 1])
def test_a_blend_is_found_said_and_kept(digits):
    """With rounded cells the rows sum to 99.9, 100 and 100.1."""
    table = blends(digits=digits)
    history = mk.History.from_frame(table, task="batch", output="score")
    assert [str(s) for s in history.space.sums] == ["A + B + C = 100"]
    assert "A + B + C = 100 in all rows" in str(history.report)
    prior = mk.learn_prior(history, certify="none")
    optimizer = prior.optimizer()
    for _ in range(4):
        x = optimizer.ask()
        assert x["A"] + x["B"] + x["C"] == pytest.approx(100, abs=1e-6)
        optimizer.tell(x, -abs(x["A"] - 40) / 20)
    for x in prior.optimizer(fixed={"A": 20.0}).ask_batch(2):
        assert x["A"] == 20
        assert x["B"] + x["C"] == pytest.approx(80, abs=1e-6)
    free = mk.History.from_frame(table, task="batch", output="score", sums=[])
    assert free.space.sums == ()
    said = mk.History.from_frame(table, task="batch", output="score", sums=["A + B <= 90"])
    assert [str(s) for s in said.space.sums] == ["A + B <= 90"]


def test_what_was_done_may_break_a_sum():
    history = mk.History.from_frame(blends(), task="batch", output="score")
    optimizer = mk.learn_prior(history, certify="none").optimizer()
    optimizer.tell({"A": 50.0, "B": 30.0, "C": 30.0, "T": 50.0}, -0.5)
    x = optimizer.ask()
    assert x["A"] + x["B"] + x["C"] == pytest.approx(100)


def test_no_sum_is_found_by_chance():
    rng = np.random.default_rng(0)
    n = 40
    pairs = rng.integers(0, 2, n)  # two settings that were always changed together
    table = {
        "task": [f"t{i % 4}" for i in range(n)],
        "a": rng.uniform(size=n),
        "b": rng.uniform(size=n),
        "batch_size": np.array([32, 64])[pairs],
        "rate": np.array([0.1, 0.2])[pairs],
        "y": rng.uniform(size=n),
    }
    assert mk.History.from_frame(table, task="task", output="y").space.sums == ()
    table["twice"] = 2 * table["a"] + 1
    found = mk.History.from_frame(table, task="task", output="y").space.sums
    assert [str(s) for s in found] == ["2 a - twice = -1"]


def test_a_blend_that_was_made_otherwise_is_named():
    parts = tuple(Float(name, 0, 100) for name in "abc")
    space = Space(parts).summing(["a + b + c = 100", "a + b <= 60"])
    assert space.unlike({"a": 20, "b": 30, "c": 50}) == []
    assert space.unlike({"a": 33.3, "b": 16.6, "c": 50}) == []  # rounded
    assert space.unlike({"a": 20, "b": 30, "c": 49}) == ["the sum is 99, beside a + b + c = 100"]
    assert space.unlike({"a": 40, "b": 30, "c": 30}) == ["the sum is 70, beside a + b <= 60"]
