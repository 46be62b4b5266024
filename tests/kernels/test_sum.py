from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from metakel.errors import InputError, ShapeError
from metakel.kernels import (
    KernelSum,
    from_gram,
    legendre,
    legendre_2d,
    matern,
    random_fourier,
    squared_exponential,
)
from metakel.testing import check_gradient

RNG = np.random.default_rng(5)
MAPPED = legendre_2d(3, scaling="l2") + random_fourier(3, 2, lengthscales=[0.3, 2.0], rng=RNG)
GRAMS = squared_exponential([0.2, 0.5], columns="each", d0=2) + matern(1.5, [[0.3, 0.4]])
MIXED = MAPPED + GRAMS
X, Z = RNG.uniform(-0.9, 0.9, (9, 2)), RNG.uniform(-0.9, 0.9, (6, 2))

weights = st.one_of(
    st.just(0.0), st.floats(min_value=0, max_value=1e300, allow_nan=False, allow_infinity=False)
)


def random_eta(p, seed=0):
    eta = np.random.default_rng(seed).uniform(0.1, 2, p)
    eta[::3] = 0
    return eta


@pytest.mark.parametrize("base", [MAPPED, GRAMS, MIXED], ids=["mapped", "grams", "mixed"])
def test_eq5_the_kernel_is_the_weighted_sum_of_base_kernels(base):
    eta = random_eta(base.p)
    kernel = KernelSum(base, eta)
    assert_allclose(kernel(X, Z), np.tensordot(eta, base.grams(X, Z), 1), atol=1e-12)
    assert_allclose(kernel(X), kernel(X, X), atol=1e-12)
    assert_array_equal(kernel(X), kernel(X).T)
    assert_allclose(kernel.diag(X), np.diagonal(kernel(X)), atol=1e-12)
    assert_array_equal(kernel.active, np.flatnonzero(eta))
    assert kernel.names == tuple(base.names[j] for j in kernel.active)
    assert kernel.min_weight == eta[eta > 0].min()
    check_gradient(kernel, X[:1], Z)


def test_feature_form_equals_gram_form():
    kernel = KernelSum(MAPPED, random_eta(MAPPED.p))
    assert kernel.finite
    F = kernel.features(X)
    assert F.shape == (9, kernel.dim)
    assert F.T.flags.c_contiguous
    assert_allclose(F @ kernel.features(Z).T, kernel(X, Z), atol=1e-12)
    for j, group in zip(kernel.active, kernel.groups, strict=True):
        assert_allclose(F[:, group] @ F[:, group].T, kernel.eta[j] * MAPPED.grams(X)[j], atol=1e-12)


def test_jacobian_of_features_gives_the_gradient_of_the_kernel():
    kernel = KernelSum(MAPPED, random_eta(MAPPED.p))
    J = kernel.jacobian(X)
    assert J.shape == (9, kernel.dim, 2)
    for x, slopes in zip(X, J, strict=True):
        assert_allclose(kernel.features(Z) @ slopes, kernel.gradient(x, Z), atol=1e-11)


def test_eq10_the_uniform_kernel_has_weight_one_over_p():
    full = KernelSum.uniform(MIXED)
    assert_array_equal(full.eta, np.full(MIXED.p, 1 / MIXED.p))
    assert_allclose(full(X, Z), MIXED.grams(X, Z).mean(axis=0), atol=1e-12)


def test_uniform_on_a_selection_has_weight_one_unless_told():
    assert_array_equal(KernelSum.uniform(GRAMS, [0, 3]).eta, [1, 0, 0, 1, 0])
    assert_array_equal(KernelSum.uniform(GRAMS, np.array([2]), weight=0.5).eta, [0, 0, 0.5, 0, 0])
    assert_array_equal(KernelSum.uniform(GRAMS, weight=2.0).eta, [2] * 5)
    assert len(KernelSum.uniform(GRAMS, []).active) == 0


def test_inactive_kernels_are_never_evaluated():
    def forbidden(X, Z):
        raise AssertionError("evaluated")

    base = legendre(2, scaling="sup") + from_gram(forbidden, name="forbidden")
    kernel = KernelSum(base, np.array([1.0, 2.0, 0.0]))
    assert kernel.finite
    assert kernel([0.1, 0.2]).shape == (2, 2)
    with pytest.raises(AssertionError, match="evaluated"):
        KernelSum.uniform(base)([0.1, 0.2])


@pytest.mark.parametrize("base", [MAPPED, GRAMS], ids=["mapped", "grams"])
def test_the_empty_sum_is_the_zero_kernel(base):
    zero = KernelSum(base, np.zeros(base.p))
    assert (zero.dim, zero.min_weight, zero.names, zero.groups) == (0, 0.0, (), ())
    assert zero.finite
    assert zero.smooth
    assert_array_equal(zero(X, Z), np.zeros((9, 6)))
    assert_array_equal(zero.diag(X), np.zeros(9))
    assert zero.features(X).shape == (9, 0)
    assert zero.jacobian(X).shape == (9, 0, 2)
    assert_array_equal(zero.gradient(X[0], Z), np.zeros((6, 2)))
    assert "0 of" in repr(zero)
    with pytest.raises(ShapeError):
        zero(np.zeros((3, 5)))


@pytest.mark.parametrize("c", [1e-3, 7.0])
def test_scaling_multiplies_the_kernel_and_divides_the_squared_norm(c):
    kernel = KernelSum(MIXED, random_eta(MIXED.p))
    scaled = kernel.scaled(c)
    assert_allclose(scaled(X, Z), c * kernel(X, Z), rtol=1e-12)
    y = RNG.normal(size=len(X))
    norm, scaled_norm = (np.sqrt(y @ np.linalg.solve(k(X), y)) for k in (kernel, scaled))
    assert_allclose(scaled_norm, norm / np.sqrt(c), rtol=1e-9)


@settings(deadline=None, max_examples=50)
@given(eta=st.lists(weights, min_size=4, max_size=4), seed=st.integers(0, 2**32 - 1))
def test_json_gives_back_every_bit(eta, seed):
    base = random_fourier(
        2, 3, lengthscales=[0.1, 1 / 3], spectrum="matern32", rng=np.random.default_rng(seed)
    ) + squared_exponential([0.1, [0.1, 0.2, seed + 1 / 3]], d0=3)
    kernel = KernelSum(base, np.array(eta))
    loaded = KernelSum.from_json(kernel.to_json())
    assert loaded.eta.tobytes() == kernel.eta.tobytes()
    ours, theirs = base.families[0], loaded.base.families[0]
    assert theirs.frequencies.tobytes() == ours.frequencies.tobytes()
    assert loaded.base.families[1].lengthscales == base.families[1].lengthscales
    assert loaded.to_json() == kernel.to_json()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "not JSON"),
        ("[1]", "format None"),
        ('{"format": "other"}', "'other'"),
        ('{"format": "metakel.KernelSum", "version": 1, "eta": [1]}', "has no entry 'base'"),
        ('{"format": "metakel.KernelSum", "version": 2}', "version 2; expected .*version 1"),
    ],
)
def test_damaged_files_are_refused(text, match, tmp_path):
    with pytest.raises(InputError, match=match):
        KernelSum.from_json(text)
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(InputError, match=f"broken.json .*{match}"):
        KernelSum.load(tmp_path / "broken.json")


@pytest.mark.parametrize("key", ["eta", "base"])
@pytest.mark.parametrize("damage", [None, "x", ["a"], 7, {}, [[1]]])
def test_a_damaged_entry_is_an_input_error(key, damage):
    stored = json.loads(KernelSum.uniform(MAPPED).to_json())
    with pytest.raises((InputError, ShapeError)):
        KernelSum.from_json(json.dumps({**stored, key: damage}))


def test_weights_are_frozen_and_copied():
    eta = np.ones(5)
    kernel = KernelSum(GRAMS, eta)
    eta[0] = 9
    assert kernel.eta[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        kernel.eta[0] = 2


def test_only_finite_sums_have_features():
    kernel = KernelSum(MIXED, random_eta(MIXED.p))
    assert not kernel.finite
    for ask in (kernel.features, kernel.jacobian):
        with pytest.raises(InputError, match="no feature map"):
            ask(X)
    with pytest.raises(InputError, match="no feature map"):
        _ = kernel.dim


@pytest.mark.parametrize("bad", [-1e-9, np.nan, np.inf])
def test_bad_weights_are_refused(bad):
    with pytest.raises(InputError, match=r"eta\[2\] is"):
        KernelSum(GRAMS, np.array([1, 0, bad, 0, 0]))


def test_bad_shapes_and_scales_are_refused():
    with pytest.raises(ShapeError, match=r"shape \(2,\); expected one weight for each of the 5"):
        KernelSum(GRAMS, np.ones(2))
    with pytest.raises(ShapeError, match=r"expected \(n, 2\)"):
        KernelSum.uniform(MAPPED)(np.zeros((3, 1)))
    for c in (0, -1, np.nan):
        with pytest.raises(InputError, match="positive"):
            KernelSum.uniform(GRAMS).scaled(c)
    with pytest.raises(InputError, match="there are 5 base kernels"):
        KernelSum.uniform(GRAMS, [5])


def test_smooth_looks_at_active_kernels_only():
    base = matern(0.5, 0.1) + matern(1.5, 0.1)
    assert not KernelSum.uniform(base).smooth
    assert KernelSum(base, np.array([0.0, 1.0])).smooth


def test_repr_is_readable_and_short():
    base = legendre(500, scaling="l2")
    assert len(repr(KernelSum.uniform(base))) < 150
    eta = np.zeros(500)
    eta[[4, 9]] = [0.25, 0.75]
    assert repr(KernelSum(base, eta)) == "KernelSum(2 of 500 active: 0.75 P10 + 0.25 P5)"
