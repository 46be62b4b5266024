from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from metakel._files import decode
from metakel.errors import InputError, ShapeError
from metakel.kernels import (
    KernelDictionary,
    from_gram,
    legendre,
    legendre_2d,
    matern,
    random_fourier,
    squared_exponential,
)
from metakel.testing import check_kernel, check_select


@pytest.fixture
def x(rng):
    return rng.uniform(-1, 1, 20)


@pytest.fixture
def mapped(rng):
    """Kernels of one and of two features, in turn."""
    waves = random_fourier(4, 1, lengthscales=0.5, rng=rng)
    return legendre(3, scaling="l2") + waves + legendre(2, scaling="sup", degrees=[0, 7])


@pytest.fixture
def mixed(mapped):
    return mapped + squared_exponential([0.2, 0.6])


def test_a_sum_of_dictionaries_is_their_kernels_one_after_the_other(mapped, x, rng):
    parts = [KernelDictionary((family,)) for family in mapped.families]
    assert len(mapped) == mapped.p == sum(part.p for part in parts) == 9
    assert mapped.dim == 13
    assert_array_equal(mapped.features(x), np.hstack([part.features(x) for part in parts]))
    assert_array_equal(mapped.diags(x), np.vstack([part.diags(x) for part in parts]))


def test_kernel_laws(mapped, mixed, x):
    X = 0.99 * x[:, None]
    check_kernel(mapped, X)
    check_kernel(mixed, X)


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


def test_repr_is_short(rng):
    base = random_fourier(500, 3, lengthscales=0.1, rng=rng)
    assert len(repr(base)) < 200
    assert repr(legendre(3, scaling="l2")) == "KernelDictionary(p=3, d0=1: P1, P2, P3)"


def test_unknown_kind_is_refused():
    stored = {"d0": None, "families": [{"kind": "sinc"}]}
    with pytest.raises(InputError, match=r"base.families\[0\].kind is 'sinc'; .* custom-features"):
        decode(KernelDictionary, stored, "base")


def test_float32_rounding_out_of_the_domain_is_put_right_and_more_is_shown(mapped):
    single = np.arange(-1, 1.05, 0.1, dtype="f4")
    assert single.max() > 1
    features = mapped.features(single)
    assert_array_equal(features[-1], mapped.features([1.0])[0])
    for ask in (mapped.features, mapped.jacobian, mapped.grams):
        assert np.isfinite(ask(single)).all()
    with pytest.raises(InputError, match=r"\[0, 1\.000002\]; the base kernels live on \[-1, 1\]"):
        mapped.features([0.0, 1.000002])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: legendre(12.0, scaling="l2"), "p is 12.0; expected an integer >= 1"),
        (lambda: legendre("3", scaling="l2"), "p is '3'; expected an integer"),
        (lambda: legendre(None, scaling="l2"), "p is None; expected an integer"),
        (lambda: legendre(2, scaling="l2", degrees=[1, 1.5]), "degrees are .*integers >= 0"),
        (lambda: legendre_2d(2.5, scaling="l2"), "p is 2.5; expected an integer"),
        (lambda: squared_exponential(0.3, columns=0), "columns are 0; expected 'each', a tuple"),
        (lambda: squared_exponential(0.3, columns=(0.5,)), "expected distinct indices"),
        (lambda: squared_exponential(0.3, columns=[(0,), 1]), "expected 'each', a tuple or tuples"),
        (lambda: squared_exponential(0.3, d0=1.0), "d0 is 1.0; expected an integer"),
        (lambda: squared_exponential("wide"), "lengthscale is 'w'; expected a positive number"),
        (lambda: squared_exponential(None), "lengthscale is None; expected a positive number"),
        (lambda: matern([0.1, 0.3], 2.5), r"nu is \[0.1, 0.3\]; .* before the l"),
        (lambda: matern("2.5", 0.1), "nu is '2.5'; exact Matern"),
    ],
)
def test_wrong_arguments_are_named_with_what_was_expected(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_numbers_of_numpy_are_numbers():
    assert legendre(np.int64(3), scaling="l2", degrees=np.array([1, 4, 2])).names[1] == "P4"
    assert matern(np.float32(2.5), np.array(0.3)).names == ("matern52(l=0.3)",)
    assert squared_exponential(np.array([0.3]), columns=np.array([[0], [1]])).p == 2
