"""The learned kernel in scikit-learn: its tests of kernels and of GPR, and laws of our own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel
from sklearn.gaussian_process.tests import test_gpr as host_regression
from sklearn.gaussian_process.tests import test_kernels as host_kernels
from sklearn_kernels import BASIC, COSINES, KERNELS, WAVES, host_tests, weighted

import metakel as mk
from metakel.integrations.sklearn import SklearnKernel

WHITE = "white noise is not the same off the diagonal"
LEFT_OUT = {  # as scikit-learn does for its own kernels
    "test_kernel_theta": lambda name: name not in BASIC and "only kernels that are no operators",
    "test_auto_vs_cross": lambda name: name == "white" and WHITE,
    "test_kernel_stationary": lambda name: not KERNELS[name].is_stationary() and "not stationary",
    "test_kernel_versus_pairwise": lambda name: name == "white" and WHITE,
}
HOST_KERNEL_CASES = [
    pytest.param(test, KERNELS[name], id=f"{test.__name__}-{name}")
    for test in host_tests(host_kernels)
    for name in KERNELS
    if not LEFT_OUT.get(test.__name__, lambda name: False)(name)
]


@pytest.mark.parametrize(("test", "kernel"), HOST_KERNEL_CASES)
def test_scikit_learn_accepts_the_kernel(test, kernel):
    test(kernel)


@pytest.mark.parametrize("name", ["test_kernel_gradient", "test_kernel_diag", "test_kernel_theta"])
def test_it_accepts_polynomials_within_their_domain(name, monkeypatch):
    monkeypatch.setattr(host_kernels, "X", host_kernels.X / 4)
    getattr(host_kernels, name)(
        SklearnKernel(weighted(mk.kernels.tensor_product(2, 4, scaling="l2")))
    )


def test_enough_of_its_tests_were_found():
    assert len(host_tests(host_kernels)) >= 10
    assert len(HOST_KERNEL_CASES) >= 100


class Wrong(SklearnKernel):
    """A kernel with the slope of another one."""

    def __call__(self, X, Y=None, eval_gradient=False):
        found = super().__call__(X, Y, eval_gradient)
        return (found[0], 2 * found[1]) if eval_gradient else found


def test_its_tests_refuse_a_wrong_gradient_and_a_false_claim_of_stationarity():
    with pytest.raises(AssertionError):
        host_kernels.test_kernel_gradient(Wrong(weighted(WAVES)))
    with pytest.raises(AssertionError):
        host_kernels.test_kernel_stationary(KERNELS["cosines"])


# scikit-learn's tests of GPR are about six points on [1, 8], which they interpolate to 1e-7 with
# kernels of unit variance; so the base kernels must be rich enough and their weights sum to 1.
SMOOTH = mk.KernelSum(mk.kernels.squared_exponential([0.8, 1.2], d0=1), np.array([0.4, 0.6]))
ROUGH = mk.KernelSum(mk.kernels.matern(2.5, [1.0, 2.0], d0=1), np.array([0.5, 0.5]))
REGRESSION_KERNELS = {
    "smooth": SklearnKernel(SMOOTH),
    "rough": SklearnKernel(ROUGH, 1.0, (1e-3, 1e3)),
    "fixed": SklearnKernel(SMOOTH, scale_bounds="fixed"),
    "with a constant": SklearnKernel(SMOOTH) + ConstantKernel(1e-5, (1e-5, 1e2)),
}
NEEDS_HYPERPARAMETERS = {
    "test_lml_improving",
    "test_converged_to_local_maximum",
    "test_solution_inside_bounds",
    "test_custom_optimizer",
}


@pytest.mark.filterwarnings("ignore:The optimal value found")
@pytest.mark.parametrize("name", REGRESSION_KERNELS)
@pytest.mark.parametrize("test", host_tests(host_regression), ids=lambda t: t.__name__)
def test_gaussian_process_regression_accepts_the_kernel(test, name):
    if name == "fixed" and test.__name__ in NEEDS_HYPERPARAMETERS:
        with pytest.raises(Exception):  # noqa: B017, PT011 (there is nothing to tune)
            test(REGRESSION_KERNELS[name])
    else:
        test(REGRESSION_KERNELS[name])


@pytest.mark.parametrize("base", [WAVES, COSINES, mk.kernels.matern(2.5, [0.5], d0=2)], ids=repr)
def test_the_posterior_is_ours(base, rng):
    kernel = mk.KernelSum.uniform(base, active=range(base.p))
    X, Z = rng.uniform(-1, 1, (25, 2)), rng.uniform(-1, 1, (40, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=25)
    theirs = GaussianProcessRegressor(SklearnKernel(kernel, scale_bounds="fixed"), alpha=0.01)
    mean, std = theirs.fit(X, y).predict(Z, return_std=True)
    ours = mk.posterior(kernel, X, y, noise_var=0.01)
    assert_allclose(mean, ours.mean(Z), atol=1e-8)
    assert_allclose(std, ours.std(Z), atol=1e-8)
    assert_allclose(theirs.predict(Z, return_cov=True)[1], ours.cov(Z), atol=1e-8)
    other = mk.posterior(kernel, X, y, noise_var=0.02)
    assert np.abs(mean - other.mean(Z)).max() > 1e-4


@pytest.mark.parametrize("name", KERNELS)
def test_pickles_and_copies_are_equal_and_change_alone(name):
    kernel = KERNELS[name]
    for same in (pickle.loads(pickle.dumps(kernel)), clone(kernel)):
        assert same == kernel
        assert_allclose(same(host_kernels.X), kernel(host_kernels.X), rtol=1e-14)
        if len(same.theta):
            same.theta = same.theta + 1
            assert same != kernel
            assert_allclose(kernel(host_kernels.X), clone(kernel)(host_kernels.X))


def test_kernels_that_differ_are_not_equal():
    kernel = SklearnKernel(weighted(WAVES))
    other_waves = mk.kernels.random_fourier(
        12, 2, lengthscales=[0.5, 2.0], rng=np.random.default_rng(1)
    )
    different: list[Kernel] = [
        SklearnKernel(weighted(WAVES), 2.0),
        SklearnKernel(weighted(WAVES), scale_bounds="fixed"),
        SklearnKernel(weighted(WAVES).scaled(2.0)),
        SklearnKernel(weighted(other_waves)),
        RBF(),
    ]
    assert all(kernel != other for other in different)
    assert kernel == SklearnKernel(weighted(WAVES))


def test_it_says_what_it_is_and_what_it_cannot_do():
    assert "P3" in repr(
        SklearnKernel(mk.KernelSum.uniform(mk.kernels.legendre(5, scaling="l2"), [2]))
    )
    with pytest.raises(ValueError, match="Y is None"):
        KERNELS["waves"](host_kernels.X, host_kernels.Y, eval_gradient=True)
    with pytest.raises(mk.InputError, match="rescale the inputs"):
        SklearnKernel(mk.KernelSum.uniform(mk.kernels.legendre(5, scaling="l2"), [2]))([[3.0]])


def test_what_has_a_kernel_is_refused_with_the_way_to_it(rng):
    X, y = rng.uniform(-1, 1, (30, 1)), rng.normal(size=30)
    base = mk.kernels.legendre(3, scaling="l2")
    history = mk.History.from_pairs([(X, y), (X, -y)])
    learned, prior = mk.learn_kernel(history, base, lam=0.01), mk.learn_prior(history)
    for given, remedy in (
        (learned, "kernel is a Learned.*give learned.kernel"),
        (prior, "kernel is a Prior.*give prior.kernel"),
        (base, "kernel is a KernelDictionary.*KernelSum.uniform"),
        (None, "kernel is a NoneType; expected a KernelSum"),
    ):
        kernel = SklearnKernel(given)
        assert kernel.kernel is given  # constructors of scikit-learn leave parameters alone
        with pytest.raises(mk.InputError, match=remedy):
            GaussianProcessRegressor(kernel + WhiteKernel()).fit(X, y)
        with pytest.raises(mk.InputError, match=remedy):
            kernel.diag(X)
