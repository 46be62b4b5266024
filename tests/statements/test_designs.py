"""Certified values of kappa (Assumption 4.2), and a test of kernels under any policy."""

from __future__ import annotations

import numpy as np
from designs import (
    adaptive_screening,
    comparison_matrix,
    kappa_from_coherence,
    kappa_from_comparison,
    kappa_from_eigenvalue,
    kappa_from_group_coherence,
)
from numpy.testing import assert_allclose
from scipy import stats

from metakel.theory import kappa_upper_bound

GROUPS = [slice(0, 1), slice(1, 3), slice(3, 6), slice(6, 7)]
SINGLES = [slice(j, j + 1) for j in range(7)]


def designs(rng, sizes=(12, 9, 20)):
    return [rng.standard_normal((n, 7)) for n in sizes]


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


def test_coherence_certifies_the_identity_and_gives_up_at_zero():
    assert_allclose(kappa_from_coherence(smallest=0.25, coherence=0.0, sparsity=3), 0.5)
    assert kappa_from_coherence(smallest=0.25, coherence=0.2, sparsity=3) == 0.0


def test_coherence_bounds_the_cone_that_lambdas_of_different_size_have():
    smallest, coherence, r = 1.0, 0.02, 2.0
    numbers = {"smallest": smallest, "coherence": coherence, "sparsity": 1}
    weighted = kappa_from_coherence(**numbers, lam_ratio=r)
    assert 0 < weighted < kappa_from_coherence(**numbers)
    # In the weighted cone of lambda = (r, 1, ..., 1), outside of the plain one.
    p = 1000
    block = np.full((p, p), -coherence) + (smallest + coherence) * np.eye(p)
    spread = np.concatenate([[1.0], np.full(p - 1, 3 * r / (p - 1))])
    assert weighted**2 <= spread @ block @ spread
    assert kappa_from_coherence(**numbers) ** 2 > spread @ block @ spread
