"""Laws of the posterior of Eq. 3."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from metakel.errors import InputError, ShapeError
from metakel.gp import posterior
from metakel.kernels import KernelSum, from_gram, legendre, squared_exponential
from metakel.theory import information_gain_bound

BASE = legendre(12, scaling="sup")
FEATURES = KernelSum(BASE, np.where(np.arange(12) % 3 == 0, 0.7, 0.0))  # 4 features
GRAM = KernelSum.uniform(squared_exponential([0.3, 1.0], d0=1), weight=1.0)
Z = np.linspace(-1, 1, 17)[:, None]


class Plain:
    """A kernel that hides its features, so that the kernel form is used."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, X, Z=None):
        return self.kernel(X, Z)

    def diag(self, X):
        return self.kernel.diag(X)


def data(t, rng, repeat=False):
    X = rng.uniform(-1, 1, (t, 1))
    if repeat:
        X = X[rng.integers(max(t // 3, 1), size=t)]
    return X, rng.normal(size=t)


def textbook(kernel, X, y, noise):
    """Eq. 3 with explicit inverses."""
    inverse = np.linalg.inv(kernel(X) + np.diag(np.broadcast_to(noise, len(y))))
    cross = kernel(Z, X)
    return cross @ inverse @ y, kernel(Z) - cross @ inverse @ cross.T


@pytest.mark.parametrize("kernel", [FEATURES, Plain(FEATURES), GRAM])
@pytest.mark.parametrize("t", [1, 3, 4, 5, 30])
@pytest.mark.parametrize("repeat", [False, True])
def test_it_is_eq_3(kernel, t, repeat):
    rng = np.random.default_rng(t)
    X, y = data(t, rng, repeat)
    noise = rng.uniform(0.2, 1.0, t)
    post = posterior(kernel, X, y, noise_var=noise)
    mean, cov = textbook(kernel, X, y, noise)
    assert_allclose(post.mean(Z), mean, atol=1e-9)
    assert_allclose(post.cov(Z), cov, atol=1e-9)
    assert_allclose(post.var(Z), np.diag(cov), atol=1e-9)
    scaled = kernel(X) / np.sqrt(np.multiply.outer(noise, noise))
    assert_allclose(post.information_gain, np.linalg.slogdet(np.eye(t) + scaled)[1] / 2, rtol=1e-9)


@pytest.mark.parametrize("t", [2, 4, 40])
def test_feature_form_equals_kernel_form(t):
    X, y = data(t, np.random.default_rng(0))
    feature, kernel = (posterior(k, X, y, noise_var=0.01) for k in (FEATURES, Plain(FEATURES)))
    assert feature.feature_form == (t >= 4)
    assert not kernel.feature_form
    assert_allclose(feature.mean(Z), kernel.mean(Z), atol=1e-9)
    assert_allclose(feature.std(Z), kernel.std(Z), atol=1e-7)
    assert_allclose(feature.information_gain, kernel.information_gain, rtol=1e-9)


@pytest.mark.parametrize("kernel", [FEATURES, GRAM])
def test_without_observations_it_is_the_prior(kernel):
    post = posterior(kernel, np.zeros((0, 1)), np.zeros(0), noise_var=1.0)
    assert not post.mean(Z).any()
    assert_allclose(post.std(Z), np.sqrt(kernel.diag(Z)))
    assert post.information_gain == 0
    assert post.t == 0


def test_the_empty_kernel_knows_that_f_is_zero():
    X, y = data(5, np.random.default_rng(0))
    post = posterior(KernelSum(BASE, np.zeros(12)), X, y, noise_var=0.1)
    assert not post.mean(Z).any()
    assert not post.std(Z).any()
    assert not post.sample(Z, np.random.default_rng(0), size=3).any()
    assert post.information_gain == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), t=st.integers(1, 25), noise=st.floats(1e-6, 10))
def test_each_observation_narrows_and_pays_its_share_of_the_information(seed, t, noise):
    X, y = data(t, np.random.default_rng(seed))
    posts = [posterior(FEATURES, X[:s], y[:s], noise_var=noise) for s in range(t + 1)]
    gain = sum(np.log1p(posts[s].var(X[s : s + 1])[0] / noise) for s in range(t))
    assert_allclose(2 * posts[-1].information_gain, gain, rtol=1e-9)
    for before, after in pairwise(posts):
        assert (after.std(Z) <= before.std(Z) + 1e-10).all()
    bound = information_gain_bound(
        dim=FEATURES.dim, t=t, noise_var=noise, weight_sum=FEATURES.eta.sum()
    )
    assert posts[-1].information_gain <= bound + 1e-9


@pytest.mark.parametrize("kernel", [FEATURES, GRAM])
@pytest.mark.parametrize("t", [2, 30])
def test_samples_have_the_posterior_moments(kernel, t):
    X, y = data(t, np.random.default_rng(2))
    post = posterior(kernel, X, y, noise_var=0.5)
    draws = post.sample(Z, np.random.default_rng(0), size=20_000)
    assert draws.shape == (20_000, len(Z))
    error = np.sqrt(post.var(Z) / 20_000) + 1e-9
    assert (np.abs(draws.mean(axis=0) - post.mean(Z)) < 5 * error).all()
    assert_allclose(np.cov(draws.T), post.cov(Z), atol=0.05)


def test_variance_of_a_far_better_known_point_does_not_cancel():
    """At 1e4 repetitions the variance is noise / t exactly, eleven digits below the prior's."""
    X = np.full((10_000, 1), 0.5)
    kernel = KernelSum.uniform(BASE, active=[0])
    post = posterior(kernel, X, np.zeros(10_000), noise_var=1e-8)
    assert_allclose(post.var(X[:1]), 1e-12 / (1 + 1e-12 / 0.25), rtol=1e-9)


@pytest.mark.parametrize(
    ("error", "noise"), [(InputError, 0.0), (InputError, np.nan), (ShapeError, np.ones(2))]
)
def test_bad_noise_is_refused(error, noise):
    with pytest.raises(error, match="noise_var"):
        posterior(FEATURES, np.zeros((3, 1)), np.zeros(3), noise_var=noise)


def said_and_found(kernel, X, y, noise):
    """The posterior, and whether it came with a warning about the noise."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        post = posterior(kernel, X, y, noise_var=noise)
    assert all("noise_var" in str(warning.message) for warning in said)
    return bool(said), post


@pytest.mark.parametrize("kernel", [FEATURES, Plain(FEATURES), GRAM], ids=["map", "plain", "gram"])
@pytest.mark.parametrize("t", [2, 3, 8])
def test_a_mean_that_rounding_has_spoiled_comes_with_a_warning(kernel, t):
    """Two values at one point are one value, their average, with half of the noise."""
    X = np.append(np.full(2, 0.3), np.linspace(-0.9, 0.1, t - 2))[:, None]
    y = np.append([1.0, 2.0], np.zeros(t - 2))
    lost = 0
    for noise in 10.0 ** -np.arange(2, 26, 2):
        warned, post = said_and_found(kernel, X, y, noise)
        once = np.full(t - 1, noise)
        once[0] /= 2
        merged_warned, merged = said_and_found(kernel, X[1:], np.append(1.5, y[2:]), once)
        if not (warned or merged_warned):
            assert_allclose(post.mean(Z), merged.mean(Z), atol=0.05)
        lost += warned
    assert lost < 10
    assert lost or (t == 8 and kernel is FEATURES)  # there, all features are seen often enough


@pytest.mark.parametrize("kernel", [FEATURES, Plain(FEATURES)], ids=["map", "plain"])
def test_values_that_agree_are_interpolated_at_any_noise(kernel):
    """Warnings are errors here: nothing is lost where nothing is contradicted."""
    X = np.array([[-0.5], [0.1], [0.1], [0.7]])
    y = np.array([1.0, 2.0, 2.0, 0.0])
    for noise in 10.0 ** -np.arange(8, 26, 2):
        assert_allclose(posterior(kernel, X, y, noise_var=noise).mean(X), y, atol=1e-6)


def test_the_deviation_of_a_noiseless_point_is_that_of_its_noise():
    """With fewer points than features, too, where k(x, x) exceeds the noise by 1e20."""
    kernel = KernelSum.uniform(legendre(9, scaling="l2"), weight=1.0)
    for noise in (1e-8, 1e-14, 1e-20):
        std = posterior(kernel, [0.3, 0.3], [1.0, 1.0], noise_var=noise).std([0.3])
        assert_allclose(std, np.sqrt(noise / 2), rtol=1e-3)


TANH = from_gram(lambda X, Z: np.tanh(2 * X @ Z.T + 1), name="tanh")
RADIAL = from_gram(lambda X, Z: np.exp(-((X - Z.T) ** 2)), name="radial")


def test_a_kernel_with_negative_eigenvalues_is_refused_by_name():
    X = np.linspace(-1, 1, 30)
    for base in (TANH, TANH + from_gram(lambda X, Z: 0.1 * X @ Z.T, name="line")):
        kernel = KernelSum.uniform(base, weight=1.0)
        with pytest.raises(InputError, match=r"'tanh' has eigenvalues from -2.7") as refused:
            posterior(kernel, X, np.sin(3 * X), noise_var=1e-3)
        assert "line" not in str(refused.value)


def test_rounding_is_not_taken_for_negative_eigenvalues():
    """A control: eigenvalues of -1e-15 are far below this noise, and of -1e-8 in float32."""
    X = np.linspace(-1, 1, 40)
    single = from_gram(
        lambda X, Z: np.exp(-((X - Z.T) ** 2)).astype(np.float32).astype(float), name="single"
    )
    for base in (RADIAL, single):
        kernel = KernelSum.uniform(base)
        assert np.linalg.eigvalsh(kernel(X))[0] < 0
        post = posterior(kernel, X, np.sin(X), noise_var=1e-20 if base is RADIAL else 1e-9)
        assert_allclose(post.mean(X), np.sin(X), atol=1e-2)


class Holder:
    kernel = GRAM


def test_what_is_no_kernel_is_named():
    with pytest.raises(InputError, match=r"kernel is a Holder; .*Holder\.kernel"):
        posterior(Holder(), [0.0], [0.0], noise_var=1.0)
    with pytest.raises(InputError, match=r"kernel is a KernelDictionary; .*KernelSum\.uniform"):
        posterior(TANH, [0.0], [0.0], noise_var=1.0)


def test_a_seed_is_no_generator():
    with pytest.raises(InputError, match=r"rng is 0; expected a numpy\.random\.Generator"):
        posterior(FEATURES, [0.0], [0.0], noise_var=1.0).sample([0.1], 0)


def test_a_posterior_is_shown_by_its_sizes():
    X = np.linspace(-0.9, 0.9, 40)[:, None]
    shown = repr(posterior(FEATURES, X, X[:, 0], noise_var=np.geomspace(0.1, 0.2, 40)))
    assert "40 observations" in shown
    assert "0.1 to 0.2" in shown
    assert "array" not in shown
    assert "0 observations" in repr(posterior(FEATURES, X[:0], [], noise_var=1.0))
