"""The bounds of Sections 4 and 5 as functions of numbers."""

from __future__ import annotations

from inspect import signature
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy import stats

from metakel import theory
from metakel.errors import InputError, ShapeError
from metakel.theory import regret

PAPER = {"noise_std": 0.01, "m": 50, "n": 50, "p": 20, "delta": 0.1}


def test_the_printed_lambda_of_the_papers_example():
    assert_allclose(theory.lambda_min_paper(**PAPER, d_max=1), 0.0011120, atol=5e-8)
    assert_allclose(theory.lambda_min_paper(**PAPER, d_max=1, two_log=True), 0.0011789, atol=5e-8)


@pytest.mark.parametrize("m", [1, 3, 50, 2000])
@pytest.mark.parametrize("d_max", [1, 7])
@pytest.mark.parametrize(("p", "delta"), [(1, 0.5), (20, 0.1), (500, 1e-6)])
def test_the_corrected_lambda_is_below_the_printed_and_that_below_its_proof(m, d_max, p, delta):
    numbers = {"noise_std": 0.3, "m": m, "n": 17, "p": p, "delta": delta}
    statement = theory.lambda_min_paper(**numbers, d_max=d_max)
    assert theory.lambda_min(**numbers) <= statement
    assert statement < theory.lambda_min_paper(**numbers, d_max=d_max, two_log=True)


def test_the_printed_epsilon_is_the_error_at_the_smallest_lambda_only():
    epsilon = theory.recovery_error_paper(**PAPER, d_max=1, sparsity=5, kappa=0.1)
    smallest = theory.lambda_min_paper(**PAPER, d_max=1)
    error = theory.recovery_error(lam=smallest, sparsity=5, kappa=0.1)
    assert_allclose(epsilon, error)
    # 32 sigma s / (kappa^2 sqrt(mn)) times the square root of the statement
    root = smallest / (4 * 0.01 / 50)
    assert_allclose(epsilon, 32 * 0.01 * 5 / (0.1**2 * 50) * root)
    assert theory.recovery_error(lam=0.03, sparsity=5, kappa=0.1) > 26 * epsilon


@pytest.mark.parametrize("sparsity", [1, 5, 100])
def test_the_sharp_error_gains_the_root_of_the_sparsity(sparsity):
    plain = theory.recovery_error(lam=0.2, sparsity=sparsity, kappa=0.3)
    sharp = theory.recovery_error_sharp(lam=0.2, sparsity=sparsity, kappa=0.3)
    assert_allclose(plain / sharp, 16 / 3 * sqrt(sparsity))


def test_the_prediction_error_is_kappa_squared_times_the_squared_recovery_error():
    numbers = {"lam": 0.2, "sparsity": 3, "kappa": 0.4}
    assert_allclose(
        theory.prediction_error(**numbers), (0.4 * theory.recovery_error_sharp(**numbers)) ** 2
    )


def test_more_tasks_do_not_reduce_the_recovery_error():
    # kappa^2 <= 1/m, so with kappa at its best epsilon / sqrt(m), the relative error, is constant.
    def relative(m: int) -> float:
        lam = theory.lambda_min(noise_std=1.0, m=m, n=100, p=1, delta=0.5)
        kappa = theory.kappa_upper_bound(m=m)
        return theory.recovery_error_sharp(lam=lam, sparsity=1, kappa=kappa) / sqrt(m)

    assert_allclose(relative(10**8), relative(10**6), rtol=1e-2)
    assert_allclose(relative(10**8), 1.5 * 4 / 10, rtol=1e-2)


def test_proposition_4_4_corrected_is_never_below_64_s():
    for kappa in (0.01, 0.3):
        for phi_max in (kappa**2, 1.0):
            bound = theory.sparsity_bound(sparsity=3, kappa=kappa, phi_max=phi_max)
            assert bound >= 64 * 3 * (1 - 1e-12)
    assert theory.sparsity_bound_paper(m=4, n=4000, sparsity=3, kappa=0.5) < 3


@pytest.mark.parametrize("share", [1e-3, 0.1, 0.5, 0.99])
def test_the_printed_norm_bound_is_below_the_series_it_truncates(share):
    numbers = {"norm_bound": 2.0, "recovery_error": 3 * share, "beta_min": 3.0}
    printed, whole = theory.norm_bound_paper(**numbers), theory.norm_bound_series(**numbers)
    assert printed < whole
    assert_allclose(printed, whole, rtol=share**2 + (share > 0.4))


def test_the_series_ends_where_the_error_reaches_the_signal():
    assert theory.norm_bound_series(norm_bound=1.0, recovery_error=2.0, beta_min=2.0) == inf
    # ... and is the certificate at the smallest weight that Lemma B.3 leaves.
    assert_allclose(
        theory.norm_bound_series(norm_bound=1.0, recovery_error=0.5, beta_min=2.0),
        theory.norm_certificate(norm_bound=1.0, smallest_weight=0.75),
    )


def test_norms_scale_with_the_root_of_the_kernel():
    # f = phi' theta in one dimension: its norm in the space of c phi phi' is |theta| / sqrt(c).
    theta, c = 3.0, 4.0
    weight = theta / sqrt(c)  # coefficient of the feature sqrt(c) phi
    assert theory.rescaled_norm(norm=theta, factor=c) == weight
    assert theory.rescaled_norm_paper(norm=theta, factor=c) != weight
    assert theory.full_kernel_norm(norm_bound=1.0, p=16) == theory.norm_certificate(
        norm_bound=1.0, smallest_weight=1 / 16
    )
    assert theory.full_kernel_norm_paper(norm_bound=1.0, p=16) == 16


def log_det(features, noise_var):
    return np.linalg.slogdet(np.eye(features.shape[1]) + features.T @ features / noise_var)[1]


def test_information_gain_is_bounded_by_the_corrected_lemma_and_not_by_the_printed():
    rng = np.random.default_rng(0)
    weights = np.array([8.0, 4.0, 1.0])  # eta / c_1 with the smallest at 1
    violations = 0
    for t in (1, 5, 50):
        features = np.sqrt(weights) * rng.choice([-1.0, 1.0], size=(t, 3))  # k_j = 1
        realised = log_det(features, 1 + 2 / t) / 2
        numbers = {"dim": 3, "t": t, "noise_var": 1 + 2 / t}
        assert realised <= theory.information_gain_bound(**numbers, weight_sum=13.0)
        violations += realised > theory.information_gain_paper(**numbers, beta_min=1.0)
    assert violations > 0
    assert theory.information_gain_bound(dim=0, t=5, noise_var=1.0, weight_sum=0.0) == 0


def test_the_papers_exploration_at_perfect_recovery_is_the_oracles():
    numbers = {"norm_bound": 3.0, "noise_std": 0.5, "dim": 4, "t": 7, "delta": 0.05}
    printed = theory.exploration_paper(**numbers, recovery_error=0.0, beta_min=1.0)
    assert_allclose(printed, theory.exploration_oracle(**numbers))
    worse = theory.exploration_paper(**numbers, recovery_error=0.1, beta_min=1.0)
    assert_allclose(worse - printed, 3.0 * 0.05)
    assert theory.noise_var_paper(t=2) == 2.0


@pytest.mark.parametrize("c", [0.01, 7.0])
def test_the_corrected_interval_does_not_depend_on_the_scale_of_the_kernel(c):
    common = {"norm_bound": 3.0, "noise_std": 0.5, "information_gain": 2.0, "delta": 0.05}
    plain = theory.exploration(**common, smallest_weight=0.2, noise_var=0.3)
    scaled = theory.exploration(**common, smallest_weight=0.2 * c, noise_var=0.3 * c)
    assert_allclose(plain, scaled * sqrt(c))  # the posterior std grows by sqrt(c)


def test_corollary_5_2_bounds_what_the_posterior_variances_can_add_up_to():
    rng = np.random.default_rng(1)
    horizon, noise_var, sup = 40, 0.04, 9.0
    features = rng.standard_normal((horizon, 3))
    features *= 3 / np.linalg.norm(features, axis=1, keepdims=True)  # k(x, x) = 9
    precision, variances = np.eye(3), []
    for phi in features:
        variances.append(phi @ np.linalg.solve(precision, phi))
        precision += np.outer(phi, phi) / noise_var
    gain = log_det(features, noise_var) / 2
    bound = theory.regret_bound(
        horizon=horizon, nu=1.5, information_gain=gain, noise_var=noise_var, sup=sup
    )
    regret = 2 * 1.5 * np.sum(np.sqrt(variances))  # the largest that a covered run can have
    assert regret <= bound <= 10 * regret
    # The constant of k <= 1 is not enough here, and a first step attains the factor.
    assert_allclose(
        theory.regret_bound(
            horizon=1,
            nu=1.5,
            information_gain=np.log1p(sup / noise_var) / 2,
            noise_var=noise_var,
            sup=sup,
        ),
        2 * 1.5 * sqrt(sup),
    )


def test_regret_orders_grow_sublinearly_and_agree_up_to_logarithms():
    def mean_regret(horizon: int) -> float:
        return (
            theory.regret_paper(
                horizon=horizon, norm_bound=2.0, dim=3, recovery_error=0.1, delta=0.1
            )
            / horizon
        )

    assert mean_regret(10**6) < mean_regret(10**4) < mean_regret(10**2)
    gain = 3 * np.log(1000)
    assert_allclose(
        theory.regret_paper(horizon=1000, norm_bound=2.0, dim=3, recovery_error=0.0, delta=0.1),
        theory.regret_vanilla(horizon=1000, norm_bound=2.0, information_gain=gain, delta=0.1),
    )


@pytest.mark.parametrize(("m", "d"), [(1, 1), (50, 1), (8, 5)])
def test_detection_has_the_level_and_the_power_it_says(m, d):
    threshold = theory.screening_threshold(m=m, d=d, p=20, delta=0.1)
    assert_allclose(stats.chi2(m * d).sf(threshold), 0.1 / 20)
    nc = theory.detectable_noncentrality(m=m, d=d, p=20, delta=0.1, beta=0.05)
    assert_allclose(stats.ncx2(m * d, nc).cdf(threshold), 0.05, rtol=1e-6)


def test_detection_on_the_papers_example_and_when_nothing_is_asked():
    nc = theory.detectable_noncentrality(m=50, d=1, p=20, delta=0.1, beta=0.1 / 20)
    assert_allclose(nc, 76, atol=0.5)  # measured minimum over 20 draws of the example: 880
    assert theory.detectable_noncentrality(m=1, d=1, p=1, delta=0.5, beta=0.9) == 0.0


GOOD = {
    **dict.fromkeys(("m", "p", "d", "d_max", "horizon", "total", "dim", "sparsity", "t"), 3),
    **dict.fromkeys(("delta", "beta", "kappa", "recovery_error"), 0.1),
    **dict.fromkeys(("n", "beta_min", "smallest_weight", "noise_var", "factor", "sup"), 2.5),
    "lam_ratio": 1.5,
    **dict.fromkeys(("noise_std", "lam", "weight_sum", "smallest", "coherence", "phi_max"), 0.5),
    **dict.fromkeys(("norm_bound", "norm", "information_gain", "nu", "radius"), 1.5),
    **dict.fromkeys(("models", "total_dim"), 3),
    **dict.fromkeys(("phi_norm", "trace", "scale"), 1.5),
    "weight": 0.1,
    "coefficient_norms": [1.0, 0.0],
    "weights": [0.3, 0.0],
}
ARGUMENTS = [
    (name, argument)
    for name in theory.__all__
    for argument in signature(getattr(theory, name)).parameters
    if argument != "two_log"
]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_every_statement_refuses_numbers_it_says_nothing_about(name, argument):
    statement = getattr(theory, name)
    good = {a: GOOD[a] for a in signature(statement).parameters if a in GOOD}
    assert np.isfinite(statement(**good))
    for bad in (-1, float("nan"), "3", None, np.ones(2)):
        wrong = [0.3, bad] if argument in ("coefficient_norms", "weights") else bad
        with pytest.raises(InputError, match=rf"^{argument}.* is .*; expected a .*number"):
            statement(**{**good, argument: wrong})


def test_numbers_at_the_edge_of_a_statement_are_taken():
    assert theory.lambda_min(**{**PAPER, "noise_std": 0.0}) == 0
    assert theory.information_gain_bound(dim=3, t=0, noise_var=1.0, weight_sum=2.0) == 0
    assert theory.norm_certificate(norm_bound=inf, smallest_weight=np.float64(0.5)) == inf
    assert theory.kappa_upper_bound(m=np.int64(4)) == theory.kappa_upper_bound(m=4.0) == 0.5
    with pytest.raises(ShapeError, match="2 coefficient_norms and 1 weights"):
        theory.function_norm(coefficient_norms=[1.0, 2.0], weights=[1.0])


VALUES = arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=st.floats(-5, 5))


@given(VALUES)
def test_cumulative_regret_is_the_running_sum_and_instantaneous_its_difference(values):
    total = regret.cumulative(values, 5.0)
    assert_allclose(
        np.diff(total, axis=-1, prepend=0), regret.instantaneous(values, 5.0), atol=1e-12
    )


@given(VALUES)
def test_simple_regret_never_grows_and_is_the_smallest_instantaneous_so_far(values):
    simple = regret.simple(values, 5.0)
    assert (np.diff(simple, axis=-1) <= 0).all()
    assert_allclose(simple, np.minimum.accumulate(regret.instantaneous(values, 5.0), axis=-1))


def test_runs_are_rows_with_an_optimum_each():
    values = np.array([[1.0, 2.0], [0.0, -1.0]])
    assert_allclose(regret.cumulative(values, [2.0, 1.0]), [[1, 1], [1, 3]])
    assert_allclose(regret.cumulative(values[0], 2.0), [1, 1])


def test_the_papers_inference_regret_rewards_a_mean_that_promises_too_much():
    # The mean peaks at 3 where f is 1; f* is 2.
    assert regret.inference_paper([3.0], 2.0)[0] == -1
    assert regret.inference([1.0], 2.0)[0] == 1


@pytest.mark.parametrize(
    ("values", "best", "error"),
    [
        (1.0, 2.0, ShapeError),
        ([[1.0, 2.0]], [1.0, 2.0], ShapeError),
        ([1.0, np.nan], 2.0, InputError),
    ],
)
def test_what_cannot_be_a_regret_is_refused(values, best, error):
    with pytest.raises(error, match="regret"):
        regret.simple(values, best)
