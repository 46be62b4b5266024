"""Proposition 29: what is constant in every task cannot be learned as a context."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

import metakel as mk
from metakel.kernels import from_features, legendre
from metakel.learn import as_problem


def test_statement_8_eq_8_sees_only_the_sum_of_the_weights():
    """Products with normalised kernels of a descriptor have the Gram matrices of k_j alone."""
    line, rng = legendre(3, scaling="sup"), np.random.default_rng(0)

    def product(j, angle):
        def features(X):
            phi = line.features(X[:, :1])[:, [j]]
            turn = np.column_stack([np.cos(angle * X[:, 1]), np.sin(angle * X[:, 1])])
            return phi * turn  # kappa(z, z) = 1

        return from_features(features, 2, name=f"P{j + 1} turned by {angle}", d0=2)

    both = product(0, 1) + product(0, 5)
    pairs = []
    for z in rng.uniform(-1, 1, 6):
        x = rng.uniform(-1, 1, 12)
        pairs.append((np.column_stack([x, np.full(12, z)]), rng.normal(size=12)))
    problem = as_problem(mk.History.from_pairs(pairs), both)
    first, second = (np.sort(values.ravel())[-6:] for values in problem.spectra())
    assert_allclose(first, second, rtol=1e-9)
    noise = [rng.normal(size=12) for _ in pairs]
    energies = problem.energies(noise)
    assert_allclose(energies[0], energies[1], rtol=1e-9)
