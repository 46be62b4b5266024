"""Sequences around a function other than 0, and for what the kernel only approximates."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from worlds import World, covered

from metakel import ConfidenceSequence, InputError
from metakel.confidence import DMM
from metakel.errors import ShapeError
from metakel.kernels.sum import KernelFunction

Z = np.linspace(-1, 1, 101)[:, None]


def wave(X):
    return np.cos(4 * X[:, 0])


def sequence(world, **options):
    given = {"norm_bound": 2.0, "points": Z, **options}
    return ConfidenceSequence(world.kernel, noise_std=world.noise_std, **given)


def test_a_center_moves_values_and_bounds_alike():
    rng = np.random.default_rng(0)
    world = World.draw(rng, d=4, norm=2.0, noise_std=0.1, p=8)
    centered, plain = sequence(world, center=wave), sequence(world)
    for _ in range(12):
        X = rng.uniform(-1, 1, (1, 1))
        y = world.observe(X)
        centered.tell(X, y + wave(X))
        plain.tell(X, y)
        assert_allclose(centered.interval(), np.array(plain.interval()) + wave(Z), atol=1e-9)
    assert_allclose(centered.interval(Z), np.array(plain.interval(Z)) + wave(Z), atol=1e-9)
    assert_allclose(centered.mean(Z), plain.mean(Z) + wave(Z), atol=1e-9)


def test_a_stored_sequence_continues_with_its_center_and_slack():
    rng = np.random.default_rng(2)
    world = World.draw(rng, d=4, norm=2.0, noise_std=0.1)
    center = KernelFunction(world.kernel, np.linspace(-0.2, 0.4, world.kernel.dim))
    first = sequence(world, center=center, slack=0.05)
    X = rng.uniform(-1, 1, (5, 1))
    first.tell(X, world.observe(X))
    again = ConfidenceSequence.from_dict(first.to_dict())
    for one in (first, again):
        one.tell(0.3, 0.7)
    assert_array_equal(first.interval(), again.interval())
    with pytest.raises(InputError, match="function of your own"):
        sequence(world, center=wave).to_dict()
    replayed = first.fresh()
    for batch in first.told.batches:
        replayed.tell(batch.X, batch.y)
    assert_allclose(replayed.current.interval(Z), first.current.interval(Z), atol=1e-9)


@pytest.mark.parametrize(
    ("center", "error", "says"),
    [
        (lambda X: np.zeros(3), ShapeError, "expected \\(101,\\)"),
        (lambda X: np.full(len(X), np.nan), InputError, "expected finite"),
        (0.5, InputError, "expected a function"),
    ],
)
def test_a_center_that_is_no_function_of_points_is_refused(center, error, says):
    world = World.draw(np.random.default_rng(0), d=3, norm=1.0)
    with pytest.raises(error, match=says):
        sequence(world, center=center)


def ripple(rng, slack, runs, assumed):
    """In how many runs the band holds at all times for f that is ``slack`` from the kernel."""
    held = 0
    for _ in range(runs):
        world = World.draw(rng, d=4, norm=2.0, noise_std=0.05)
        f = world.f(Z) + slack * np.sin(30 * Z[:, 0])
        band = sequence(world, slack=assumed, full=world.kernel, on_alarm="ignore")
        good = True
        for _ in range(4):
            rows = rng.integers(len(Z), size=15)
            band.tell(Z[rows], f[rows] + 0.05 * rng.standard_normal(15))
            good &= covered(band, f)
        held += good
    return held


def test_a_slack_covers_what_the_kernel_only_approximates_and_nothing_else_does():
    rng = np.random.default_rng(3)
    assert ripple(rng, 0.15, 50, assumed=0.15) == 50
    assert ripple(rng, 0.15, 50, assumed=0.0) == 0


def test_a_slack_counts_precise_values_more():
    """A value that is twice as precise allows its misfit to be twice as large, in noise units."""
    world = World.draw(np.random.default_rng(4), d=3, norm=1.0, noise_std=0.1)
    plain = DMM(noise_weight=0)  # the number of values counts in its supermartingale
    one, other = (sequence(world, slack=0.1, norm_bound=1.0, method=plain) for _ in range(2))
    X = np.linspace(-1, 1, 8)[:, None]
    y = world.f(X)
    one.tell(np.repeat(X, 4, axis=0), np.repeat(y, 4))
    other.tell(X, y, 0.05)
    assert_allclose(one.interval(), other.interval(), rtol=1e-6)


def test_a_slack_is_never_negative_and_belongs_to_the_default_method():
    world = World.draw(np.random.default_rng(0), d=3, norm=1.0)
    with pytest.raises(InputError, match="slack"):
        sequence(world, slack=-0.1)
    with pytest.raises(InputError, match="dmm"):
        sequence(world, slack=0.1, method="amm")
