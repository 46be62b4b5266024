"""Domains: what belongs to them, and that the argmax is one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from gpucb import gpucb
from metakel._files import decode, encode
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, legendre
from metakel.optimize import Score
from metakel.search import Domain, SearchSpace, box, candidates, grid
from metakel.space import Categorical, Float, Integer, Space

DOMAINS = {
    "grid": grid([(-1, 1), (0, 2)], [5, 4]),
    "points": candidates([[0.1, 0.2], [0.3, -0.4], [-1.0, 1.0]], repeat=False),
    "box": box([(-1, 1), (0, 2)]),
}


def bowl(Z):
    return -((Z - np.array([0.3, 1.1])) ** 2).sum(axis=1)


def bowl_and_slope(Z):
    return bowl(Z), -2 * (Z - np.array([0.3, 1.1]))


@pytest.mark.parametrize("name", DOMAINS)
def test_samples_and_candidates_lie_in_the_domain(name, rng):
    domain = DOMAINS[name]
    assert domain.contains(domain.sample(rng, 50)).all()
    assert domain.contains(domain.start_points(rng).X).all()
    assert not domain.contains([[0.123, 5.0]]).any()


@pytest.mark.parametrize("name", DOMAINS)
def test_json_brings_a_domain_back_exactly(name):
    domain = DOMAINS[name]
    again = decode(Domain, json.loads(json.dumps(encode(domain))), "domain")
    assert repr(again) == repr(domain)
    assert again.repeat == domain.repeat
    first, second = (d.start_points(np.random.default_rng(3)).X for d in (domain, again))
    assert_array_equal(first, second)


def test_a_grid_holds_all_combinations_with_both_ends():
    X = grid([(-1, 1), (0, 3)], [3, 2]).X
    assert_array_equal(X, [[-1, 0], [-1, 3], [0, 0], [0, 3], [1, 0], [1, 3]])


def test_equal_points_are_kept_once_in_the_order_given():
    assert_array_equal(candidates([2.0, 1.0, 2.0, -0.0, 0.0]).X[:, 0], [2, 1, 0])


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=8))
def test_a_finite_argmax_is_among_all_maximizers_and_reaches_every_one(heights):
    values = np.array(heights, dtype=float)
    domain = candidates(np.arange(len(values)))
    rng = np.random.default_rng(0)
    chosen = {int(domain.maximize(lambda Z: values, rng)[0][0]) for _ in range(200)}
    assert chosen == set(np.flatnonzero(values == values.max()))


def test_a_box_breaks_ties_by_the_generator_too():
    domain, rng = box([(-1, 1)]), np.random.default_rng(0)
    chosen = [domain.maximize(lambda Z: Z[:, 0] ** 2, rng)[0][0] for _ in range(60)]
    assert {-1.0, 1.0} == set(chosen)


def test_points_that_score_minus_infinity_are_chosen_where_nothing_else_is_left(rng):
    domain = candidates([[0.0], [1.0], [2.0]], repeat=False)
    values = np.array([-np.inf, 1.0, -np.inf])
    found, _ = domain.maximizers(Score(lambda Z: values), domain.start_points(rng), domain.X[1:2])
    assert_array_equal(found, domain.X[[0, 2]])


def test_excluded_points_are_not_chosen(rng):
    domain = candidates(np.arange(3))
    x, value = domain.maximize(lambda Z: Z[:, 0], rng, exclude=np.array([[2.0]]))
    assert (x[0], value) == (1.0, 1.0)
    with pytest.raises(InputError, match="all 3 points"):
        domain.maximize(lambda Z: Z[:, 0], rng, exclude=domain.X)
    square = box([(-1, 1), (0, 2)])
    best, _ = square.maximize(bowl, rng, gradient=bowl_and_slope)
    second, _ = square.maximize(bowl, rng, gradient=bowl_and_slope, exclude=best[None])
    assert abs(second - best).max() > 1e-6


@pytest.mark.parametrize("gradient", [True, False])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_a_box_beats_its_starts_and_a_large_random_search(gradient, seed):
    rng = np.random.default_rng(seed)
    waves, phases = rng.uniform(-8, 8, (6, 2)), rng.uniform(0, 6, 6)

    def function(Z):
        return np.cos(Z @ waves.T + phases).sum(axis=1)

    def with_slope(Z):
        return function(Z), -np.sin(Z @ waves.T + phases) @ waves

    domain = box([(-1, 1), (-1, 1)])
    candidates = domain.start_points(rng)
    x, value = domain.maximize(
        function, rng, gradient=with_slope if gradient else None, start=candidates
    )
    reference = function(rng.uniform(-1, 1, (20_000, 2)))
    assert value >= function(candidates.X).max()
    assert value >= reference.max() - 1e-3 * np.ptp(reference)
    assert_allclose(function(x[None])[0], value)


def test_a_maximum_in_a_corner_is_found_exactly(rng):
    x, value = box([(-1, 2)] * 3).maximize(
        lambda Z: Z.sum(axis=1), rng, gradient=lambda Z: (Z.sum(axis=1), np.ones_like(Z))
    )
    assert_array_equal(x, [2, 2, 2])
    assert value == 6


def test_points_are_read_as_one_point_or_many():
    flat, square = box([(0, 1)]), box([(0, 1)] * 2)
    assert flat.encode(0.5, "tell").shape == (1, 1)
    assert flat.encode([0.1, 0.2, 0.3], "tell").shape == (3, 1)
    assert square.encode([0.1, 0.2], "tell").shape == (1, 2)
    with pytest.raises(ShapeError, match="3 inputs; the domain has 2"):
        square.encode([0.1, 0.2, 0.3], "tell")
    with pytest.raises(InputError, match="not in the domain"):
        square.encode([0.1, 1.2], "tell")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: box([(1, 0)]), InputError),
        (lambda: box([0, 1]), ShapeError),
        (lambda: box([(0, np.inf)]), InputError),
        (lambda: grid([(0, 1)], 1), InputError),
        (lambda: grid([(0, 1)], [3, 3]), ShapeError),
        (lambda: grid([(0, 1)], 5.0), InputError),
        (lambda: grid([(0, 1)], [5.0]), InputError),
        (lambda: grid([(0, 1)], "5"), InputError),
        (lambda: grid([(0, 1)], None), InputError),
        (lambda: candidates(np.zeros((0, 2))), InputError),
        (lambda: candidates([[np.nan]]), InputError),
        (lambda: decode(Domain, {"kind": "ball"}, "domain"), InputError),
    ],
)
def test_what_is_no_domain_is_refused(make, error):
    with pytest.raises(error):
        make()


@pytest.mark.parametrize("scale", [1.0, 1e-5, 3e6 / 7])
def test_a_point_that_was_float32_is_the_point_of_the_grid_it_came_from(scale):
    domain = grid([(-scale, scale), (0, 3 * scale)], [51, 7])
    single = domain.X.astype(np.float32)
    assert (single != domain.X).any()
    assert_array_equal(domain.index(single.astype(float)), np.arange(len(domain)))
    assert_array_equal(domain.encode(single, "tell"), domain.X)


def test_points_between_those_of_a_fine_grid_are_none_of_them():
    # Neighbours are closer than what float32 keeps: only an almost exact point is one of them.
    fine = candidates(1 + 2e-7 * np.arange(50))
    assert fine.contains(fine.X * (1 + 1e-13)).all()
    assert not fine.contains(fine.X + 0.7e-7).any()
    assert not grid([(-1, 1)], 51).contains(grid([(-1, 1)], 51).X + 1e-5).any()
    near = candidates([0.5, 0.5 + 1e-9, 0.9])
    assert near.index(np.array([[0.5 + 1e-9 + 1e-13]])).tolist() == [1]  # the nearest


def test_a_box_takes_its_own_bounds_from_float32_and_puts_them_right():
    domain = box([(-0.7, 0.1), (1e6, 1e6 + 1)])
    told = np.array([[-0.7, 1e6], [0.1, 1e6 + 1]], dtype=np.float32).astype(float)
    assert told[1, 0] > 0.1
    settled = domain.encode(told, "tell")
    assert_allclose(settled, domain.bounds.T, rtol=1e-7)
    assert ((settled >= domain.bounds[:, 0]) & (settled <= domain.bounds[:, 1])).all()
    for outside in ([0.1 + 1e-5, 1e6], [0.0, 1e6 - 0.01], [0.0, 1e6 + 1.01]):
        assert not domain.contains([outside])[0]


@pytest.mark.parametrize("domain", [grid([(-1, 1)], 51), box([(-0.7, 0.1)])], ids=["grid", "box"])
def test_an_optimizer_told_in_float32_counts_the_point_it_asked_for(domain):
    kernel = KernelSum.uniform(legendre(3, scaling="l2"))
    optimizer = gpucb(kernel, domain, rng=np.random.default_rng(0), noise_std=0.1, norm_bound=1)
    for x in optimizer.ask_batch(6):
        optimizer.tell(x.astype(np.float32), np.float32(x[0]))
    assert not len(optimizer.pending)
    assert domain.contains(optimizer.X).all()
    assert np.isfinite(optimizer.best().value)


NUMBERS = Space((Float("rate", 1e-4, 1.0, log=True), Integer("depth", 1, 12), Float("mix", 0, 1)))


def test_a_narrower_range_is_searched_in_the_coordinates_of_the_model():
    """A score sees the model's own points, within the narrower ends, and finds the best of them."""
    narrow = NUMBERS.restricted({"rate": (1e-3, 1e-1), "depth": (3, 6)})
    domain, seen = SearchSpace(narrow, NUMBERS), []
    goal = NUMBERS.encode([{"rate": 0.5, "depth": 5, "mix": 0.25}])  # its rate is out of reach

    def values(X):
        seen.append(X)
        return -((X - goal) ** 2).sum(axis=1)

    def slopes(X):
        return values(X), -2 * (X - goal)

    for gradient in (slopes, None):
        start = domain.start_points(np.random.default_rng(0))
        found, _ = domain.maximizers(Score(values, gradient), start)
        row = domain.decode(found[0])
        assert row["depth"] == 5
        assert_allclose([row["rate"], row["mix"]], [0.1, 0.25], rtol=1e-3)
    points = np.concatenate(seen)
    assert points[:, 0].max() <= NUMBERS.encode([{"rate": 0.1, "depth": 5, "mix": 0}])[0, 0] + 1e-9


def test_a_choice_that_is_excluded_is_never_drawn():
    space = Space((Categorical("kind", ("a", "b", "c")), Float("rate", 0, 1)))
    domain = SearchSpace(space.restricted(exclude={"kind": ["b"]}), space)
    drawn = [domain.decode(x)["kind"] for x in domain.sample(np.random.default_rng(0), 50)]
    assert set(drawn) == {"a", "c"}
    assert not domain.contains(space.encode([{"kind": "b", "rate": 0.5}]))[0]
