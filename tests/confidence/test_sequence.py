"""The mutable object: memory, budget, intersection over time, storage, bad input."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from worlds import GRID, World

from metakel.confidence import ConfidenceSequence
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, legendre, squared_exponential

KERNEL = KernelSum.uniform(legendre(6, scaling="sup"), active=[0, 2, 3])
GRAM = KernelSum.uniform(squared_exponential([0.3, 1.0], d0=1), active=[1])
Z = np.linspace(-0.9, 0.9, 7)[:, None]


def make(kernel=KERNEL, **options):
    return ConfidenceSequence(kernel, **{"noise_std": 0.2, "norm_bound": 2.0, **options})


def data(t, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (t, 1))
    return X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=t)


@pytest.mark.parametrize("kernel", [KERNEL, GRAM])
def test_on_its_points_the_intervals_are_nested(kernel):
    sequence = make(kernel, points=GRID)
    X, y = data(40)
    lower, upper = sequence.interval()
    for i in range(40):
        sequence.tell(X[i : i + 1], y[i : i + 1])
        new_lower, new_upper = sequence.interval()
        assert (new_lower >= lower).all()
        assert (new_upper <= upper).all()
        assert (new_lower <= new_upper).all()
        lower, upper = new_lower, new_upper
    inner = sequence.current.interval(GRID, refine=False)
    assert (lower >= inner[0]).all()
    assert (upper <= inner[1]).all()


def test_remembered_sets_lie_between_the_present_and_the_whole_past():
    X, y = data(50)
    sequences = {r: make(points=GRID, remember=r) for r in (0, 4, 100)}
    for sequence in sequences.values():
        for i in range(50):
            sequence.tell(X[i : i + 1], y[i : i + 1])
    none, some, many = (np.array(sequences[r].interval(GRID, refine=False)) for r in (0, 4, 100))
    exact = np.array(sequences[0].interval())
    sign = np.array([[1], [-1]])
    for wide, narrow in ((none, some), (some, many), (many, exact)):
        assert (sign * narrow >= sign * wide - 1e-12).all()
    assert_allclose(none, sequences[0].current.interval(GRID, refine=False))


def test_smaller_delta_gives_wider_intervals():
    X, y = data(15)
    answers = []
    for delta in (0.01, 0.1, 0.3):
        sequence = make(delta=delta)
        sequence.tell(X, y)
        answers.append(sequence.interval(Z))
    for wide, narrow in pairwise(answers):
        assert (wide[0] <= narrow[0] + 1e-9).all()
        assert (wide[1] >= narrow[1] - 1e-9).all()


def test_the_budget_is_the_sum_of_learning_and_deciding():
    X, y = data(15)
    shared, alone = make(delta=0.1, delta_learning=0.04), make(delta=0.06)
    for sequence in (shared, alone):
        sequence.tell(X, y)
    assert shared.delta == shared.delta_learning + shared.delta_deciding
    assert_allclose(shared.interval(Z), alone.interval(Z))
    assert "learning 0.04, deciding 0.06" in repr(shared)
    with pytest.raises(InputError, match="delta_learning"):
        make(delta=0.1, delta_learning=0.1)


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(1, 29), unique=True), seed=st.integers(0, 100))
def test_how_the_data_is_cut_into_calls_does_not_matter(cuts, seed):
    X, y = data(30, seed)
    whole, pieces = make(), make()
    whole.tell(X, y)
    for part in np.split(np.arange(30), sorted(cuts)):
        pieces.tell(X[part], y[part])
    assert pieces.t == whole.t
    assert_allclose(pieces.current.interval(Z), whole.current.interval(Z), atol=1e-8)
    assert_allclose(pieces.radius, whole.radius, rtol=1e-9)


@pytest.mark.parametrize("t", [10, 100])
def test_five_hundred_steps_equal_one_batch(t):
    X, y = data(500)
    step, batch = make(), make()
    for i in range(0, 500, t):
        step.tell(X[i : i + t], y[i : i + t])
    batch.tell(X, y)
    assert_allclose(step.current.interval(Z), batch.current.interval(Z), atol=1e-8)


@settings(max_examples=15, deadline=None)
@given(
    before=st.lists(st.integers(1, 6), max_size=5),
    after=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    kernel=st.sampled_from([KERNEL, GRAM]),
    on_points=st.booleans(),
    wrong=st.booleans(),
)
def test_a_stored_sequence_goes_on_exactly(before, after, kernel, on_points, wrong):
    X, y = data(80)
    y = y * (100 if wrong else 1)  # rings the alarm
    straight = make(kernel, points=GRID if on_points else None)
    start = 0
    for size in before:
        straight.tell(X[start : start + size], y[start : start + size])
        start += size
    text = json.dumps(straight.to_dict(), allow_nan=False)
    restored = ConfidenceSequence.from_dict(json.loads(text), kernel)
    for size in after:
        for sequence in (straight, restored):
            sequence.tell(X[start : start + size], y[start : start + size])
        start += size
    assert restored.t == straight.t
    assert restored.alarms == straight.alarms
    assert_array_equal(restored.interval(Z), straight.interval(Z))
    if on_points:
        assert_array_equal(restored.interval(), straight.interval())


def test_what_cannot_be_stored_or_read_is_refused():
    with pytest.raises(InputError, match="function"):
        make(norm_bound=lambda t: 1.0 + t).to_dict()
    with pytest.raises(InputError, match="format"):
        ConfidenceSequence.from_dict({"format": "else"}, KERNEL)


@pytest.mark.parametrize(
    ("error", "X", "y", "noise"),
    [
        (InputError, [[0.1]], [np.nan], None),
        (InputError, [[np.nan]], [0.0], None),
        (InputError, [[3.0]], [0.0], None),
        (ShapeError, [[0.1, 0.2]], [0.0], None),
        (ShapeError, [[0.1]], [0.0, 1.0], None),
        (InputError, [[0.1]], [0.0], -1.0),
        (ShapeError, [[0.1]], [0.0], [1.0, 1.0]),
    ],
)
def test_bad_observations_change_nothing(error, X, y, noise):
    sequence = make(points=GRID)
    sequence.tell(*data(3))
    before = sequence.interval()
    with pytest.raises(error):
        sequence.tell(X, y, noise)
    assert sequence.t == 3
    assert_array_equal(sequence.interval(), before)


def test_an_empty_call_changes_nothing():
    sequence = make()
    sequence.tell(np.zeros((0, 1)), np.zeros(0))
    assert sequence.t == 0
    assert sequence.to_dict()["told"] == []


@pytest.mark.parametrize(
    "options",
    [
        {"noise_std": 0.0},
        {"norm_bound": -1.0},
        {"delta": 1.0},
        {"norm_of": "both"},
        {"on_alarm": "shout"},
        {"norm_scales": []},
        {"norm_range": (1.0, 1.0)},
        {"remember": -1},
        {"rho": 0.0},
        {"full": KernelSum(KERNEL.base, np.zeros(6))},
    ],
)
def test_bad_settings_are_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        make(**options)


def test_kernels_without_features_need_a_norm_bound():
    with pytest.raises(InputError, match="norm_bound"):
        make(GRAM, norm_bound=None)
    with pytest.raises(InputError, match="oracle"):
        make(GRAM, method="oracle")


def test_interval_without_points_needs_an_argument():
    with pytest.raises(InputError, match="points"):
        make().interval()


def test_without_a_norm_bound_intervals_are_infinite_until_the_features_are_spanned():
    sequence = make(norm_bound=None)
    X = np.array([[-0.5], [0.1], [0.8]])
    for i in range(3):
        assert np.isinf(sequence.interval(Z)).all()
        sequence.tell(X[i : i + 1], [0.3])
        assert np.isfinite(sequence.interval(X[: i + 1])).all()
    assert np.isfinite(sequence.interval(Z)).all()


def test_without_a_norm_bound_it_is_least_squares_plus_what_is_left_of_the_radius():
    world = World.draw(np.random.default_rng(0), d=3, norm=5.0)
    X = world.rng.uniform(-1, 1, (30, 1))
    y = world.observe(X)
    sequence = ConfidenceSequence(world.kernel, noise_std=1.0, norm_bound=None)
    sequence.tell(X, y)
    F, Phi = world.kernel.features(X), world.kernel.features(Z)
    theta = np.linalg.lstsq(F, y)[0]
    left = sequence.radius**2 - np.sum((y - F @ theta) ** 2)
    half = np.sqrt(left * np.einsum("nd,nd->n", Phi, np.linalg.solve(F.T @ F, Phi.T).T))
    lower, upper = sequence.interval(Z)
    assert_allclose((lower + upper) / 2, Phi @ theta, atol=1e-9)
    assert_allclose((upper - lower) / 2, half, rtol=1e-9)


def test_the_empty_kernel_says_zero_until_the_alarm():
    empty = KernelSum(KERNEL.base, np.zeros(6))
    sequence = make(empty)
    assert not np.any(sequence.interval(Z))
    sequence.tell(np.full((20, 1), 0.5), np.full(20, 1.0))
    assert sequence.alarm is not None
    assert np.ptp(sequence.interval(Z), axis=0).min() > 0
    quiet = make(empty, full=empty)
    quiet.tell(np.full((20, 1), 0.5), np.zeros(20))
    assert not np.any(quiet.interval(Z))
    assert not quiet.mean(Z).any()


def test_the_norm_certificate_is_applied_to_the_weights():
    """A bound of the truth is divided by the root of the smallest weight, one of the kernel not."""
    weights = KernelSum(KERNEL.base, np.array([0.5, 0, 0.25, 1.0, 0, 0]))
    for norm_of, bound in (("truth", 4.0), ("kernel", 2.0)):
        sequence = make(weights, norm_of=norm_of)
        assert sequence.hypothesis.norm_bound == bound
        assert_allclose(sequence.upper(Z), bound * np.sqrt(weights.diag(Z)))
        assert_allclose(sequence.lower(Z), -sequence.upper(Z))


def test_the_mean_lies_inside():
    sequence = make()
    sequence.tell(*data(30))
    lower, upper = sequence.interval(Z)
    assert ((lower <= sequence.mean(Z)) & (sequence.mean(Z) <= upper)).all()
