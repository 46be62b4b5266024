"""Which kernels the data show: exactness of the test."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from metakel.errors import InputError, ShapeError
from metakel.learn.screening import (
    Screening,
    chi_square_screening,
)
from metakel.theory import detectable_noncentrality

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
        chi_square_screening(Phi, y, GROUPS, noise_std=1.0, delta=1.0)
    with pytest.raises(ShapeError, match="one y per Phi"):
        chi_square_screening(Phi, [], GROUPS, noise_std=1.0, delta=0.1)
    with pytest.raises(ShapeError, match=r"task 0.*\(11,\)"):
        chi_square_screening(Phi, [np.ones(11)], GROUPS, noise_std=1.0, delta=0.1)


def test_a_screening_of_many_kernels_is_shown_in_a_line():
    numbers = np.linspace(0, 1, 500)
    found = Screening(numbers, numbers[::-1], numbers, np.arange(250, 500), numbers)
    assert repr(found).startswith("Screening(kept 250 of 500 kernels: 250, 251, ")
    assert len(repr(found)) < 200
