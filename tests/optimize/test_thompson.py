"""Thompson sampling, and a check of what an own acquisition returns."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import metakel as mk
from metakel.errors import InputError
from metakel.gp.averages import drawn_function
from metakel.optimize import Score


@cache
def prior() -> mk.Prior:
    rng, rows = np.random.default_rng(0), []
    for s in range(6):
        level = rng.normal(0, 0.1)
        for _ in range(12):
            x, z = rng.uniform(size=2)
            y = -((x - 0.4) ** 2) - (z - 0.6) ** 2 + level + 0.01 * rng.normal()
            rows.append((f"t{s}", x, z, y))
    table = {name: [row[k] for row in rows] for k, name in enumerate(("t", "x", "z", "y"))}
    return mk.learn_prior(mk.History.from_frame(table, task="t", output="y"), certify="none")


def begun(**options) -> mk.Optimizer:
    optimizer = prior().optimizer(**options)
    for x, z in ((0.1, 0.2), (0.8, 0.3), (0.5, 0.9)):
        optimizer.tell({"x": x, "z": z}, -((x - 0.4) ** 2) - (z - 0.6) ** 2)
    return optimizer


def test_draws_have_the_moments_of_the_posterior():
    model = begun().model
    Z = np.random.default_rng(1).uniform(-1, 1, (40, 2))
    draws = [
        drawn_function(model.factor, model.mix, np.random.default_rng(k))(Z) for k in range(600)
    ]
    mean, sd = model.predict(Z)
    error = np.abs(np.mean(draws, axis=0) - mean) / sd
    assert error.max() < 5 / np.sqrt(600)
    np.testing.assert_allclose(np.std(draws, axis=0), sd, rtol=0.25)


def test_all_calls_are_of_one_function():
    model = begun().model
    Z = np.random.default_rng(1).uniform(-1, 1, (60, 2))
    drawn = drawn_function(model.factor, model.mix, np.random.default_rng(0))
    first = drawn(Z)
    np.testing.assert_allclose(drawn(Z[::-1]), first[::-1], atol=1e-6)
    np.testing.assert_allclose(drawn(Z[:5] + 1e-7), first[:5], atol=1e-4)


def test_it_decides_by_the_record_and_finds_the_top():
    optimizer = begun(acquisition="ts")
    assert optimizer.ask() == begun(acquisition="ts").ask()
    batch = begun(acquisition="ts").ask_batch(3)
    assert len({tuple(x.values()) for x in batch}) == 3
    optimizer = prior().optimizer(acquisition="ts")
    for _ in range(10):
        x = optimizer.ask()
        optimizer.tell(x, -((x["x"] - 0.4) ** 2) - (x["z"] - 0.6) ** 2)
    assert optimizer.best().value > -0.02
    assert "acquisition" in optimizer.certificate().reason or not optimizer.certificate().final


def test_a_kernel_draws_nothing():
    kernel = mk.KernelSum.uniform(mk.kernels.legendre(4, scaling="l2"))
    sequence = mk.ConfidenceSequence(kernel, noise_std=0.1, norm_bound=1.0)
    search = mk.GPUCB(sequence, mk.grid([(-1, 1)], 11), acquisition="ts")
    with pytest.raises(InputError, match="expected the model of a prior"):
        search.ask()


@pytest.mark.parametrize(
    ("acquisition", "says"),
    [
        (lambda model, best: 3.0, "returned a float"),
        (lambda model, best: model.predict, "returned a method"),
        (lambda model, best: Score(lambda Z: np.zeros((len(Z), 2))), "expected .* numbers"),
        (lambda model, best: Score(lambda Z: ["a"] * len(Z)), "expected .* numbers"),
        (lambda model, best: Score(lambda Z: np.full(len(Z), np.nan)), "acquisition .* is nan"),
    ],
)
def test_what_an_own_acquisition_returns_is_checked(acquisition, says):
    with pytest.raises(InputError, match=says):
        begun(acquisition=acquisition).ask()
