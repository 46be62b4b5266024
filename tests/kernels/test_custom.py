from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, from_features, from_gram
from metakel.testing import check_kernel


def affine(X):
    return np.column_stack([np.ones(len(X)), X])


def brownian(X, Z):
    return np.minimum.outer(X[:, 0], Z[:, 0])


@pytest.fixture
def X(rng):
    return rng.uniform(size=(100, 1))


def test_kernel_laws(X):
    features = from_features(affine, 2, name="affine", sup=2.0)
    gram = from_gram(brownian, name="brownian", d0=1, sup=1.0)
    functions = {"affine": affine, "brownian": brownian}
    for base in (features, gram, features + gram):
        check_kernel(base, X, functions=functions)
    assert_array_equal((features + gram).sup, [2, 1])
    assert (features + gram).dims == (2, None)


def test_unknown_sup_is_nan():
    assert np.isnan(from_gram(brownian, name="brownian").sup).all()


@pytest.mark.parametrize(
    ("function", "error", "match"),
    [
        (lambda X: X, ShapeError, r"'f'.*shape \(100, 1\); expected \(100, 2\)"),
        (lambda X: X[0], ShapeError, r"shape \(1,\)"),
        (lambda X: np.full((len(X), 2), np.nan), InputError, "not finite"),
    ],
)
def test_bad_features_are_refused(function, error, match, X):
    with pytest.raises(error, match=match):
        from_features(function, 2, name="f").features(X)


@pytest.mark.parametrize(
    ("function", "error", "match"),
    [
        (lambda X, Z: np.zeros((len(X), 3)), ShapeError, r"'f'.*\(100, 3\); expected \(100, 100\)"),
        (lambda X, Z: np.full((len(X), len(Z)), np.inf), InputError, "not finite"),
        (lambda X, Z: np.add.outer(X[:, 0], 2 * Z[:, 0]), InputError, "not symmetric"),
    ],
)
def test_bad_gram_matrices_are_refused(function, error, match, X):
    with pytest.raises(error, match=match):
        from_gram(function, name="f").grams(X)


def test_derivatives_of_a_users_function_are_not_known(X):
    for base in (from_features(affine, 2, name="affine"), from_gram(brownian, name="brownian")):
        kernel = KernelSum.uniform(base)
        assert not kernel.smooth
        with pytest.raises(InputError, match="without derivatives"):
            kernel.gradient(X[0], X)


def test_functions_are_saved_by_name_and_given_back(X, tmp_path):
    base = from_features(affine, 2, name="affine") + from_gram(brownian, name="brownian", sup=1.0)
    kernel = KernelSum(base, np.array([0.1, 0.7]))
    kernel.save(tmp_path / "kernel.json")
    functions = {"affine": affine, "brownian": brownian}
    loaded = KernelSum.load(tmp_path / "kernel.json", functions=functions)
    assert_array_equal(loaded(X), kernel(X))
    assert_array_equal(loaded.base.sup, base.sup)
    with pytest.raises(InputError, match=r"'brownian'.*functions=.*given: 'affine'"):
        KernelSum.load(tmp_path / "kernel.json", functions={"affine": affine})
    with pytest.raises(InputError, match=r"'affine'.*given: none"):
        KernelSum.load(tmp_path / "kernel.json")


def test_two_functions_of_one_name_cannot_be_saved():
    base = from_gram(brownian, name="mine") + from_gram(lambda X, Z: X @ Z.T, name="mine")
    with pytest.raises(InputError, match="both called 'mine'"):
        KernelSum.uniform(base).to_json()


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="dim is 0"):
        from_features(affine, 0, name="affine")
    with pytest.raises(InputError, match="not a function"):
        from_gram(3, name="three")
    with pytest.raises(InputError, match="sup is -1"):
        from_gram(brownian, name="brownian", sup=-1)
