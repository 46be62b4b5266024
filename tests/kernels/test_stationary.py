"""Squared exponential and Matern kernels: exact, shared by tasks, and by random features."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, matern, random_fourier, squared_exponential
from metakel.kernels.stationary import Matern52ARD
from metakel.testing import check_gradient, check_kernel, check_select

MAKERS = {
    "se": squared_exponential,
    0.5: lambda *a, **k: matern(0.5, *a, **k),
    1.5: lambda *a, **k: matern(1.5, *a, **k),
    2.5: lambda *a, **k: matern(2.5, *a, **k),
}


@pytest.fixture(params=list(MAKERS))
def maker(request):
    return MAKERS[request.param]


@pytest.fixture
def X(rng):
    return rng.uniform(size=(12, 3))


@pytest.fixture
def Z(rng):
    return rng.uniform(size=(7, 3))


@pytest.mark.parametrize("scale", [0.3, [0.2, 0.5, 1.5]])
def test_kernels_are_those_of_scikit_learn(scale, X, Z):
    sk = pytest.importorskip("sklearn.gaussian_process.kernels")
    ours = squared_exponential([scale]).grams(X, Z)[0]
    assert_allclose(ours, sk.RBF(scale)(X, Z), rtol=1e-12)
    for nu in (0.5, 1.5, 2.5):
        theirs = sk.Matern(scale, nu=nu)(X, Z)
        assert_allclose(matern(nu, [scale]).grams(X, Z)[0], theirs, rtol=1e-12)


def test_kernel_laws(maker, X, Z):
    base = maker([0.2, 1.0], columns=[(0,), (2, 1)], d0=3) + maker([[0.3, 0.4, 2.0]])
    assert base.dims == (None,) * 5
    check_kernel(base, np.concatenate([X, Z]))
    check_select(base, X, [3, 0, 4])
    check_gradient(KernelSum(base, np.array([1, 0.5, 0, 2, 0.3])), X[:1], Z)


def test_each_input_and_lengthscale_has_its_kernel(maker, X):
    base = maker([0.1, 0.8], columns="each", d0=3)
    assert base.p == 6
    for j, (i, scale) in enumerate((i, s) for i in range(3) for s in (0.1, 0.8)):
        assert_allclose(base.grams(X)[j], maker(scale).grams(X[:, i])[0], rtol=1e-12)
        assert f"x{i}; l={scale}" in base.names[j]


def test_columns_choose_the_inputs_that_are_looked_at(maker, X):
    chosen = maker(0.5, columns=(0, 2)).grams(X)
    assert_allclose(chosen, maker(0.5).grams(X[:, [0, 2]]), rtol=1e-12)
    moved = X.copy()
    moved[:, 1] += 1
    assert_allclose(chosen, maker(0.5, columns=(0, 2)).grams(moved))
    assert np.abs(chosen - maker(0.5).grams(X)).max() > 0.01


def test_only_matern_one_half_is_rough(X):
    assert not matern(0.5, 1.0).smooth
    assert matern(1.5, 1.0).smooth
    assert squared_exponential(1.0).smooth


def test_gradient_is_zero_where_the_points_coincide(maker, X):
    gradient = KernelSum.uniform(maker([0.3], d0=3)).gradient(X[0], X)
    assert_allclose(gradient[0], 0)
    assert gradient[1:].any()


def test_bad_arguments_are_refused(X):
    with pytest.raises(InputError, match="nu is 2"):
        matern(2, 0.1)
    with pytest.raises(InputError, match="lengthscale is -1"):
        squared_exponential([0.1, -1])
    with pytest.raises(InputError, match="needs d0"):
        squared_exponential(0.1, columns="each")
    with pytest.raises(InputError, match="'all'"):
        squared_exponential(0.1, columns="all")
    with pytest.raises(InputError, match="distinct"):
        squared_exponential(0.1, columns=(1, 1))
    with pytest.raises(InputError, match="below d0 = 3"):
        squared_exponential(0.1, columns=(1, 3), d0=3)
    with pytest.raises(InputError, match="empty"):
        squared_exponential([])
    with pytest.raises(ShapeError, match="2 entries for 1 inputs"):
        squared_exponential([[0.1, 0.2]], columns=(0,))
    with pytest.raises(ShapeError, match="2 entries for 3 inputs"):
        squared_exponential([[0.1, 0.2]], d0=3)
    with pytest.raises(ShapeError, match="depends on input x5, but X has 3"):
        squared_exponential(0.1, columns=(5,)).grams(X)
    with pytest.raises(ShapeError, match=r"expected \(n, 2\)"):
        squared_exponential([[0.1, 0.2]]).grams(X)


RNG = np.random.default_rng(0)


def test_it_is_the_librarys_matern_times_the_signal():
    X, Z = RNG.uniform(-1, 1, (7, 3)), RNG.uniform(-1, 1, (5, 3))
    lengths = np.array([0.3, 1.0, 2.0])
    ours = Matern52ARD(lengths, 1.7, 0.1)(X, Z)
    assert_allclose(ours, 1.7 * matern(2.5, [lengths.tolist()]).grams(X, Z)[0], atol=1e-12)


def test_slopes_are_differences():
    X, Z = RNG.uniform(-1, 1, (4, 2)), RNG.uniform(-1, 1, (5, 2))
    shared = Matern52ARD(np.array([0.5, 0.8]), 2.0, 0.1)
    slopes = shared.slopes_of_scaled(shared.scale(X)[0], shared.scale(Z)[0])
    for i in range(2):
        step = 1e-6 * np.eye(2)[i]
        difference = (shared(X, Z + step) - shared(X, Z - step)) / 2e-6
        assert_allclose(slopes[:, :, i], difference, atol=1e-7)


EXACT = {
    "se": squared_exponential(0.4, d0=2),
    "matern12": matern(0.5, 0.4, d0=2),
    "matern32": matern(1.5, 0.4, d0=2),
    "matern52": matern(2.5, 0.4, d0=2),
}


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


def test_laws_of_random_features(rng):
    base = random_fourier(7, 2, lengthscales=[0.3, 1.0], spectrum="matern52", rng=rng)
    X, Z = rng.normal(size=(15, 2)), rng.normal(size=(9, 2))
    check_kernel(base, np.concatenate([X, Z]))
    check_select(base, X, [6, 2])
    check_gradient(KernelSum.uniform(base), X[:1], Z)
    assert base.dims == (2,) * 7
    assert_allclose([base.diags(X).min(), *base.sup], 1)
    kernel = base.grams(X, Z)[3]
    waves = (X[:, None] - Z) @ base.families[0].frequencies[3]
    assert_allclose(kernel, np.cos(waves), atol=1e-13)


def test_bad_arguments_of_random_features_are_refused(rng):
    with pytest.raises(InputError, match="expected positive"):
        random_fourier(3, 1, lengthscales=[0.1, -1.0], rng=rng)
    with pytest.raises(InputError, match="2 frequencies cannot be divided among 3"):
        random_fourier(2, 1, lengthscales=[0.1, 0.2, 0.3], rng=rng)
    with pytest.raises(InputError, match="spectrum is 'cauchy'"):
        random_fourier(2, 1, lengthscales=0.1, spectrum="cauchy", rng=rng)
    with pytest.raises(InputError, match="d0 is 0"):
        random_fourier(2, 0, lengthscales=0.1, rng=rng)
