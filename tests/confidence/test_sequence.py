"""The mutable object: memory, budget, intersection over time, storage, bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from worlds import GRID, World

from metakel.confidence import DMM, ClosedForm, ConfidenceSequence
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
    sequences = {r: make(points=GRID, method=DMM(remember=r)) for r in (0, 4, 100)}
    for sequence in sequences.values():
        for i in range(50):
            sequence.tell(X[i : i + 1], y[i : i + 1])
    none, some, many = (np.array(sequences[r].interval(GRID, refine=False)) for r in (0, 4, 100))
    exact = np.array(sequences[0].interval())
    sign = np.array([[1], [-1]])
    for wide, narrow in ((none, some), (some, many), (many, exact)):
        assert (sign * narrow >= sign * wide - 1e-12).all()
    assert_allclose(none, sequences[0].current.interval(GRID, refine=False))


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
    restored = ConfidenceSequence.from_dict(json.loads(text))
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
        ConfidenceSequence.from_dict({"format": "else"})


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


@pytest.mark.parametrize(
    "options",
    [
        {"noise_std": 0.0},
        {"norm_bound": -1.0},
        {"delta": 1.0},
        {"norm_of": "both"},
        {"on_alarm": "shout"},
        {"full": KernelSum(KERNEL.base, np.zeros(6))},
    ],
)
def test_bad_settings_are_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        make(**options)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (DMM, {"norm_scales": []}),
        (DMM, {"remember": -1}),
        (ClosedForm, {"rho": 0.0, "name": "amm"}),
        (ClosedForm, {"method": "dmm"}),
    ],
)
def test_bad_options_of_a_method_are_named(method, options):
    word = next(iter(options))
    with pytest.raises(InputError, match=word):
        method(**{"name" if name == "method" else name: v for name, v in options.items()})


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


EMPTY = KernelSum(KERNEL.base, np.zeros(6))


def nothing_learned():
    return pytest.warns(UserWarning, match="no active base kernel.*all 6 base kernels")


@pytest.mark.parametrize("bound", [2.0, None])
def test_an_empty_kernel_vouches_for_nothing_so_all_base_kernels_are_believed(bound):
    with nothing_learned():
        sequence = make(EMPTY, norm_bound=bound)
    everything = make(KernelSum.uniform(KERNEL.base, weight=1.0), norm_bound=bound)
    assert_array_equal(sequence.interval(Z), everything.interval(Z))
    X, y = data(15)
    for one in (sequence, everything):
        one.tell(X, y)
    assert sequence.alarm is None
    assert sequence.hypothesis.kernel.dim == 6
    # The half of the mixture that is spent on f = 0 costs 2 log 2 at most.
    assert sequence.radius**2 <= everything.radius**2 + 2 * np.log(2) + 1e-9
    assert (np.ptp(sequence.interval(Z), axis=0) > 0).all()


def test_an_empty_kernel_is_stored_with_what_is_believed_instead():
    with nothing_learned():
        sequence = make(EMPTY, points=Z)
    sequence.tell(*data(5))
    stored = json.loads(json.dumps(sequence.to_dict()))
    with nothing_learned():
        again = ConfidenceSequence.from_dict(stored)
    assert_array_equal(again.interval(), sequence.interval())
    with nothing_learned(), pytest.raises(InputError, match="stage 0; expected 1 to 3"):
        ConfidenceSequence.from_dict({**stored, "stage": 0})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "amm"}, "'amm'"),
        ({"full": EMPTY}, "full=kernel"),
        ({"norm_of": "kernel"}, "norm_of"),
    ],
)
def test_an_empty_kernel_is_refused_where_nothing_wider_is_known(options, words):
    with pytest.raises(InputError, match=f"no active base kernel.*{words}.*KernelSum.uniform"):
        make(EMPTY, **options)


def test_the_norm_certificate_is_applied_to_the_weights():
    """A bound of the truth is divided by the root of the smallest weight, one of the kernel not."""
    weights = KernelSum(KERNEL.base, np.array([0.5, 0, 0.25, 1.0, 0, 0]))
    for norm_of, bound in (("truth", 4.0), ("kernel", 2.0)):
        sequence = make(weights, norm_of=norm_of)
        assert sequence.hypothesis.norm_bound == bound
        assert_allclose(sequence.upper(Z), bound * np.sqrt(weights.diag(Z)))
        assert_allclose(sequence.lower(Z), -sequence.upper(Z))


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64, int])
def test_numbers_of_numpy_are_numbers_and_can_be_stored(number):
    options = {"noise_std": number(1), "norm_bound": number(2), "method": DMM([number(1)])}
    sequence = make(**options, delta=np.float32(0.25), delta_learning=np.float32(0.125))
    plain = make(noise_std=1.0, norm_bound=2.0, method=DMM([1.0]), delta=0.25, delta_learning=0.125)
    assert json.dumps(sequence.to_dict()) == json.dumps(plain.to_dict())
    assert_array_equal(sequence.interval(Z), plain.interval(Z))


@pytest.mark.parametrize("bad", [True, np.True_, "1", None, np.ones(1), 1j, np.nan, 0, -1])
@pytest.mark.parametrize("name", ["noise_std", "norm_bound"])
def test_what_is_no_positive_number_is_none(name, bad):
    if (name, bad) == ("norm_bound", None):
        return  # no bound at all
    with pytest.raises(InputError, match=f"{name} is .*expected a positive number"):
        make(**{name: bad})


@pytest.mark.parametrize("kernel", [KERNEL, GRAM], ids=["map", "gram"])
def test_a_huge_value_is_taken_in_without_a_trace_of_nan_or_refused(kernel):
    for power in (10, 20, 39, 60, 69, 71, 155, 300):
        sequence = make(kernel, points=Z)
        sequence.tell(*data(4))
        before = sequence.interval()
        if power > 70:
            with pytest.raises(InputError, match=r"tell: y holds 1e\+.*noise_std is 0.2"):
                sequence.tell([[0.3]], [10.0**power])
            assert_array_equal(sequence.interval(), before)
            continue
        sequence.tell([[0.3]], [10.0**power])
        for lower, upper in (sequence.interval(), sequence.interval(Z)):
            assert (lower <= upper).all()  # false for nan
        assert sequence.alarm is not None


@pytest.mark.parametrize("kernel", [KERNEL, GRAM], ids=["map", "gram"])
@pytest.mark.parametrize("power", [-60, -30, 30, 60])
def test_the_units_of_the_values_do_not_matter(kernel, power):
    unit = 10.0**power
    X, y = data(12)
    one, other = make(kernel), make(kernel, noise_std=0.2 * unit, norm_bound=2.0 * unit)
    one.tell(X, y)
    other.tell(X, unit * y)
    assert_allclose(np.divide(other.interval(Z), unit), one.interval(Z), rtol=1e-6)


@pytest.mark.parametrize("name", ["noise_std", "norm_bound"])
@pytest.mark.parametrize("value", [1e-90, 1e90])
def test_units_beyond_the_range_of_floats_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name} is 1e.*from 1e-70 to 1e\\+70"):
        make(**{name: value})
    with pytest.raises(InputError, match="tell: noise_std is"):
        make().tell([[0.1]], [0.0], value)


@pytest.mark.parametrize("key", ["options", "points", "told", "stage", "alarms", "past", "running"])
@pytest.mark.parametrize("damage", ["gone", "x", 7])
def test_a_damaged_entry_is_an_input_error(key, damage):
    sequence = make(points=Z)
    sequence.tell(*data(4))
    stored = sequence.to_dict()
    if damage == "gone":
        del stored[key]
    else:
        stored[key] = damage
    with pytest.raises((InputError, ShapeError)):
        ConfidenceSequence.from_dict(stored)
