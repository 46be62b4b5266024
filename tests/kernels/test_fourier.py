from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from metakel.errors import InputError
from metakel.kernels import KernelSum, matern, random_fourier, squared_exponential
from metakel.testing import check_gradient, check_kernel, check_select

EXACT = {
    "se": squared_exponential(0.4, d0=2),
    "matern12": matern(0.5, 0.4, d0=2),
    "matern32": matern(1.5, 0.4, d0=2),
    "matern52": matern(2.5, 0.4, d0=2),
}


@pytest.mark.parametrize("spectrum", list(EXACT))
def test_a_pair_has_unit_norm_everywhere(spectrum, rng):
    base = random_fourier(30, 3, lengthscales=[0.1, 2.0], spectrum=spectrum, rng=rng)
    assert base.dims == (2,) * 30
    assert_allclose(base.diags(rng.normal(size=(40, 3))), 1)
    assert_allclose(base.sup, 1)


@pytest.mark.parametrize("spectrum", list(EXACT))
def test_the_mean_over_frequencies_tends_to_the_kernel_of_the_spectrum(spectrum, rng):
    p = 40_000
    base = random_fourier(p, 2, lengthscales=0.4, spectrum=spectrum, rng=rng)
    steps = np.array([[0.0, 0.05], [0.1, 0.1], [0.3, 0.0], [0.0, 0.5], [0.6, 0.6]])
    F = base.features(np.concatenate([np.zeros((1, 2)), steps]))
    means = F[1:] @ F[0] / p
    exact = EXACT[spectrum].grams(np.zeros((1, 2)), steps)[0, 0]
    assert np.abs(means - exact).max() < 5 / np.sqrt(2 * p)  # five standard deviations


def test_another_spectrum_would_be_noticed(rng):
    p = 40_000
    F = random_fourier(p, 1, lengthscales=0.4, spectrum="matern12", rng=rng).features([0.0, 0.3])
    exact = squared_exponential(0.4).grams([0.0], [0.3])[0, 0, 0]
    assert abs(F[1] @ F[0] / p - exact) > 20 / np.sqrt(2 * p)


def test_frequencies_are_shared_out_evenly_among_the_lengthscales(rng):
    family = random_fourier(11, 2, lengthscales=[0.1, 0.5, 2.0], rng=rng).families[0]
    assert_array_equal(family.lengthscales, [0.1] * 4 + [0.5] * 4 + [2.0] * 3)
    wide = random_fourier(4000, 2, lengthscales=[0.1, 2.0], rng=rng).families[0].frequencies
    assert_allclose([wide[:2000].std(), wide[2000:].std()], [10, 0.5], rtol=0.05)


def test_kernel_laws(rng):
    base = random_fourier(7, 2, lengthscales=[0.3, 1.0], spectrum="matern52", rng=rng)
    X, Z = rng.normal(size=(15, 2)), rng.normal(size=(9, 2))
    check_kernel(base, np.concatenate([X, Z]))
    check_select(base, X, [6, 2])
    check_gradient(KernelSum.uniform(base), X[:1], Z)
    kernel = base.grams(X, Z)[3]
    waves = (X[:, None] - Z) @ base.families[0].frequencies[3]
    assert_allclose(kernel, np.cos(waves), atol=1e-13)


def test_bad_arguments_are_refused(rng):
    with pytest.raises(InputError, match="expected positive"):
        random_fourier(3, 1, lengthscales=[0.1, -1.0], rng=rng)
    with pytest.raises(InputError, match="2 frequencies cannot be divided among 3"):
        random_fourier(2, 1, lengthscales=[0.1, 0.2, 0.3], rng=rng)
    with pytest.raises(InputError, match="spectrum is 'cauchy'"):
        random_fourier(2, 1, lengthscales=0.1, spectrum="cauchy", rng=rng)
    with pytest.raises(InputError, match="d0 is 0"):
        random_fourier(2, 0, lengthscales=0.1, rng=rng)
