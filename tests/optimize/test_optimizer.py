"""GP-UCB: what it asks, what it remembers, what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from games import BOUND, NOISE, line_problem, optimizer, play, square_problem
from numpy.testing import assert_allclose, assert_array_equal

from gpucb import gpucb
from metakel.confidence import Alarm
from metakel.errors import InputError, ShapeError
from metakel.gp import posterior
from metakel.kernels import KernelSum, legendre, squared_exponential
from metakel.search import box, candidates, grid

LINE = grid([(-1, 1)], 101)
SQUARE = box([(-1, 1), (-1, 1)])


def test_it_asks_where_the_upper_bound_is_largest():
    problem = line_problem()
    game = play(optimizer(problem, LINE), problem, 6)
    _, upper = game.confidence()
    chosen = LINE.index(game.ask()[None])[0]
    assert upper[chosen] == upper.max()


def test_on_a_box_no_point_of_a_large_search_has_a_clearly_larger_upper_bound(rng):
    problem = square_problem()
    game = optimizer(problem, SQUARE)
    Z = np.concatenate([rng.uniform(-1, 1, (20_000, 2)), grid([(-1, 1)] * 2, 81).X])
    for steps in (0, 3, 12, 20):
        play(game, problem, steps, seed=steps)
        asked = game.ask()
        game.drop(asked)
        upper = game.model.sequence.current.interval(Z)[1]
        value = game.model.sequence.current.interval(asked[None])[1][0]
        assert value >= upper.max() - 1e-3 * np.ptp(upper)


def test_fixed_nu_is_the_posterior_mean_plus_nu_deviations():
    problem = line_problem()
    for nu, noise_var in ((2.0, None), (lambda t: 1 + t, lambda t: 1 + 2 / t)):
        game = optimizer(problem, LINE, norm_bound=None, nu=nu, noise_var=noise_var)
        play(game, problem, 5)
        regularizer = NOISE**2 if noise_var is None else 1 + 2 / 6
        factor = 2.0 if noise_var is None else 7.0
        post = posterior(problem.kernel, game.X, game.y, noise_var=regularizer)
        upper = post.mean(LINE.X) + factor * post.std(LINE.X)
        chosen = LINE.index(game.ask()[None])[0]
        assert upper[chosen] >= upper.max() - 1e-8 * np.ptp(upper)
        assert_allclose(game.predict(LINE.X)[0], post.mean(LINE.X), atol=1e-9)


def test_a_schedule_is_checked_when_it_is_used():
    game = optimizer(line_problem(), LINE, norm_bound=None, nu=lambda t: 2.0 - t)
    game.tell(LINE.X[3], 1.0)
    with pytest.raises(InputError, match=r"nu is 0\.0 at step 2"):
        game.ask()


def test_a_fixed_nu_alone_promises_nothing():
    problem = line_problem()
    game = play(optimizer(problem, LINE, norm_bound=None, nu=2.0), problem, 5)
    assert game.best().lower < game.best().value < game.best().upper
    assert game.certificate().regret == np.inf
    assert "promises nothing" in game.certificate().reason
    with pytest.raises(InputError, match="promises nothing"):
        game.confidence(LINE.X)
    both = play(optimizer(problem, LINE, nu=2.0), problem, 5)
    assert np.isfinite(both.certificate().regret)


@pytest.mark.parametrize("domain", [LINE, box([(-1, 1)])], ids=["grid", "box"])
def test_minimising_is_maximising_the_negative_to_the_last_bit(domain):
    problem = line_problem()
    up = optimizer(problem, domain, minimize=False)
    down = optimizer(problem, domain, minimize=True)
    rng = np.random.default_rng(5)
    for _ in range(8):
        x, z = up.ask(), down.ask()
        assert_array_equal(x, z)
        y = problem.noisy(x, rng)
        up.tell(x, y)
        down.tell(z, -y)
    assert_array_equal(up.best().x, down.best().x)
    assert up.best().value == -down.best().value
    assert (up.best().lower, up.best().upper) == (-down.best().upper, -down.best().lower)
    assert up.certificate().regret == down.certificate().regret
    Z = np.linspace(-1, 1, 9)[:, None]
    (low, high), (low_down, high_down) = up.confidence(Z), down.confidence(Z)
    assert_array_equal(low, -high_down)
    assert_array_equal(high, -low_down)
    assert_allclose(up.predict(Z)[0], -down.predict(Z)[0])
    assert_array_equal(down.y, -up.y)


@pytest.mark.parametrize("domain", [LINE, SQUARE], ids=["grid", "box"])
def test_a_batch_holds_different_points_and_equals_asking_one_by_one(domain):
    problem = line_problem() if domain.d0 == 1 else square_problem()
    together = play(optimizer(problem, domain), problem, 4)
    apart = play(optimizer(problem, domain), problem, 4)
    batch = together.ask_batch(5)
    assert_array_equal(batch, [apart.ask() for _ in range(5)])
    assert not np.tril(domain.same(np.array(batch), np.array(batch)), -1).any()
    assert_array_equal(together.pending, batch)


def test_dropping_undoes_asking():
    problem = square_problem()
    game = play(optimizer(problem, SQUARE), problem, 3)
    asked = game.ask_batch(3)
    game.drop(asked[1])
    assert_array_equal(game.pending, [asked[0], asked[2]])
    game.drop([asked[2], asked[0]])
    assert game.pending == []
    assert_allclose(game.ask(), asked[0], atol=1e-9)
    with pytest.raises(InputError, match="not pending"):
        game.drop([0.123, 0.456])
    states = [trial.state for trial in game.record.trials[-4:]]
    assert states == ["dropped", "dropped", "dropped", "pending"]


def test_without_repetition_every_point_is_asked_once_and_then_no_more():
    problem = line_problem()
    domain = candidates(np.linspace(-1, 1, 7), repeat=False)
    game = optimizer(problem, domain)
    rng = np.random.default_rng(0)
    asked = []
    for n in (1, 3, 2):
        batch = game.ask_batch(n)
        asked += [x[0] for x in batch]
        game.tell(batch[0], problem.noisy(batch[0], rng))
    with pytest.raises(InputError, match="2 asked for, but 1 points are left"):
        game.ask_batch(2)
    assert not game.done
    asked += game.ask().tolist()
    assert sorted(asked) == domain.X[:, 0].tolist()
    assert game.done
    with pytest.raises(InputError, match="left to ask"):
        game.ask()


def test_with_repetition_more_points_than_the_domain_has_can_be_pending():
    game = optimizer(line_problem(), candidates([-0.5, 0.5]))
    assert sorted(x[0] for x in game.ask_batch(2)) == [-0.5, 0.5]
    assert np.shape(game.ask_batch(2)) == (2, 1)


def test_first_choices_differ_by_generator_where_the_prior_does_not_decide():
    kernel = KernelSum.uniform(squared_exponential([0.3], d0=1), weight=1.0)
    first = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        first.add(gpucb(kernel, LINE, rng=rng, noise_std=0.1, norm_bound=1.0).ask().item())
    assert len(first) > 6


@pytest.mark.parametrize(
    ("x", "y", "noise", "error"),
    [
        ([0.1, np.inf], 1.0, None, InputError),
        ([0.1, 1.2], 1.0, None, InputError),
        ([0.1], 1.0, None, ShapeError),
        ([0.1, 0.2, 0.3], 1.0, None, ShapeError),
        ([[0.1, 0.2], [0.3, 0.4]], 1.0, None, ShapeError),
        ([0.1, 0.2], [1.0, 2.0], None, ShapeError),
        ([0.1, 0.2], 1.0, -1.0, InputError),
        ([0.1, 0.2], 1.0, [0.1, 0.1], ShapeError),
        ([0.1, 0.2], "good", None, InputError),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(x, y, noise, error):
    problem = square_problem()
    game = play(optimizer(problem, SQUARE), problem, 3)
    game.ask()
    before = game.to_dict()
    with pytest.raises(error):
        game.tell(x, y, noise_std=noise)
    for n in (0, -1, 1.5):
        with pytest.raises(InputError, match="ask_batch: n is"):
            game.ask_batch(n)
    assert game.to_dict() == before


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"rng": 0}, InputError, "Generator"),
        ({"stop_at": -1.0}, InputError, "stop_at"),
        ({"noise_std": 0.0}, InputError, "noise_std"),
        ({"noise_std": 0.0, "nu": 1.0, "norm_bound": None}, InputError, "noise_var"),
        ({"nu": -1.0}, InputError, "nu is -1.0 at step 1"),
        ({"nu": 1.0, "noise_var": 0.0}, InputError, "noise_var is 0.0"),
        ({"domain": box([(-1, 1)])}, ShapeError, "2 inputs but the domain has 1"),
        ({"domain": box([(-1, 1), (0, 9)])}, InputError, "rescale"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_once(options, error, words):
    settings = {"rng": np.random.default_rng(0), "noise_std": 0.1, "norm_bound": 1.0, **options}
    domain = settings.pop("domain", SQUARE)
    with pytest.raises(error, match=words):
        gpucb(square_problem().kernel, domain, **settings)


@pytest.mark.parametrize(
    "result", [{"failed": True}, *({"value": v} for v in (np.nan, np.inf, 1e60))]
)
def test_a_run_without_a_usable_value_has_failed(result):
    problem = square_problem()
    game = play(optimizer(problem, SQUARE), problem, 3)
    x, evidence = game.ask(), game.model.log_evidence
    with pytest.raises(InputError, match="failed=True"):
        game.tell(x)
    game.tell(x, **result)
    assert game.t == 3
    assert game.record.trials[-1].state == "failed"
    assert game.model.log_evidence == evidence
    assert "failed=1" in repr(game)
    assert abs(game.ask() - x).max() > 0.01


def test_before_the_first_observation_there_is_no_best_and_no_certificate():
    game = optimizer(line_problem(), LINE)
    assert game.certificate().regret == np.inf
    with pytest.raises(InputError, match="nothing was observed"):
        _ = game.best()
    assert "t=0" in repr(game)


def test_an_alarm_is_raised_after_the_observation_was_taken_in():
    problem = line_problem()
    game = optimizer(problem, LINE, norm_bound=0.01, on_alarm="raise")
    with pytest.raises(Alarm):
        play(game, problem, 20)
    assert game.t == game.model.sequence.t == len(game.record.observed)
    assert not len(game.pending)
    game.ask()


def test_it_goes_on_when_nothing_fits():
    """The noise is far larger than was said, and no assumption survives."""
    problem = line_problem()
    game = optimizer(problem, LINE, noise_std=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(40):
        x = game.ask()
        game.tell(x, problem.f(x) + rng.standard_normal(1))
    assert game.model.sequence.hypothesis is None
    assert game.certificate().regret == np.inf
    values = problem.f(LINE.X)
    assert problem.f(game.X[-20:]).mean() > values.min() + 0.8 * np.ptp(values)


def test_after_an_alarm_it_asks_with_all_base_kernels():
    full = line_problem(active=(0, 1, 2, 3, 4, 5, 6, 7))
    narrow = KernelSum.uniform(legendre(8, scaling="l2"), active=[0])
    game = gpucb(narrow, LINE, rng=np.random.default_rng(0), noise_std=NOISE, norm_bound=BOUND)
    game.tell(LINE.X[::20], full.f(LINE.X[::20]))
    play(game, full, 20)
    assert game.model.sequence.alarm is not None
    assert game.model.sequence.hypothesis.kernel.dim == 8
    best = full.f(LINE.X).max()
    assert best - full.f(game.best().x)[0] <= game.certificate().regret
    assert game.certificate().regret < 1


def test_a_failed_call_leaves_optimizer_and_confidence_at_the_same_time():
    problem = line_problem()
    game = optimizer(problem, LINE, norm_bound=lambda t: 4.0 + t if t < 3 else np.nan, nu=2.0)
    play(game, problem, 2)
    x, before = game.ask(), game.best()
    with pytest.raises(InputError, match=r"norm_bound\(3\) is nan"):
        game.tell(x, 0.3)
    assert game.t == game.model.sequence.t == len(game.y) == game.model.fixed.t == 2
    assert len(game.pending) == 1
    assert game.best().value == before.value


def test_an_empty_call_changes_nothing():
    problem = square_problem()
    game = play(optimizer(problem, SQUARE), problem, 3)
    before = game.to_dict()
    game.tell(np.zeros((0, 2)), [])
    assert game.to_dict() == before


@pytest.mark.parametrize("domain", [SQUARE, box([(-1, 1)])], ids=["square", "line"])
@pytest.mark.parametrize("options", [{}, {"norm_bound": None}, {"nu": 2.0}], ids=str)
def test_one_huge_value_stops_no_search(domain, options):
    """Warnings are errors here, so nothing overflows on the way either."""
    problem = line_problem() if domain.d0 == 1 else square_problem()
    for value in (1e20, -1e39, 1e49):
        game = play(optimizer(problem, domain, **options), problem, 3)
        game.tell(game.ask(), value)
        play(game, problem, 3)
        assert domain.contains(game.ask()[None]).all()
        assert game.certificate().regret >= 0  # false for nan


@pytest.mark.parametrize("power", [-6, 20, 40])
def test_the_units_of_the_values_do_not_matter(power):
    problem, unit = square_problem(), 10.0**power
    one = optimizer(problem, SQUARE)
    other = optimizer(problem, SQUARE, noise_std=NOISE * unit, norm_bound=BOUND * unit)
    for _ in range(6):
        x, z = one.ask(), other.ask()
        assert_allclose(x, z, atol=1e-3)
        one.tell(x, problem.f(x))
        other.tell(x, unit * problem.f(x))
        other.drop(z) if other.pending else None
    assert_allclose(other.certificate().regret / unit, one.certificate().regret, rtol=1e-3)
