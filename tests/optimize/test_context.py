"""Decisions by context: the same search inside one context, certificates for all of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom

import metakel as mk
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, from_features, legendre, tensor_product
from metakel.optimize import GPUCB, Optimizer, Score
from metakel.search import InContext, box, candidates, grid
from metakel.space import Float, Space

NOISE, BOUND, DELTA = 0.1, 2.0, 0.1
BASE = tensor_product(2, 4, scaling="l2")
GRID = np.linspace(-1, 1, 21)
CONTEXTS = np.linspace(-1, 1, 5)


def world(seed, active=(1, 4, 6)):
    """A function of (x, z) of known norm in the space of a few products of polynomials."""
    kernel = KernelSum.uniform(BASE, active=list(active))
    theta = np.random.default_rng(seed).standard_normal(kernel.dim)
    theta *= 0.9 * BOUND / np.linalg.norm(theta)
    return kernel, lambda X: kernel.features(np.atleast_2d(X)) @ theta


def optimizer(kernel, domain=None, context=None, seed=0, **options):
    settings = {"noise_std": NOISE, "norm_bound": BOUND, "norm_of": "kernel", "full": kernel}
    return GPUCB(
        kernel,
        grid([(-1, 1)], 21) if domain is None else domain,
        context=box([(-1, 1)]) if context is None else context,
        rng=np.random.default_rng(seed),
        delta=DELTA,
        **(settings | options),
    )


def play(game, f, contexts, rng):
    """Ask and tell in the given contexts; a context may be a function of the optimizer."""
    for z in contexts:
        z = z(game) if callable(z) else z
        x = game.ask(context=[z])
        game.tell(x, f([x[0], z])[0] + NOISE * rng.standard_normal(), context=[z])
    return game


def regret(f, z, x):
    return f(np.column_stack([GRID, np.full(21, z)])).max() - f([x, z])[0]


def worst_context(game):
    """The context about which least is known: an adversary's choice."""
    return float(max(CONTEXTS, key=lambda z: game.certificate_for([z]).regret))


@pytest.mark.parametrize("domain", [box([(-1, 1)]), candidates(GRID, repeat=False)], ids=repr)
def test_a_context_that_does_not_matter_changes_nothing(domain):
    line = legendre(5, scaling="l2")
    both, plain = (
        KernelSum.uniform(from_features(lambda X: line.features(X[:, :1]), 5, name="line", d0=d0))
        for d0 in (2, 1)
    )
    options = {"noise_std": NOISE, "norm_bound": BOUND, "nu": 2.0}
    ours, theirs = (
        GPUCB(kernel, domain, context=context, rng=np.random.default_rng(5), **options)
        for kernel, context in ((both, candidates([[0.3]])), (plain, None))
    )
    for _ in range(6):
        x = ours.ask(context=[0.3])
        assert_array_equal(x, theirs.ask())
        ours.tell(x, np.sin(3 * x[0]), context=[0.3])
        theirs.tell(x, np.sin(3 * x[0]))
    for mine, other in zip(ours.predict(GRID, context=[0.3]), theirs.predict(GRID), strict=True):
        assert_array_equal(mine, other)
    assert not ours.pending


def test_without_contexts_nothing_changes():
    """A size of zero: every point has the same, empty, context."""
    kernel = KernelSum.uniform(legendre(5, scaling="l2"))
    place = InContext(grid([(-1, 1)], 21), box([(0, 1)]), np.zeros(0))
    plain = place.choices
    values = np.random.default_rng(0).standard_normal(21)
    rng = np.random.default_rng
    start = place.start_points(rng(1))
    assert_array_equal(start.X, plain.start_points(rng(1)).X)
    found, height = place.maximisers(Score(lambda X: values), start)
    best, top = plain.maximisers(Score(lambda X: values), start)
    assert_array_equal(found, best)
    assert_array_equal(height, top)
    game = GPUCB(kernel, plain, rng=rng(0), noise_std=NOISE, context=None)
    assert game.contexts is None


def test_the_choice_maximises_the_upper_bound_of_its_context():
    kernel, f = world(0)
    game = play(optimizer(kernel), f, np.linspace(-0.9, 0.9, 8), np.random.default_rng(1))
    for z in (-0.55, 0.2, 0.95):
        score = game.model.upper_bound().values(np.column_stack([GRID, np.full(21, z)]))
        assert_allclose(game.suggest(context=[z])[0], GRID[np.argmax(score)])
    boxed = optimizer(kernel, box([(-1, 1)]))
    boxed.tell(game.X[:, :1], game.y, context=game.X[:, 1:])
    score = boxed.model.upper_bound().values
    fine = np.column_stack([np.linspace(-1, 1, 2001), np.full(2001, 0.2)])
    chosen = np.append(boxed.suggest(context=[0.2]), 0.2)
    assert score(chosen[None])[0] >= score(fine).max() - 1e-6


@pytest.mark.parametrize("adversary", [False, True], ids=["uniform", "adversary"])
def test_certificates_hold_for_all_contexts_seen_or_not(adversary):
    runs, failures = 30, 0
    for seed in range(runs):
        kernel, f = world(seed)
        rng = np.random.default_rng(1000 + seed)
        steps = [worst_context] * 4 if adversary else rng.uniform(-1, 1, 6)
        game = play(optimizer(kernel, seed=seed), f, steps, rng)
        wrong = False
        for z in CONTEXTS:
            Z = np.column_stack([GRID, np.full(21, z)])
            lower, upper = game.confidence(context=[z])
            covered = (lower - 1e-9 <= f(Z)).all() and (f(Z) <= upper + 1e-9).all()
            certificate = game.certificate_for([z])
            holds = regret(f, z, certificate.x[0]) <= certificate.regret + 1e-9
            assert holds or not covered
            wrong |= not holds
        real = sum(regret(f, z, x) for x, z in game.X)
        wrong |= real > game.regret_certificate + 1e-9
        failures += wrong
    assert failures <= binom.ppf(1 - 1e-4, runs, DELTA)


def test_a_certificate_of_one_context_says_nothing_of_another():
    """Negative control: the regret bound of an observed context fails elsewhere."""
    broken = 0
    for seed in range(30):
        kernel, f = world(seed)
        rng = np.random.default_rng(seed)
        game = play(optimizer(kernel, seed=seed), f, [-1.0] * 12, rng)
        here = game.certificate_for([-1.0])
        broken += regret(f, 1.0, here.x[0]) > here.regret
    assert broken >= 10


def test_the_learned_kernel_needs_a_fraction_of_the_regret_of_all_kernels():
    total = {"learned": 0.0, "all": 0.0}
    for seed in range(10):
        kernel, f = world(seed)
        for name, used in (("learned", kernel), ("all", KernelSum.uniform(BASE))):
            rng = np.random.default_rng(seed)
            game = optimizer(used, seed=seed)
            play(game, f, rng.uniform(-1, 1, 20), rng)
            total[name] += sum(regret(f, z, x) for x, z in game.X)
    assert total["learned"] <= 0.5 * total["all"]


@pytest.mark.parametrize("domain", [grid([(-1, 1)], 21), box([(-1, 1)])], ids=repr)
def test_safe_search_keeps_its_limit_in_every_context(domain):
    """The start point is vouched for in all contexts; every point asked for is safe in its own."""
    unsafe = tried = runs = 0
    for seed in range(6):
        kernel, f = world(seed)
        limit = f(np.column_stack([np.zeros(41), np.linspace(-1, 1, 41)])).min() - 0.1
        game = optimizer(kernel, domain, seed=seed, at_least=limit, start=[[0.0]])
        rng = np.random.default_rng(seed)
        play(game, f, rng.uniform(-1, 1, 5), rng)
        values = f(game.X)
        unsafe += bool((values < limit).any())
        tried += len({x for x, _ in game.X})
        runs += 1
        z = 0.3
        assert game.safe([[0.0]], context=[z])[0]
        certificate = game.certificate_for([z])
        assert certificate.safe  # it is about the configurations that respect the limit
        assert game.safe(certificate.x[None], context=[z])[0]
        candidates_here = f(np.column_stack([GRID, np.full(21, z)]))
        best_safe = candidates_here[candidates_here >= limit].max()
        assert best_safe - f([certificate.x[0], z])[0] <= certificate.regret + 1e-9
    assert unsafe <= binom.ppf(1 - 1e-4, runs, DELTA)
    assert tried > runs  # it does not only repeat the start


@pytest.mark.parametrize(
    "call", ["ask", "suggest", "predict", "explain", "confidence", "tell", "forget"]
)
def test_a_missing_context_is_refused_by_name(call):
    weather = Space((Float("temperature", -5.0, 40.0), Float("humidity", 0.0, 1.0)))
    kernel = KernelSum.uniform(tensor_product(3, 2, scaling="l2"))
    game = optimizer(kernel, context=weather)
    one = ([0.0],)
    given = {"predict": one, "explain": one, "tell": ([0.0], 1.0), "forget": one}.get(call, ())
    with pytest.raises(InputError, match=f"{call}: there is no context.*'temperature'"):
        getattr(game, call)(*given)
    with pytest.raises(InputError, match="lacks 'humidity'"):
        getattr(game, call)(*given, context={"temperature": 21})
    with pytest.raises(InputError, match="expected a dict with 'temperature', 'humidity'"):
        getattr(game, call)(*given, context=[21.0])
    assert game.t == len(game.pending) == 0


def test_bad_contexts_are_refused_with_what_was_expected():
    kernel, _ = world(0)
    game = optimizer(kernel)
    with pytest.raises(InputError, match=r"ask: context: .*1\.5.* not in the domain"):
        game.ask(context=[1.5])
    with pytest.raises(ShapeError, match="2 contexts for 3 points"):
        game.tell([[0.0], [0.1], [0.2]], [1, 2, 3], context=[[0.0], [0.5]])
    with pytest.raises(InputError, match="constraints cannot be used"):
        game.tell([0.0], 1.0, constraints={"c": 1.0}, context=[0.0])
    with pytest.raises(InputError, match=r"best_for\(context\)"):
        game.best  # noqa: B018
    with pytest.raises(InputError, match=r"certificate_for\(context\)"):
        game.certificate  # noqa: B018
    with pytest.raises(InputError, match="'ei'"):
        optimizer(kernel, acquisition="ei")
    with pytest.raises(InputError, match="stop_at"):
        optimizer(kernel, stop_at=0.1)
    with pytest.raises(ShapeError, match="the model takes 2 inputs but the domain has 1 and a con"):
        optimizer(kernel, context=box([(-1, 1), (-1, 1)]))
    with pytest.raises(InputError, match="base kernels live on"):
        optimizer(kernel, context=box([(-5, 40)]))  # Legendre polynomials live on [-1, 1]
    plain = GPUCB(kernel, box([(-1, 1)] * 2), rng=np.random.default_rng(0), noise_std=NOISE)
    with pytest.raises(InputError, match="has no contexts; make it with context="):
        plain.ask(context=[0.0])
    with pytest.raises(InputError, match="use best and certificate"):
        plain.best_for(None)


def test_pending_runs_belong_to_their_context():
    kernel, _ = world(0)
    game = optimizer(kernel, candidates(GRID, repeat=False))
    first = game.ask(context=[0.5])
    assert_array_equal(game.suggest(context=[-0.5]).shape, (1,))
    game.tell(first, 0.2, context=[-0.5])  # another context: the pending run stays pending
    assert (len(game.pending), game.t) == (1, 1)
    game.tell(first, 0.3, context=[0.5])
    assert (len(game.pending), game.t) == (0, 2)
    game.ask_batch(20, context=[0.5])
    with pytest.raises(InputError, match="0 points are left"):
        game.ask(context=[0.5])
    x = game.ask(context=[0.25])  # in another context all are free
    game.forget(x, context=[0.25])


def test_a_choice_is_explained_within_its_context():
    kernel, f = world(0)
    game = optimizer(kernel)
    play(game, f, [0.8] * 6, np.random.default_rng(0))
    why = game.explain([0.3], context=[-0.5])
    assert why.best is None
    assert not why.neighbours  # all runs were made elsewhere
    means, _ = game.predict(GRID, context=[-0.5])
    assert min(means) <= why.typical <= max(means)
    assert game.explain([0.3], context=[0.8]).best == game.y.max()


def test_save_load_ask_equals_ask(tmp_path):
    kernel, f = world(3)
    space = Space((Float("temperature", -5.0, 40.0),))
    game = optimizer(kernel, context=space, maximize=False)
    rng = np.random.default_rng(0)
    for temperature in rng.uniform(-5, 40, 4):
        x = game.ask(context={"temperature": temperature})
        z = space.encode([{"temperature": temperature}])[0, 0]
        game.tell(x, -f([x[0], z])[0], context={"temperature": temperature})
    game.ask(context={"temperature": 21.0})
    game.save(tmp_path / "game.json")
    loaded = Optimizer.load(tmp_path / "game.json")
    now = {"temperature": 21.5}
    assert_array_equal(loaded.X, game.X)
    assert_array_equal(loaded.ask(context=now), game.ask(context=now))
    assert loaded.certificate_for(now).regret == game.certificate_for(now).regret
    assert loaded.regret_certificate == game.regret_certificate
    assert "in contexts of" in repr(loaded)
    assert [t.context for t in loaded.record.trials] == [t.context for t in game.record.trials]


def test_minimising_mirrors_maximising():
    kernel, f = world(2)
    up, down = optimizer(kernel), optimizer(kernel, maximize=False)
    X = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    X[:, 0] = GRID[[2, 5, 9, 12, 16, 20]]
    up.tell(X[:, :1], f(X), context=X[:, 1:])
    down.tell(X[:, :1], -f(X), context=X[:, 1:])
    best, mirrored = up.best_for([0.4]), down.best_for([0.4])
    assert_array_equal(best.x, mirrored.x)
    assert (best.value, best.lower, best.upper) == (
        -mirrored.value,
        -mirrored.upper,
        -mirrored.lower,
    )
    assert up.regret_certificate == down.regret_certificate


def test_the_regret_certificate_without_contexts_bounds_the_same_sum():
    kernel = KernelSum.uniform(legendre(4, scaling="l2"))
    options = {"noise_std": NOISE, "norm_bound": BOUND, "norm_of": "kernel"}
    game = GPUCB(kernel, grid([(-1, 1)], 21), rng=np.random.default_rng(0), **options)
    assert game.regret_certificate == 0.0
    for _ in range(5):
        x = game.ask()
        game.tell(x, 0.3 * x[0])
    lower, upper = game.confidence()
    rows = [int(np.argmin(np.abs(GRID - x))) for x in game.X[:, 0]]
    assert game.regret_certificate >= sum(upper.max() - lower[rows]) - 1e-9
    assert mk.GPUCB is GPUCB
