"""Parameters that are given, not chosen: one optimizer, certificates for all of their values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

from gpucb import gpucb
from metakel.errors import InputError
from metakel.kernels import KernelSum, tensor_product
from metakel.optimize import Optimizer
from metakel.search import box
from metakel.space import Float, Space

NOISE, BOUND, DELTA = 0.1, 2.0, 0.1
BASE = tensor_product(2, 4, scaling="l2")
GRID = np.linspace(-1, 1, 21)
CONTEXTS = np.linspace(-1, 1, 5)
SPACE = Space((Float("x", -1.0, 1.0), Float("z", -1.0, 1.0)))


def world(seed, active=(1, 4, 6)):
    """A function of (x, z) of known norm in the space of a few products of polynomials."""
    kernel = KernelSum.uniform(BASE, active=list(active))
    theta = np.random.default_rng(seed).standard_normal(kernel.dim)
    theta *= 0.9 * BOUND / np.linalg.norm(theta)
    return kernel, lambda X: kernel.features(np.atleast_2d(X)) @ theta


def optimizer(kernel, seed=0, **options):
    settings = {"noise_std": NOISE, "norm_bound": BOUND, "norm_of": "kernel", "full": kernel}
    return gpucb(kernel, SPACE, seed=seed, delta=DELTA, **(settings | options))


def play(game, f, contexts, rng):
    """Ask and tell with z given; it may be a function of the optimizer."""
    for z in contexts:
        z = z(game) if callable(z) else z
        x = game.ask(fixed={"z": z})
        assert x["z"] == z
        game.tell(x, f([x["x"], z])[0] + NOISE * rng.standard_normal())
    return game


def regret(f, z, x):
    return f(np.column_stack([GRID, np.full(21, z)])).max() - f([x, z])[0]


def worst_context(game):
    """The context about which least is known: an adversary's choice."""
    return float(max(CONTEXTS, key=lambda z: game.certificate(fixed={"z": z}).regret))


@pytest.mark.parametrize("contexts", ["uniform", "adversary"])
def test_certificates_hold_for_all_values_seen_or_not(contexts):
    runs, steps, wrong = 12, 6, 0
    for seed in range(runs):
        kernel, f = world(seed)
        rng = np.random.default_rng(seed)
        given = rng.uniform(-1, 1, steps) if contexts == "uniform" else [worst_context] * steps
        game = play(optimizer(kernel, seed), f, given, rng)
        for z in CONTEXTS:
            found = game.certificate(fixed={"z": z})
            assert found.x == game.best(fixed={"z": z}).x
            assert found.x["z"] == z
            wrong += regret(f, z, found.x["x"]) > found.regret + 1e-6
    assert wrong <= len(CONTEXTS) * binom.ppf(1 - 1e-3, runs, DELTA)


def test_a_certificate_of_one_value_says_nothing_of_another():
    """The negative control: what was observed at z = -1 does not bound the regret at z = 1."""
    exceeded = 0
    for seed in range(8):
        kernel, f = world(seed, active=(1, 4, 6, 9, 12))
        game = play(optimizer(kernel, seed), f, [-1.0] * 10, np.random.default_rng(seed))
        here = game.certificate(fixed={"z": -1.0})
        there = game.certificate(fixed={"z": 1.0})
        assert there.regret > here.regret
        exceeded += regret(f, 1.0, here.x["x"]) > here.regret
    assert exceeded >= 2


def test_safe_search_keeps_its_limit_whatever_is_given():
    for seed in range(4):
        kernel, f = world(seed)
        start = [{"x": 0.0, "z": z} for z in CONTEXTS]
        limit = float(min(f([0.0, z])[0] for z in CONTEXTS)) - 0.3
        game = optimizer(kernel, seed, at_least=limit, start=start)
        rng = np.random.default_rng(seed)
        for z in rng.choice(CONTEXTS, 8):
            x = game.ask(fixed={"z": z})
            assert f([x["x"], z])[0] >= limit
            game.tell(x, f([x["x"], z])[0] + NOISE * rng.standard_normal())
        best = game.best(fixed={"z": 0.0})
        assert game.allowed([best.x])[0]


def test_it_goes_on_after_a_restart_and_minimises_as_it_maximises():
    kernel, f = world(3)
    X = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    up, down = optimizer(kernel), optimizer(kernel, minimize=True)
    rows = [{"x": x, "z": z} for x, z in X]
    up.tell(rows, f(X))
    down.tell(rows, -f(X))
    best, mirrored = up.best(fixed={"z": 0.4}), down.best(fixed={"z": 0.4})
    assert best.x == mirrored.x
    assert_allclose((best.value, best.lower), (-mirrored.value, -mirrored.upper))
    again = Optimizer.from_dict(up.to_dict())
    assert again.ask(fixed={"z": 0.4}) == up.ask(fixed={"z": 0.4})
    assert again.certificate(fixed={"z": 0.1}).regret == up.certificate(fixed={"z": 0.1}).regret


def test_a_choice_is_explained_among_those_beside_the_same_values():
    kernel, f = world(1)
    game = play(optimizer(kernel), f, CONTEXTS, np.random.default_rng(1))
    why = game.explain({"x": 0.3, "z": -0.5}, fixed={"z": -0.5})
    column = [{"x": x, "z": -0.5} for x in np.linspace(-1, 1, 201)]
    low, high = np.quantile(game.predict(column)[0], [0.4, 0.6])
    assert low <= why.typical.value <= high
    with pytest.raises(InputError, match="does not have"):
        game.explain({"x": 0.3, "z": 0.1}, fixed={"z": -0.5})


def test_what_cannot_be_fixed_is_refused():
    kernel, _ = world(0)
    game = optimizer(kernel)
    with pytest.raises(InputError, match="the parameters are 'x', 'z'"):
        game.ask(fixed={"w": 0.0})
    with pytest.raises(InputError, match="leaves nothing to choose"):
        game.peek(fixed={"x": 0.0, "z": 0.0})
    with pytest.raises(InputError, match="expected float in"):
        game.best(fixed={"z": 3.0})
    plain = gpucb(kernel, box([(-1, 1)] * 2), noise_std=NOISE, norm_bound=BOUND)
    with pytest.raises(InputError, match="no named parameters"):
        plain.certificate(fixed={"z": 0.0})
