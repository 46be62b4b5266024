"""What users naturally give: taken where it is clear, refused with what to give instead."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from metakel import History, learn_kernel
from metakel.confidence import ConfidenceSequence
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, legendre, tensor_product

BASE = legendre(4, scaling="l2")
KERNEL = KernelSum.uniform(BASE, weight=1.0)
PLANE = KernelSum.uniform(tensor_product(2, 2, scaling="l2"), weight=1.0)
Z = np.linspace(-1, 1, 9)[:, None]


def make(kernel=KERNEL, **options):
    return ConfidenceSequence(kernel, **{"noise_std": 0.1, "norm_bound": 3.0, **options})


@pytest.fixture(scope="module")
def learned():
    rng = np.random.default_rng(0)
    tasks = []
    for _ in range(10):
        x = rng.uniform(-1, 1, 20)
        tasks.append(
            (x, BASE.features(x[:, None])[:, 1] * rng.normal() + 0.1 * rng.normal(size=20))
        )
    return learn_kernel(History.from_pairs(tasks), BASE, noise_std=0.1)


def test_a_learned_kernel_brings_weights_noise_and_delta(learned):
    band = ConfidenceSequence(learned, norm_bound=2.0)
    assert_array_equal(band.kernel.eta, learned.confidence_kernel(2.0).eta)
    assert band.options.noise_std == learned.noise_std
    assert band.delta_learning == learned.delta == band.delta_deciding
    assert band.options.norm_of == "all"
    other = ConfidenceSequence(learned, norm_bound=2.0, noise_std=0.3, delta_learning=0.0)
    assert (other.options.noise_std, other.delta_learning) == (0.3, 0.0)
    with pytest.raises(InputError, match=r"norm_of is 'kernel' beside a learned kernel"):
        ConfidenceSequence(learned, norm_bound=2.0, norm_of="kernel")


def test_after_an_alarm_a_learned_kernel_falls_back_to_all_kernels_with_the_same_norm(learned):
    band = ConfidenceSequence(learned, norm_bound=2.0)
    hypotheses = band._known.state.hypotheses
    assert [h.norm_bound for h in hypotheses] == [2.0, 2.0, np.inf]
    assert_array_equal(hypotheses[1].kernel.eta, np.ones(4))
    # A kernel of many sigma that the past did not have: the fallback stays finite and covers.
    x = np.linspace(-1, 1, 12)
    f = 1.9 * BASE.features(x[:, None])[:, 3] / np.sqrt(BASE.sup[3])
    for one, value in zip(x, f, strict=True):
        band.tell(one, value)
    assert band.alarm is not None
    assert band.hypothesis is hypotheses[1]
    lower, upper = band.interval(x)
    assert (upper - lower).max() < 4.0
    assert ((lower <= f) & (f <= upper)).all()


def test_without_a_norm_bound_a_learned_kernel_keeps_all_base_kernels(learned):
    assert_array_equal(ConfidenceSequence(learned, norm_bound=None).kernel.eta, np.ones(4))
    growing = ConfidenceSequence(learned, norm_bound=lambda t: 2.0 + t)
    assert_array_equal(growing.kernel.eta, learned.confidence_kernel(2.0).eta)


def test_what_was_learned_is_not_its_kernel(learned):
    with pytest.raises(InputError, match=r"^full is a LearnedKernel; give learned\.kernel$"):
        make(full=learned)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (BASE, r"kernel is a KernelDictionary; give KernelSum\.uniform\(base"),
        (None, "kernel is a NoneType; expected a KernelSum"),
        ("rbf", "kernel is a str; expected a KernelSum"),
    ],
    ids=["dictionary", "none", "text"],
)
def test_what_is_no_kernel_is_named(kernel, words):
    with pytest.raises(InputError, match=words):
        make(kernel)


def test_a_spent_budget_says_what_to_do(learned):
    with pytest.raises(
        InputError, match=r"delta above 0\.05, or .*learn_kernel\(\.\.\., delta=0\.025"
    ):
        make(learned.kernel, delta=0.05, delta_learning=learned.delta)
    with pytest.raises(InputError, match=r"chosen by hand.*delta_learning=0 that you trust it"):
        make(learned.kernel, delta_learning=1.0)
    with pytest.raises(InputError, match=r"expected 0 <= delta_learning < delta < 1$"):
        make(delta=1.5)


@pytest.mark.parametrize(
    ("kernel", "X", "y"),
    [
        (KERNEL, 0.5, 0.3),
        (KERNEL, 0.5, [0.3]),
        (KERNEL, [0.5], 0.3),
        (KERNEL, [[0.5]], 0.3),
        (KERNEL, np.float32(0.5), np.float64(0.3)),
        (PLANE, [0.5, -0.5], 0.3),
        (PLANE, [0.5, -0.5], [0.3]),
        (PLANE, (0.5, -0.5), np.array(0.3)),
    ],
)
def test_one_point_with_one_value_needs_no_brackets(kernel, X, y):
    plain, bracketed = make(kernel), make(kernel)
    plain.tell(X, y, 0.2)
    bracketed.tell(np.reshape(X, (1, -1)), np.array([0.3]), [0.2])
    assert plain.t == 1
    points = np.random.default_rng(0).uniform(-1, 1, (9, kernel.d0))
    assert_array_equal(plain.interval(points), bracketed.interval(points))


@pytest.mark.parametrize(
    ("kernel", "X", "y"),
    [
        (KERNEL, [0.1, 0.2], 0.3),
        (KERNEL, 0.1, [0.3, 0.4]),
        (PLANE, 0.5, 0.3),
        (PLANE, [0.5, 0.1, 0.2], 0.3),
        (PLANE, [0.5, 0.1], [0.3, 0.4]),
        (KERNEL, [[0.1], [0.1, 0.2]], [0.3]),
        (KERNEL, [0.1], [[0.3], [0.1, 0.2]]),
        (KERNEL, "here", 0.3),
    ],
)
def test_what_is_not_one_point_and_one_value_is_refused(kernel, X, y):
    sequence = make(kernel)
    with pytest.raises((InputError, ShapeError)):
        sequence.tell(X, y)
    assert sequence.t == 0


def test_a_copy_goes_on_by_itself():
    sequence = make(points=Z)
    sequence.tell(0.5, 0.3)
    before = sequence.interval()
    other = copy.copy(sequence)
    other.tell(0.1, -0.4)
    assert (sequence.t, other.t) == (1, 2)
    assert_array_equal(sequence.interval(), before)
    sequence.tell(0.1, -0.4)
    assert_array_equal(sequence.interval(), other.interval())
