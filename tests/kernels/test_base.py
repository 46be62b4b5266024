from __future__ import annotations

import numpy as np
import pytest
from laws import check_feature_laws, check_gram_laws, check_jacobian, check_select
from numpy.testing import assert_allclose, assert_array_equal

from metakel.errors import InputError, ShapeError
from metakel.kernels import (
    Dictionary,
    fourier,
    from_gram,
    legendre,
    legendre_2d,
    squared_exponential,
)


@pytest.fixture
def x(rng):
    return rng.uniform(-1, 1, 20)


@pytest.fixture
def mapped(rng):
    """Kernels of one and of two features, in turn."""
    waves = fourier(4, 1, lengthscales=0.5, rng=rng)
    return legendre(3, scaling="l2") + waves + legendre(2, scaling="sup", degrees=[0, 7])


@pytest.fixture
def mixed(mapped):
    return mapped + squared_exponential([0.2, 0.6])


def test_a_sum_of_dictionaries_is_their_kernels_one_after_the_other(mapped, x, rng):
    parts = [Dictionary((family,)) for family in mapped.families]
    assert len(mapped) == mapped.p == sum(part.p for part in parts) == 9
    assert mapped.dim == 13
    assert_array_equal(mapped.features(x), np.hstack([part.features(x) for part in parts]))
    assert_array_equal(mapped.diags(x), np.vstack([part.diags(x) for part in parts]))


def test_kernel_laws(mapped, mixed, x):
    X = 0.99 * x[:, None]
    check_gram_laws(mapped, X, X[:5])
    check_feature_laws(mapped, X, X[:5])
    check_jacobian(mapped, X)
    check_gram_laws(mixed, X, X[:5])


def test_select_keeps_the_order_asked_for_across_families(mapped, mixed, x):
    check_select(mapped, x, [8, 3, 0, 4, 1])
    check_select(mixed, x, [10, 2, 9, 3, 8])
    chosen = [8, 3, 0, 4, 1]
    columns = np.concatenate([np.arange(13)[mapped.groups[j]] for j in chosen])
    assert_allclose(mapped.select(chosen).features(x), mapped.features(x)[:, columns], atol=1e-12)


def test_nothing_selected_is_legal_and_remembers_its_inputs(mixed, x):
    empty = mixed.select([])
    assert (empty.p, empty.d0, empty.dim, empty.finite) == (0, 1, 0, True)
    assert empty.features(x).shape == (20, 0)
    assert empty.grams(x).shape == (0, 20, 20)
    assert empty.jacobian(x).shape == (20, 0, 1)
    with pytest.raises(ShapeError):
        empty.features(np.zeros((3, 2)))


def test_features_of_gram_only_kernels_are_refused(mixed, x):
    assert not mixed.finite
    for ask in (mixed.features, mixed.jacobian):
        with pytest.raises(InputError, match=r"se\(l=0.2\) has no feature map"):
            ask(x)
    with pytest.raises(InputError, match="no feature map"):
        _ = mixed.groups


def test_kernels_of_different_inputs_do_not_mix():
    with pytest.raises(ShapeError, match="takes 2 inputs but others take 1"):
        legendre(2, scaling="sup") + legendre_2d(2, scaling="sup")
    anywhere = squared_exponential(0.1) + from_gram(lambda X, Z: X @ Z.T, name="linear")
    assert anywhere.d0 is None
    assert (anywhere + legendre_2d(2, scaling="sup")).d0 == 2


@pytest.mark.parametrize("indices", [[9], [-1], [0, 0], [0.5], [True, False], [[0, 1]]])
def test_bad_indices_are_refused(mapped, indices):
    with pytest.raises(InputError):
        mapped.select(indices)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_points_that_are_not_finite_are_refused(mapped, bad):
    with pytest.raises(InputError, match="index"):
        mapped.features([0.0, bad])


def test_points_are_not_changed(mapped):
    x = np.array([1 + 1e-12, 0.5])
    mapped.features(x)
    assert x[0] == 1 + 1e-12


def test_repr_is_short(rng):
    base = fourier(500, 3, lengthscales=0.1, rng=rng)
    assert len(repr(base)) < 200
    assert repr(legendre(3, scaling="l2")) == "Dictionary(p=3, d0=1: P1, P2, P3)"


def test_unknown_kind_is_refused():
    with pytest.raises(InputError, match="'sinc'; known kinds are custom-features"):
        Dictionary.from_dict({"d0": None, "families": [{"kind": "sinc"}]})
