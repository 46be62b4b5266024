"""Which kernels the data show: exactness of the tests, and certified values of kappa."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from metakel.errors import InputError, ShapeError
from metakel.learn.screening import (
    Screening,
    adaptive_screening,
    chi_square_screening,
    comparison_matrix,
    kappa_from_comparison,
    kappa_from_eigenvalue,
    kappa_from_group_coherence,
)
from metakel.theory import detectable_noncentrality, kappa_upper_bound

GROUPS = [slice(0, 1), slice(1, 3), slice(3, 6), slice(6, 7)]
SINGLES = [slice(j, j + 1) for j in range(7)]


def designs(rng, sizes=(12, 9, 20)):
    return [rng.standard_normal((n, 7)) for n in sizes]


def rss(F, y):
    residual = y - F @ np.linalg.lstsq(F, y, rcond=None)[0]
    return residual @ residual


@pytest.mark.parametrize("groups", [GROUPS, SINGLES])
def test_the_statistic_is_what_leaving_the_kernel_out_costs(groups):
    rng = np.random.default_rng(0)
    Phi = designs(rng)
    y = [rng.standard_normal(len(F)) for F in Phi]
    report = chi_square_screening(Phi, y, groups, noise_std=0.5, delta=0.1)
    for j, group in enumerate(groups):
        left_out = [np.delete(F, np.r_[group], axis=1) for F in Phi]
        cost = sum(rss(G, v) - rss(F, v) for F, G, v in zip(Phi, left_out, y, strict=True))
        assert_allclose(report.statistic[j], cost / 0.25, rtol=1e-9)


def simulate(rng, Phi, b, noise_std, runs):
    """Reports of `runs` draws of the noise around fixed coefficients b (7,) in every task."""
    for _ in range(runs):
        y = [F @ b + noise_std * rng.standard_normal(len(F)) for F in Phi]
        yield chi_square_screening(Phi, y, GROUPS, noise_std=noise_std, delta=0.1, beta=0.1)


def test_kernels_that_are_absent_give_uniform_p_values_and_are_rarely_kept():
    rng = np.random.default_rng(1)
    Phi = designs(rng)
    b = np.array([0, 0, 0, 5.0, -2.0, 1.0, 0])  # only kernel 2 is there
    reports = list(simulate(rng, Phi, b, 0.3, 300))
    p_values = np.array([report.p_values for report in reports])
    for j in (0, 1, 3):
        assert stats.kstest(p_values[:, j], "uniform").pvalue > 1e-3
    false = sum(any(j != 2 for j in report.kept) for report in reports)
    assert false <= stats.binom.ppf(1 - 1e-4, 300, 0.1)
    assert all(2 in report.kept for report in reports)


@pytest.mark.parametrize(
    ("share", "kept_at_least", "kept_at_most"), [(1.0, 0.84, 0.96), (0.2, 0, 0.5)]
)
def test_a_kernel_at_the_detectable_energy_is_kept_as_often_as_promised(
    share, kept_at_least, kept_at_most
):
    rng = np.random.default_rng(2)
    Phi = designs(rng)
    direction = np.array([0, 1.0, 2.0, 0, 0, 0, 0])
    energy = sum(rss(np.delete(F, [1, 2], axis=1), F @ direction) for F in Phi)
    detectable = 0.3**2 * detectable_noncentrality(m=1, d=6, p=4, delta=0.1, beta=0.1)
    b = direction * np.sqrt(share * detectable / energy)
    reports = list(simulate(rng, Phi, b, 0.3, 400))
    assert_allclose(reports[0].detectable[1], detectable)
    kept = np.mean([1 in report.kept for report in reports])
    assert kept_at_least <= kept <= kept_at_most


def test_scaling_values_and_noise_together_changes_nothing():
    rng = np.random.default_rng(3)
    Phi = designs(rng)
    y = [rng.standard_normal(len(F)) for F in Phi]
    one = chi_square_screening(Phi, y, GROUPS, noise_std=1.0, delta=0.1)
    big = chi_square_screening(Phi, [1e6 * v for v in y], GROUPS, noise_std=1e6, delta=0.1)
    assert_allclose(big.statistic, one.statistic)
    assert_allclose(big.detectable, 1e12 * one.detectable)


def adaptive_data(rng, b, noise_std):
    """Tasks whose next point depends on the last value, and which stop when a value is large."""
    Phi, y = [], []
    for _ in range(3):
        rows, values = [], []
        while len(rows) < 25:
            row = rng.standard_normal(7)
            if values and values[-1] > 0:
                row = -np.abs(row)
            rows.append(row)
            values.append(row @ b + noise_std * rng.standard_normal())
            if len(rows) >= 15 and abs(values[-1]) > 4:
                break
        Phi.append(np.array(rows))
        y.append(np.array(values))
    return Phi, y


def test_the_adaptive_test_keeps_no_absent_kernel_whatever_the_policy():
    rng = np.random.default_rng(4)
    b = np.array([2.0, 0, 0, 1.5, -2.0, 1.0, 0])
    kept = [
        set(
            adaptive_screening(
                *adaptive_data(rng, b, 0.3), GROUPS, noise_std=0.3, delta=0.1, scale=1.0
            )
        )
        for _ in range(200)
    ]
    assert sum(not k <= {0, 2} for k in kept) <= stats.binom.ppf(1 - 1e-4, 200, 0.1)
    assert sum(k == {0, 2} for k in kept) > 150  # it does see the strong ones


def test_the_adaptive_radius_is_the_one_of_the_mixture():
    # Written with n x n matrices, as in the docstring.
    rng = np.random.default_rng(5)
    Phi = designs(rng)
    y = [F @ np.array([0.7, 0, 0, 0.4, 0, 0, 0.1]) + 0.3 * rng.standard_normal(len(F)) for F in Phi]
    radius = 2 * 0.09 * np.log(10)
    for F, v in zip(Phi, y, strict=True):
        M = np.eye(len(v)) + 0.5 / 0.09 * F @ F.T
        radius += v @ np.linalg.solve(M, v) + 0.09 * np.linalg.slogdet(M)[1]
    expected = [
        j
        for j, g in enumerate(GROUPS)
        if sum(rss(np.delete(F, np.r_[g], axis=1), v) for F, v in zip(Phi, y, strict=True)) > radius
    ]
    kept = adaptive_screening(Phi, y, GROUPS, noise_std=0.3, delta=0.1, scale=0.5)
    assert list(kept) == expected
    assert 0 < len(expected) < 4


def test_tasks_with_too_few_points_or_repeated_columns_are_refused():
    rng = np.random.default_rng(6)
    y = [np.ones(12), np.ones(5)]
    with pytest.raises(InputError, match="task 1: 5 points do not determine 7"):
        chi_square_screening(designs(rng, (12, 5)), y, GROUPS, noise_std=1.0, delta=0.1)
    F = designs(rng, (12,))[0]
    F[:, 6] = F[:, 0]
    with pytest.raises(InputError, match="full column rank"):
        chi_square_screening([F], [np.ones(12)], GROUPS, noise_std=1.0, delta=0.1)


def test_bad_numbers_and_shapes_are_refused():
    Phi, y = designs(np.random.default_rng(7), (12,)), [np.ones(12)]
    with pytest.raises(InputError, match="noise_std is 0"):
        chi_square_screening(Phi, y, GROUPS, noise_std=0.0, delta=0.1)
    with pytest.raises(InputError, match="delta is 1"):
        adaptive_screening(Phi, y, GROUPS, noise_std=1.0, delta=1.0, scale=1.0)
    with pytest.raises(ShapeError, match="one y per Phi"):
        chi_square_screening(Phi, [], GROUPS, noise_std=1.0, delta=0.1)
    with pytest.raises(ShapeError, match=r"task 0.*\(11,\)"):
        chi_square_screening(Phi, [np.ones(11)], GROUPS, noise_std=1.0, delta=0.1)


def block_psi(Phi):
    """The md x md matrix Psi of Appendix B, formed."""
    total = sum(len(F) for F in Phi)
    m, d = len(Phi), Phi[0].shape[1]
    Psi = np.zeros((m, d, m, d))
    for s, F in enumerate(Phi):
        Psi[s, :, s, :] = F.T @ F / total
    return Psi.reshape(m * d, m * d)


def test_the_three_values_of_kappa_are_ordered_and_certified():
    rng = np.random.default_rng(8)
    Phi = designs(rng, (4000, 4000, 4000))
    smallest = np.linalg.eigvalsh(block_psi(Phi))[0]
    by_eigenvalue = kappa_from_eigenvalue(Phi)
    by_comparison = kappa_from_comparison(Phi, GROUPS)
    by_coherence = kappa_from_group_coherence(Phi, GROUPS, sparsity=1)
    assert_allclose(by_eigenvalue**2, smallest)
    assert by_eigenvalue >= by_comparison >= by_coherence > 0
    assert kappa_from_group_coherence(Phi, GROUPS, sparsity=3) < by_coherence


def test_the_comparison_matrix_bounds_psi_for_every_vector():
    rng = np.random.default_rng(9)
    Phi = designs(rng)
    M, Psi = comparison_matrix(Phi, GROUPS), block_psi(Phi)
    for _ in range(50):
        b = rng.standard_normal((3, 7)) * rng.exponential(size=(3, 7))
        norms = np.array([np.linalg.norm(b[:, g]) for g in GROUPS])
        assert b.ravel() @ Psi @ b.ravel() >= norms @ M @ norms - 1e-12


def test_orthonormal_designs_attain_the_largest_kappa_there_is():
    m, n = 4, 16
    F = np.linalg.qr(np.random.default_rng(10).standard_normal((n, 7)))[0] * np.sqrt(n)
    Phi = [F] * m
    for kappa in (
        kappa_from_eigenvalue(Phi),
        kappa_from_comparison(Phi, GROUPS),
        kappa_from_group_coherence(Phi, GROUPS, sparsity=3),
    ):
        assert_allclose(kappa, kappa_upper_bound(m=m))


def test_fewer_points_than_features_certify_nothing():
    assert kappa_from_eigenvalue(designs(np.random.default_rng(11), (12, 5))) == 0.0
    assert kappa_from_comparison(designs(np.random.default_rng(11), (5, 5)), SINGLES) == 0.0


def test_a_screening_of_many_kernels_is_shown_in_a_line():
    numbers = np.linspace(0, 1, 500)
    found = Screening(numbers, numbers[::-1], numbers, np.arange(250, 500), numbers)
    assert repr(found).startswith("Screening(kept 250 of 500 kernels: 250, 251, ")
    assert len(repr(found)) < 200
