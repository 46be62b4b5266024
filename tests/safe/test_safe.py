"""Safe search: limits hold at every point that is tried, and the search still gets somewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from worlds import failures_allowed

import metakel as mk
from gpucb import gpucb
from metakel import safe
from metakel.kernels.sum import KernelFunction
from metakel.optimize import Optimizer
from metakel.safe.limits import Limit, Range, shares
from metakel.space import Categorical, Float, Integer, Space

BASE = mk.kernels.legendre(20, scaling="sup")
KERNEL = mk.KernelSum.uniform(BASE, active=[0, 2, 5, 8, 12])
X = np.linspace(-1, 1, 81)
GRID = mk.grid([(-1, 1)], 81)
SIGMA, B = 0.05, 3.0


@dataclass
class Plant:
    """f = phi'theta of norm B, with five base kernels of 20; a third of it is below the limit."""

    kernel: mk.KernelSum
    theta: np.ndarray
    limit: float
    rng: np.random.Generator
    rademacher: bool = False

    @classmethod
    def draw(cls, rng, rademacher=False):
        kernel = mk.KernelSum.uniform(BASE, active=np.sort(rng.choice(20, 5, replace=False)))
        theta = rng.normal(size=5)
        theta *= rng.uniform(0.5, 1.0) * B / np.linalg.norm(theta)
        limit = float(np.quantile(kernel.features(X[:, None]) @ theta, 1 / 3))
        return cls(kernel, theta, limit, rng, rademacher)

    def f(self, x):
        return self.kernel.features(np.reshape(x, (-1, 1))) @ self.theta

    def measure(self, x, sigma=SIGMA):
        noise = self.rng.choice([-1.0, 1.0]) if self.rademacher else self.rng.normal()
        return float(self.f(x)[0] + sigma * noise)

    @property
    def start(self):
        """A point for which the user vouches."""
        return X[[self.middle]]

    @property
    def middle(self):
        safe = np.flatnonzero(self.f(X) >= self.limit + 0.2)
        return int(safe[len(safe) // 2])


def optimizer(plant, domain=GRID, seed=0, **options):
    given = {"norm_bound": B, "at_least": plant.limit, "start": plant.start[:, None], **options}
    given = {"noise_std": SIGMA, **given}
    return gpucb(plant.kernel, domain, rng=np.random.default_rng(seed), **given)


def play(plant, steps, **options):
    game = optimizer(plant, **options)
    tried = []
    for _ in range(steps):
        tried.append(game.ask())
        game.tell(tried[-1], plant.measure(tried[-1]))
    return game, np.array(tried)


@pytest.mark.parametrize("rademacher", [False, True])
def test_an_unsafe_point_is_tried_with_probability_at_most_delta(rademacher):
    rng = np.random.default_rng(0)
    unsafe = 0
    for _ in range(40):
        plant = Plant.draw(rng, rademacher)
        unsafe += bool((plant.f(play(plant, 10)[1]) < plant.limit).any())
    assert unsafe <= failures_allowed(40, 0.1)


def test_a_filter_of_two_standard_deviations_on_another_kernel_is_not_safe():
    """The negative control: same plants, points where mean - 2 sd is above the limit."""
    rng = np.random.default_rng(0)
    kernel = mk.KernelSum.uniform(mk.kernels.squared_exponential(lengthscales=[0.3]), weight=1.0)
    unsafe = 0
    for _ in range(60):
        plant = Plant.draw(rng)
        tried = [plant.start[0]]
        values = [plant.measure(tried[0])]
        for _ in range(11):
            post = mk.posterior(kernel, np.reshape(tried, (-1, 1)), values, noise_var=SIGMA**2)
            mean, sd = post.mean(X[:, None]), post.std(X[:, None])
            allowed = (mean - 2 * sd >= plant.limit) | (tried[0] == X)
            tried.append(X[int(np.argmax(np.where(allowed, mean + 2 * sd, -np.inf)))])
            values.append(plant.measure(tried[-1]))
        unsafe += bool((plant.f(tried) < plant.limit).any())
    assert unsafe > 12


def test_the_safe_set_only_grows_on_a_finite_domain_and_holds_what_is_asked_for():
    plant = Plant.draw(np.random.default_rng(1))
    game = optimizer(plant)
    before = game.allowed(X)
    assert before.sum() == 1
    for _ in range(15):
        x = game.ask()
        assert game.allowed(x)[0]
        game.tell(x, plant.measure(x))
        now = game.allowed(X)
        assert (now | ~before).all()
        before = now
    assert before.sum() > 10


def test_the_optimum_is_reached_behind_an_unsafe_gap():
    """No safe path is needed: values on one side determine the features of the other."""
    rng = np.random.default_rng(2)
    reached, runs = 0, 0
    while runs < 15:
        plant = Plant.draw(rng)
        f = plant.f(X)
        parts = np.cumsum(np.r_[0, np.diff((f >= plant.limit).astype(int)) != 0])
        best = int(np.argmax(f))
        elsewhere = np.flatnonzero((f >= plant.limit + 0.2) & (parts != parts[best]))
        if not len(elsewhere):
            continue
        runs += 1
        start = X[elsewhere[np.argmax(f[elsewhere])]]
        game = optimizer(plant, start=[[start]], noise_std=0.02)
        for _ in range(30):
            x = game.ask()
            at = int(np.argmin(np.abs(X - x[0])))
            assert f[at] >= plant.limit
            if parts[at] == parts[best]:
                reached += 1
                break
            game.tell(x, plant.measure(x, 0.02))
    assert reached >= 9


@pytest.mark.parametrize(("told", "expected"), [([1.0], 0.0), ([0.0, 1.0, 0.0, 0.0, 0.0], 1.0)])
def test_it_looks_beyond_once_safe_points_promise_little(told, expected):
    """The safe point 0 may be good, the safe point 1 tells about the goal 2, which is not safe yet.

    Before 0 was measured it promises enough to be next. Once it is known, 1 is next.
    """
    Phi = np.array([[0.0, 1.0], [0.3, 0.0], [2.0, 0.0]])
    base = mk.kernels.from_features(lambda Z: Phi[Z[:, 0].astype(int)], 2, name="three points")
    center = np.array([1.2, 1.0, 1.5])
    game = gpucb(
        mk.KernelSum.uniform(base, weight=1.0),
        mk.candidates([0.0, 1.0, 2.0]),
        rng=np.random.default_rng(0),
        noise_std=0.1,
        norm_bound=1.0,
        center=lambda Z: center[Z[:, 0].astype(int)],
        at_least=0.9,
        start=[[0.0], [1.0]],
    )
    for x in told:
        game.tell([x], float(center[int(x)]))
    assert game.t % 3  # not the turn of the goal
    assert_array_equal(game.allowed([[0.0], [1.0], [2.0]]), [True, True, False])
    assert game.ask()[0] == expected


def test_the_certificate_bounds_the_distance_to_the_best_safe_point_on_covered_runs():
    rng = np.random.default_rng(3)
    for seed in range(6):
        plant = Plant.draw(rng)
        game = optimizer(plant, seed=seed)
        f, regrets = plant.f(X), []
        for _ in range(10):
            x = game.ask()
            game.tell(x, plant.measure(x))
            lower, upper = game.confidence()
            assert ((lower <= f) & (f <= upper)).all()
            regret = f[f >= plant.limit].max() - plant.f(game.best().x)[0]
            regrets.append(game.certificate().regret)
            assert regret <= regrets[-1]
        assert regrets[-1] < regrets[0]


def test_a_limit_on_an_output_equal_to_the_objective_gives_the_same_safe_set():
    plant = Plant.draw(np.random.default_rng(4))
    limit = Limit(plant.kernel, SIGMA, norm_bound=B, at_least=plant.limit, delta=0.05)
    one = optimizer(plant, delta=0.05)
    two = optimizer(plant, at_least=None, limits={"copy": limit}, delta=0.1)
    for _ in range(8):
        x = one.ask()
        y = plant.measure(x)
        one.tell(x, y)
        two.tell(x, y, {"copy": y})
        assert_array_equal(one.allowed(X), two.allowed(X))


def test_a_ceiling_is_a_floor_upside_down():
    plant = Plant.draw(np.random.default_rng(5))
    center = KernelFunction(plant.kernel, np.array([0.1, 0.2, 0.0, 0.0, -0.1]))
    floor = optimizer(plant, center=center)
    ceiling = optimizer(plant, center=-center, at_least=None, at_most=-plant.limit, minimize=True)
    for _ in range(6):
        x = floor.ask()
        assert_array_equal(x, ceiling.ask())
        y = plant.measure(x)
        floor.tell(x, y)
        ceiling.tell(x, -y)
        assert_array_equal(floor.allowed(X), ceiling.allowed(X))
    assert_allclose(floor.certificate().regret, ceiling.certificate().regret)


def test_shares_of_delta_add_up():
    limits = {name: Limit(KERNEL, 1.0, at_most=1.0, delta_learning=0.01) for name in "ab"}
    limits["c"] = Limit(KERNEL, 1.0, at_most=1.0, delta=0.02)
    own, parts = shares(0.1, 0.03, limits)
    assert_allclose(own + sum(parts.values()) + 0.03 + 2 * 0.01, 0.1)
    assert own == parts["a"] == parts["b"]
    assert parts["c"] == 0.02
    with pytest.raises(mk.InputError, match="nothing is left"):
        shares(0.1, 0.09, limits)


def test_a_batch_stays_inside_whatever_is_pending():
    plant = Plant.draw(np.random.default_rng(6))
    game = optimizer(plant)
    assert game.allowed(np.array(game.ask_batch(3))).all()  # one point, to be measured again
    for x in game.pending:
        game.tell(x, plant.measure(x))
    for _ in range(3):
        batch = game.ask_batch(4)
        assert game.allowed(np.array(batch)).all()
        for x in batch[::-1]:
            game.tell(x, plant.measure(x))


@pytest.mark.parametrize("domain", [GRID, mk.box([(-1, 1)])])
def test_a_stored_search_has_the_same_safe_set_and_asks_for_the_same_point(domain):
    plant = Plant.draw(np.random.default_rng(7))
    limit = Limit(KERNEL, 1.0, norm_bound=3.0, at_most=2.5)
    game = optimizer(plant, domain, limits={"heat": limit})
    for _ in range(6):
        x = game.ask()
        game.tell(x, plant.measure(x), {"heat": float(x[0])})
    again = Optimizer.from_dict(game.to_dict())
    assert_array_equal(again.allowed(X), game.allowed(X))
    assert_array_equal(again.model.margin(X[:, None]), game.model.margin(X[:, None]))
    assert_array_equal(again.ask(), game.ask())


def test_without_a_norm_bound_the_safe_set_is_the_start_until_the_features_are_spanned():
    plant = Plant.draw(np.random.default_rng(8))
    around = X[plant.middle - 3 : plant.middle + 4]
    start = around[plant.f(around) >= plant.limit]
    game = optimizer(plant, norm_bound=None, start=start[:, None], noise_std=0.002)
    for t in range(25):
        if t < 5:
            assert_array_equal(X[game.allowed(X)], start)
        x = game.ask()
        assert plant.f(x)[0] >= plant.limit
        game.tell(x, plant.measure(x, 0.002))
    assert game.allowed(X).sum() > len(start)


def test_statement_15_bounds_every_width_once_the_features_are_spanned():
    from metakel.confidence import ConfidenceSequence
    from metakel.theory import reach_width

    rng = np.random.default_rng(11)
    theta = rng.normal(size=5)
    safe = np.linspace(-0.9, 0.1, 7)[:, None]  # on one side only
    band = ConfidenceSequence(KERNEL, noise_std=SIGMA, norm_bound=None, full=KERNEL)
    hypothesis = band.hypothesis
    widths = []
    for rounds in (1, 10, 100):
        points = np.tile(safe, (rounds, 1))
        band.tell(
            points[band.t :],
            KERNEL.features(points[band.t :]) @ theta
            + SIGMA * rng.normal(size=len(points) - band.t),
        )
        Phi = KERNEL.features(points)
        y = np.concatenate([batch.y for batch in band.told.batches])
        G = Phi.T @ Phi / len(points)
        fitted = np.linalg.lstsq(Phi, y, rcond=None)[0]
        lower, upper = band.current.interval(X[:, None])
        Z = KERNEL.features(X[:, None])
        sizes = np.sqrt(np.einsum("nd,de,ne->n", Z, np.linalg.inv(G), Z))
        bounds = [
            [
                reach_width(
                    n=len(points), dim=5, phi_norm=size, trace=np.trace(G), noise_std=SIGMA,
                    norm=np.linalg.norm(fitted), scale=scale, weight=np.exp(log_weight), delta=0.1,
                )
                for scale, log_weight in zip(hypothesis.scales, hypothesis.log_weights, strict=True)
            ]
            for size in sizes
        ]  # fmt: skip
        assert ((upper - lower) / 2 <= np.min(bounds, axis=1) * (1 + 1e-6)).all()
        widths.append(np.max(upper - lower))
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_on_a_box_every_point_is_safe_too():
    rng = np.random.default_rng(9)
    for _ in range(3):
        plant = Plant.draw(rng)
        game, tried = play(plant, 8, domain=mk.box([(-1, 1)]))
        assert (plant.f(tried) >= plant.limit).all()
        assert game.allowed(tried).all()


def test_in_a_named_space_the_rounded_configuration_is_safe():
    space = Space(
        (Float("gain", 0.0, 10.0), Integer("steps", 1, 6), Categorical("mode", ("slow", "fast")))
    )
    linear = mk.kernels.from_features(lambda Z: np.c_[np.ones(len(Z)), Z], 5, name="linear", d0=4)
    kernel = mk.KernelSum.uniform(linear, weight=1.0)
    theta = np.array([0.3, 0.5, -0.4, 0.3, -0.3])

    def f(row):
        return float(kernel.features(space.encode([row]))[0] @ theta)

    game = gpucb(
        kernel,
        space,
        rng=np.random.default_rng(0),
        noise_std=0.02,
        norm_bound=1.0,
        at_least=0.0,
        start=[{"gain": 5.0, "steps": 2, "mode": "slow"}],
    )
    for _ in range(12):
        x = game.ask()
        assert isinstance(x["steps"], int)
        assert f(x) >= 0
        assert game.allowed([x])[0]
        game.tell(x, f(x))
    assert game.best().value > 0.9 * (0.3 + 0.5 + 0.4 + 0.3)


def test_no_safe_point_says_what_is_missing():
    plant = Plant.draw(np.random.default_rng(10))
    game = optimizer(plant, start=None)
    with pytest.raises(safe.NoSafePoint, match="no point is known to be safe") as raised:
        game.ask()
    lower, _ = game.confidence()
    assert_allclose(raised.value.margin, plant.limit - lower.max(), atol=1e-6)


def test_a_table_whose_safe_rows_were_all_tried_is_finished():
    plant = Plant.draw(np.random.default_rng(11))
    table = mk.candidates(np.r_[plant.start, -0.95, 0.95][:, None], repeat=False)
    game = optimizer(plant, table)
    game.tell(game.ask(), plant.limit + 0.2)
    with pytest.raises(safe.NoSafePoint, match="were tried"):
        game.ask()


def test_a_measurement_below_the_limit_is_no_violation_and_an_unsafe_tell_is_evidence():
    plant = Plant.draw(np.random.default_rng(12))
    game = optimizer(plant)
    worst = X[[int(np.argmin(plant.f(X)))]]
    game.tell(worst, plant.measure(worst))
    assert not game.allowed(worst)[0]
    assert game.allowed(game.ask())[0]
    assert game.certificate().regret == np.inf  # of a point that is not known to be safe


def test_an_alarm_stops_until_it_is_accepted_and_ends_what_past_tasks_vouch_for():
    plant = Plant.draw(np.random.default_rng(13))
    game = optimizer(plant, norm_bound=0.5)
    for _ in range(5):
        game.tell(plant.start[:, None], [10.0])
    assert game.alarm is not None
    with pytest.raises(mk.Alarm, match="accept_alarm"):
        game.ask()
    again = Optimizer.from_dict(game.to_dict())
    with pytest.raises(mk.Alarm):
        again.ask()
    game.accept_alarm()
    assert_allclose(game.ask(), plant.start)  # for which the user has vouched
    assert Optimizer.from_dict(game.to_dict()).peek() is not None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "amm"}, "dmm"),
        ({"norm_bound": lambda t: 1.0 + t}, "norm_bound is a function"),
        ({"on_alarm": "ignore"}, "ignore"),
        ({"at_least": 1.0, "at_most": 0.0}, "not below"),
        ({"at_least": float("nan")}, "finite"),
        ({"start": [[5.0]]}, "not in the domain"),
        ({"at_least": None}, "there is no limit"),
    ],
)
def test_what_cannot_be_promised_is_refused(options, says):
    with pytest.raises(mk.InputError, match=says):
        optimizer(Plant.draw(np.random.default_rng(0)), **options)


@pytest.mark.parametrize("outputs", [None, {}, {"heat": 1.0, "cold": 2.0}, {"heat": "hot"}, 3.0])
def test_outputs_are_given_by_the_names_of_the_limits(outputs):
    plant = Plant.draw(np.random.default_rng(0))
    game = optimizer(plant, limits={"heat": Limit(KERNEL, 1.0, norm_bound=1.0, at_most=9.0)})
    with pytest.raises(mk.InputError, match="output"):
        game.tell(plant.start, 0.1, outputs)
    assert game.t == 0
    game.tell(plant.start, 0.1, {"heat": None})  # not measured
    game.tell(plant.start, outputs={"heat": 2.0}, failed=True)  # no value, but the other output
    assert (game.t, game.model.outputs["heat"].sequence.t) == (1, 1)


def test_a_range_is_met_by_bounds_inside_and_hoped_for_by_bounds_that_overlap():
    allowed = Range.of("here", -1.0, 2.0)
    lower, upper = np.array([-0.5, -2.0, 3.0]), np.array([1.0, 1.0, 4.0])
    assert_array_equal(allowed.margin(lower, upper) >= 0, [True, False, False])
    assert_array_equal(allowed.hope(lower, upper) >= 0, [True, True, False])
    assert Range.of("here", *allowed.to_list()) == allowed
    assert -allowed == Range(-2.0, 1.0)
