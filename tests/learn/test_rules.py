"""Lambda rules: order, scaling, the event A under fixed and adaptive points, bad input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from metakel.errors import InputError, ShapeError
from metakel.grouplasso.problem import Problem
from metakel.kernels import legendre
from metakel.learn.rules import (
    RULES,
    chernoff,
    choose_lambda,
    dimension_free,
    hkz,
    monte_carlo,
    paper,
    pivotal_lambda,
    self_normalized,
)
from metakel.theory import lambda_min_paper

GROUPS = [slice(0, 1), slice(1, 3), slice(3, 6), slice(6, 7)]
ONE_COLUMN_EACH = [slice(j, j + 1) for j in range(20)]
ANALYTIC = ("self-normalized", "hkz", "dimension-free", "chernoff", "paper")


def bounded_features(rng, m=5, n=12):
    """(m, n, 7) features with k_j <= 1 in every group, of different typical size."""
    Phi = rng.uniform(-1, 1, (m, n, 7))
    Phi[:, :, 1:3] /= np.sqrt(2)
    Phi[:, :, 3:6] /= np.sqrt(3) * 2
    return Phi


def problem_of(Phi, groups=GROUPS):
    return Problem.from_arrays(Phi, np.ones(Phi.shape[:2]), groups)


@pytest.fixture
def Phi():
    return bounded_features(np.random.default_rng(0))


@pytest.fixture
def problem(Phi):
    return problem_of(Phi)


def lam_of(rule, problem, *, noise_std=1.0, delta=0.1, **options):
    rng = np.random.default_rng(7)
    return choose_lambda(
        rule, problem, noise_std=noise_std, delta=delta, rng=rng, draws=199, **options
    )


def test_the_rules_are_ordered_when_kernels_are_at_most_one(problem):
    sharp, plain, free, printed = (
        rule(problem, noise_std=0.3, delta=0.1) for rule in (chernoff, hkz, dimension_free, paper)
    )
    assert (sharp <= plain).all()
    assert (plain <= free).all()
    assert (free <= printed).all()
    assert (sharp < plain).any()


@pytest.mark.parametrize("rule", RULES)
def test_lambda_is_linear_in_the_noise_and_falls_with_delta(rule, problem):
    one = lam_of(rule, problem)
    assert_allclose(lam_of(rule, problem, noise_std=0.01), 0.01 * one, rtol=1e-13)
    looser = lam_of(rule, problem, delta=0.3)
    assert (looser <= one * (1 + 1e-12)).all()
    assert one.shape == (problem.p,)


@pytest.mark.parametrize("rule", RULES)
def test_more_kernels_never_lower_lambda(rule, Phi):
    few, many = problem_of(Phi[:, :, :3], GROUPS[:2]), problem_of(Phi)
    assert (lam_of(rule, few) <= lam_of(rule, many)[:2] * (1 + 1e-12)).all()


@pytest.mark.parametrize("rule", RULES)
def test_rotating_a_group_differently_in_every_task_changes_nothing(rule, Phi):
    rng = np.random.default_rng(1)
    turned = Phi.copy()
    for s in range(len(Phi)):
        rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        turned[s, :, 3:6] = Phi[s, :, 3:6] @ rotation
    assert_allclose(lam_of(rule, problem_of(turned)), lam_of(rule, problem_of(Phi)), rtol=1e-9)


@pytest.mark.parametrize("rule", ["hkz", "chernoff", "monte-carlo"])
def test_grams_give_the_lambda_of_the_features_they_come_from(rule, Phi, problem):
    K = [np.stack([F[:, g] @ F[:, g].T for g in GROUPS]) for F in Phi]
    grams = Problem.from_grams(K, np.ones(Phi.shape[:2]))
    assert_allclose(lam_of(rule, grams), lam_of(rule, problem), rtol=1e-10)


def test_self_normalized_with_grams_uses_the_rank_that_n_points_can_have(Phi):
    grams = Problem.from_grams([F[None] @ F.T for F in Phi], np.ones(Phi.shape[:2]))
    features = problem_of(np.pad(Phi, ((0, 0), (0, 0), (0, 20))), [slice(0, 27)])
    assert_allclose(
        lam_of("self-normalized", grams, sup=7.0), lam_of("self-normalized", features, sup=7.0)
    )


@pytest.mark.parametrize("rule", ["self-normalized", "dimension-free"])
@pytest.mark.parametrize("factor", [1e-3, 50.0])
def test_scaling_features_and_sup_scales_lambda(rule, factor, Phi, problem):
    scaled = problem_of(factor * Phi)
    assert_allclose(
        lam_of(rule, scaled, sup=np.full(4, factor**2)), factor * lam_of(rule, problem), rtol=1e-12
    )


@pytest.mark.parametrize("rule", ["hkz", "chernoff", "monte-carlo"])
def test_rules_that_read_the_scale_off_the_data_follow_each_group(rule, Phi, problem):
    scales = np.array([1e-3, 1.0, 20.0, 5.0])
    scaled = problem_of(Phi * np.repeat(scales, [1, 2, 3, 1]))
    assert_allclose(lam_of(rule, scaled), scales * lam_of(rule, problem), rtol=1e-10)


def test_unknown_sup_counts_as_one(problem):
    known = lam_of("self-normalized", problem, sup=np.ones(4))
    assert_array_equal(lam_of("self-normalized", problem), known)
    assert_array_equal(lam_of("self-normalized", problem, sup=[1, np.nan, 1, np.nan]), known)


def test_rho_does_not_look_at_the_points(problem):
    # Without features the rule is 4 sigma / N sqrt(rho 2 log(8 p / delta)), at the smallest rho.
    empty = problem_of(np.zeros((5, 12, 7)))
    log_term = 2 * np.log(8 * 4 / 0.1)
    largest = 128 * (lam_of("self-normalized", empty) * 60 / 4) ** 2 / log_term
    expected = [
        4 / 60 * np.sqrt(min(bound(v, top * 2.0**-i, log_term) for i in range(8)))
        for v, top in zip(problem.spectra(), largest, strict=True)
    ]
    assert_allclose(lam_of("self-normalized", problem), expected)
    # ... and the largest rho minimises the worst case.
    grid = np.geomspace(largest[0] / 100, largest[0] * 100, 2001)
    worst = (12 + grid) * (5 * np.log1p(12 / grid) + log_term)
    assert_allclose(grid[worst.argmin()], largest[0], rtol=0.02)


def bound(v, rho, log_term):
    """Squared self-normalized bound of unit noise at one rho."""
    return (v.max() + rho) * (np.log1p(v / rho).sum() + log_term)


def single_rho(problem, sup, delta=0.1):
    """Lambda of one rho, the best for the worst case; tasks of equal size, one column each."""
    n, log_term = int(problem.sizes[0]), 2 * np.log(problem.p / delta)
    u = np.geomspace(1e-3, 1e3, 20001)
    best = u[((1 + u) * (problem.m * np.log1p(1 / u) + log_term)).argmin()]
    energy = [
        bound(v, best * n * top, log_term) for v, top in zip(problem.spectra(), sup, strict=True)
    ]
    return 4 / problem.total * np.sqrt(energy)


@pytest.mark.parametrize(("m", "ratio"), [(1, 0.893), (10, 0.929), (50, 0.965), (200, 0.984)])
def test_at_worst_the_grid_of_rho_has_the_price_of_eight_times_as_many_kernels(m, ratio):
    ones = problem_of(np.ones((m, 20, 20)), ONE_COLUMN_EACH)
    single = single_rho(ones, np.ones(20))
    # reference: an independent implementation
    assert_allclose(single / lam_of("paper", ones), ratio, atol=1e-3)
    price = lam_of("self-normalized", ones) / single
    assert (price >= 1).all()
    assert (price <= np.sqrt(np.log(8 * 20 / 0.1) / np.log(20 / 0.1)) * (1 + 1e-6)).all()


@pytest.mark.parametrize("m", [20, 200])
def test_the_grid_of_rho_gains_where_features_are_small_at_most_points(m):
    base = legendre(20, scaling="l2")
    X = np.random.default_rng(0).uniform(-1, 1, (m, 30, 1))
    wavy = problem_of(np.stack([base.features(x) for x in X]), ONE_COLUMN_EACH)
    lam = lam_of("self-normalized", wavy, sup=base.sup)
    gained = lam / single_rho(wavy, base.sup)
    assert gained[-1] < 0.7
    assert np.median(gained) < 0.85
    assert (lam >= chernoff(wavy, noise_std=1.0, delta=0.1)).all()


def event_frequency(problem, Phi, lam, noise, weights=None):
    """How often ||(Phi' eps)^(j)|| / N <= lam_j / 4 for all groups, over noise (R, m, n)."""
    weights = np.ones(len(Phi)) if weights is None else weights
    score = np.einsum("s,snd,rsn->rsd", weights, Phi, noise, optimize=True)
    norms = np.stack([np.sqrt((score[:, :, g] ** 2).sum((1, 2))) for g in GROUPS], axis=1)
    return float((norms / problem.total <= lam / 4).all(axis=1).mean())


NOISES = {
    "gaussian": lambda rng, size: rng.standard_normal(size),
    "rademacher": lambda rng, size: rng.choice([-1.0, 1.0], size=size),
    "uniform": lambda rng, size: rng.uniform(-np.sqrt(3), np.sqrt(3), size),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rule", ANALYTIC)
def test_the_event_holds_as_often_as_promised(rule, noise, Phi, problem):
    draws = NOISES[noise](np.random.default_rng(2), (1000, 5, 12))
    frequency = event_frequency(problem, Phi, lam_of(rule, problem), draws)
    assert frequency >= stats.binom.ppf(1e-4, 1000, 0.9) / 1000


def test_a_lambda_a_third_lower_would_not_do(Phi, problem):
    draws = np.random.default_rng(2).standard_normal((1000, 5, 12))
    lam = chernoff(problem, noise_std=1.0, delta=0.1) * 2 / 3
    assert event_frequency(problem, Phi, lam, draws) < 0.85


def test_the_simulated_rule_has_exactly_the_level_asked_for(Phi, problem):
    lam = monte_carlo(problem, noise_std=1.0, delta=0.1, rng=np.random.default_rng(3), draws=999)
    draws = np.random.default_rng(4).standard_normal((4000, 5, 12))
    deviation = np.sqrt(0.09 / 999 + 0.09 / 4000)  # of the rule, and of its check
    assert abs(event_frequency(problem, Phi, lam, draws) - 0.9) < 4 * deviation


def test_the_papers_rule_is_the_printed_number_for_tasks_of_equal_size(problem):
    printed = lambda_min_paper(noise_std=0.3, m=5, n=12, p=4, d_max=3, delta=0.1)
    assert_allclose(paper(problem, noise_std=0.3, delta=0.1), printed, rtol=1e-12)


@pytest.mark.parametrize("loss", ["points", "tasks"])
def test_the_papers_rule_stays_above_the_others_for_tasks_of_unequal_size(loss):
    rng = np.random.default_rng(5)
    sizes = [1, 1, 2, 40, 200]
    ones = [np.ones((n, 7)) / np.sqrt(np.repeat([1, 2, 3, 1], [1, 2, 3, 1])) for n in sizes]
    parts = [F * rng.choice([-1.0, 1.0], F.shape) for F in ones]
    problem = Problem.from_tasks(parts, [np.ones(n) for n in sizes], GROUPS, loss=loss)
    free = dimension_free(problem, noise_std=1.0, delta=0.1)
    assert (paper(problem, noise_std=1.0, delta=0.1) >= free).all()


@pytest.mark.parametrize("rule", ANALYTIC)
def test_the_event_holds_for_tasks_of_unequal_size_weighted_alike(rule):
    rng = np.random.default_rng(5)
    sizes = np.array([3, 12, 12, 7, 1])
    Phi = bounded_features(rng)
    present = np.arange(12) < sizes[:, None]
    rows = [F[:n] for F, n in zip(Phi, sizes, strict=True)]
    problem = Problem.from_tasks(rows, [np.ones(n) for n in sizes], GROUPS, loss="tasks")
    draws = rng.standard_normal((1000, 5, 12)) * present
    weights = sizes.sum() / (5 * sizes)
    frequency = event_frequency(problem, Phi, lam_of(rule, problem), draws, weights)
    assert frequency >= stats.binom.ppf(1e-4, 1000, 0.9) / 1000


@dataclass(frozen=True)
class OneTask:
    """n observations of the feature 1: the smallest problem a rule can read."""

    n: int
    m = p = 1
    dims = (1,)
    task_weights = np.ones(1)

    @property
    def total(self):
        return self.n

    @property
    def sizes(self):
        return np.array([self.n])

    def spectra(self):
        return [np.array([[float(self.n)]])]

    def energies(self, vectors):
        return np.array([vectors[0].sum() ** 2])


HORIZON = 300


@pytest.fixture(scope="module")
def walks():
    """(R, HORIZON) sums of unit Gaussian noise, as a policy that may stop sees them."""
    return np.random.default_rng(6).standard_normal((2000, HORIZON)).cumsum(axis=1)


def test_self_normalized_survives_a_policy_that_stops_when_it_likes(walks):
    # The worst policy: stop at the first n at which the event fails.
    levels = np.array(
        [
            n / 4 * self_normalized(OneTask(n), noise_std=1.0, delta=0.1, planned_sizes=HORIZON)[0]
            for n in range(1, HORIZON + 1)
        ]
    )
    coverage = (np.abs(walks) <= levels).all(axis=1).mean()
    assert coverage >= stats.binom.ppf(1e-4, len(walks), 0.9) / len(walks)


@pytest.mark.parametrize(("rule", "survives"), [("self-normalized", True), ("monte-carlo", False)])
def test_the_event_under_a_policy_that_looks_away_when_noise_has_piled_up(rule, survives, walks):
    # One feature in {0, 1}, HORIZON points: 1 until the event fails, if it ever does, then 0.
    levels = np.array(
        [HORIZON / 4 * lam_of(rule, LookingAway(n))[0] for n in range(1, HORIZON + 1)]
    )
    coverage = (np.abs(walks) <= levels).all(axis=1).mean()
    assert (coverage >= stats.binom.ppf(1e-4, len(walks), 0.9) / len(walks)) == survives


@dataclass(frozen=True)
class LookingAway(OneTask):
    """One task of HORIZON points, at n of which the feature is 1, and 0 at the others."""

    @property
    def total(self):
        return HORIZON

    @property
    def sizes(self):
        return np.array([HORIZON])

    def energies(self, vectors):
        return np.array([vectors[0][: self.n].sum() ** 2])


def test_the_simulated_rule_does_not_survive_that_policy(walks):
    rng = np.random.default_rng(7)
    lam = monte_carlo(OneTask(50), noise_std=1.0, delta=0.1, rng=rng, draws=999)[0]
    quantile = 50 / 4 * lam / np.sqrt(50)  # |sum| <= quantile sqrt(n): the same for every n
    assert_allclose(quantile, stats.norm.ppf(0.95), rtol=0.1)
    fixed = (np.abs(walks[:, -1]) <= quantile * np.sqrt(HORIZON)).mean()
    stopped = (np.abs(walks) <= quantile * np.sqrt(np.arange(1, HORIZON + 1))).all(axis=1).mean()
    assert fixed > 0.85
    assert stopped < 0.5


def test_the_pivotal_rule_bounds_noise_of_any_size(Phi, problem):
    analytic = pivotal_lambda(problem, delta=0.1)
    simulated = pivotal_lambda(problem, delta=0.1, rng=np.random.default_rng(8), draws=999)
    noise = 1e5 * np.random.default_rng(9).standard_normal((2000, 5, 12))
    score = np.einsum("snd,rsn->rsd", Phi, noise)
    norms = np.stack([np.sqrt((score[:, :, g] ** 2).sum((1, 2))) for g in GROUPS], axis=1)
    ratio = norms / (np.sqrt(60) * np.sqrt((noise**2).sum((1, 2))))[:, None]
    covered = [(ratio <= lam / 2).all(axis=1).mean() for lam in (analytic, simulated)]
    assert covered[0] >= 0.9
    assert abs(covered[1] - 0.9) < 4 * np.sqrt(0.09 / 999 + 0.09 / 2000)
    assert (simulated < analytic).all()


def test_the_pivotal_rule_tends_to_half_of_lambda_over_sigma():
    Phi = bounded_features(np.random.default_rng(0), m=40, n=1000)
    large = problem_of(Phi)
    with_sigma = chernoff(large, noise_std=1.0, delta=0.1)
    assert_allclose(2 * pivotal_lambda(large, delta=0.1), with_sigma, rtol=0.05)


def test_too_few_observations_for_the_pivotal_bound_are_refused():
    with pytest.raises(InputError, match="too few"):
        pivotal_lambda(OneTask(3), delta=0.1)
    assert pivotal_lambda(OneTask(3), delta=0.1, rng=np.random.default_rng(0)) > 0


@pytest.mark.parametrize("rule", RULES)
def test_a_kernel_without_features_gets_a_usable_lambda(rule, Phi):
    Phi[:, :, 6] = 0.0
    lam = lam_of(rule, problem_of(Phi))
    assert np.isfinite(lam).all()
    assert (lam > 0).all()
    assert (lam_of(rule, problem_of(0 * Phi)) > 0).all()


def test_chernoff_solves_its_equation():
    # One eigenvalue v, tail P(v g^2 > q): the optimal t is (1 - v/q) / (2 v).
    n, x = 50, np.log(1 / 0.1)
    q = (OneTask(n).total * chernoff(OneTask(n), noise_std=1.0, delta=0.1)[0] / 4) ** 2 / n
    assert_allclose(q - 1 - np.log(q), 2 * x, rtol=1e-8)


def test_given_values_are_used_as_they_are(problem):
    assert_array_equal(choose_lambda(0.03, problem, noise_std=None, delta=0.1), np.full(4, 0.03))
    each = np.array([0.1, 0.2, 0.3, 0.4])
    assert_array_equal(choose_lambda(each, problem, noise_std=None, delta=0.1), each)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rule": [0.1, 0.1, 0.0, 0.1]}, InputError, "finite numbers > 0"),
        ({"rule": [0.1, 0.1, 0.1]}, ShapeError, r"\(3,\).*\(4,\)"),
        ({"rule": ["a"]}, InputError, r"\[.a.\]; expected numbers > 0"),
        ({"rule": None}, InputError, "lam is None; expected numbers > 0"),
        ({"rule": "lasso"}, InputError, r"'lasso'.*self-normalized, hkz"),
        ({"rule": "square-root"}, InputError, "pivotal_lambda"),
        ({"noise_std": None}, InputError, "noise_std is None"),
        ({"delta": 0.0}, InputError, "delta is 0"),
        ({"rule": "monte-carlo"}, InputError, "pass rng="),
        ({"rule": "monte-carlo", "rng": 0}, InputError, "rng is 0; expected a numpy"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected(options, error, message, problem):
    given = {"rule": "hkz", "noise_std": 1.0, "delta": 0.1, **options}
    with pytest.raises(error, match=message):
        choose_lambda(given.pop("rule"), problem, **given)


def test_single_rules_refuse_what_they_cannot_use(problem):
    with pytest.raises(InputError, match="at least 99"):
        monte_carlo(problem, noise_std=1.0, delta=0.01, rng=np.random.default_rng(0), draws=98)
    with pytest.raises(ShapeError, match="one value per kernel"):
        lam_of("self-normalized", problem, sup=np.ones(3))
    with pytest.raises(InputError, match="kernel 0 has mean"):
        lam_of("dimension-free", problem_of(3 * np.ones((2, 5, 7))))
    with pytest.raises(InputError, match=r"rng is 0; expected a numpy\.random\.Generator"):
        pivotal_lambda(problem, delta=0.1, rng=0)
