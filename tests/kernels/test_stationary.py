from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, matern, squared_exponential
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
