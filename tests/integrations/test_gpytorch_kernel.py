"""The torch form of a kernel is the kernel: values, gradients, batches, moves."""

from __future__ import annotations

import copy
import pickle
from unittest import TestCase

import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from numpy.testing import assert_allclose
from torch_conformance import CASES, CHECKS, Conformance
from torch_kernels import FAMILIES, MODEL, OWN, shape_in

import metakel as mk
from metakel.errors import InputError, ShapeError
from metakel.integrations.gpytorch import GPyTorchKernel, GPyTorchMean
from metakel.priors.confidence import Calibration

ALL = {**{name: make(2) for name, make in FAMILIES.items()}, **OWN}
RNG = np.random.default_rng(0)
X, Z = RNG.uniform(-1, 1, (7, 2)), RNG.uniform(-1, 1, (5, 2))


def dense(kernel, *points, dtype=torch.float64):
    tensors = [torch.tensor(x, dtype=dtype) for x in points]
    return kernel.to(dtype)(*tensors).to_dense().detach().numpy()


@pytest.mark.parametrize("name", ALL)
def test_values_are_those_of_the_numpy_kernel(name):
    ours, theirs = ALL[name], GPyTorchKernel(ALL[name])
    for dtype, rtol in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        size = np.abs(ours(X)).max()
        assert_allclose(dense(theirs, X, Z, dtype=dtype), ours(X, Z), rtol=rtol, atol=rtol * size)
        assert_allclose(dense(theirs, X, dtype=dtype), ours(X), rtol=rtol, atol=rtol * size)
        diagonal = theirs(torch.tensor(X, dtype=dtype), diag=True).numpy()
        assert diagonal.dtype == str(dtype).removeprefix("torch.")
        assert_allclose(diagonal, ours.diag(X), rtol=rtol, atol=rtol * size)


def test_single_precision_in_between_costs_no_digits():
    kernel = ALL["mixed"]
    moved = GPyTorchKernel(kernel).float().double()
    assert_allclose(dense(moved, X), kernel(X), rtol=1e-13)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_in_both_points(name):
    kernel = GPyTorchKernel(ALL[name]).double()
    x, z = (torch.tensor(points[:3], requires_grad=True) for points in (X, Z))
    assert torch.autograd.gradcheck(lambda x, z: kernel(x, z).to_dense(), (x, z))
    assert torch.autograd.gradcheck(lambda x: kernel(x).to_dense(), (x,))
    assert torch.autograd.gradcheck(lambda x: kernel(x, diag=True), (x,))


@pytest.mark.parametrize("name", FAMILIES)
def test_equal_points_have_gradients_of_their_own(name):
    kernel, numpy_kernel = GPyTorchKernel(ALL[name]).double(), ALL[name]
    x = torch.tensor(X[:1], requires_grad=True)
    (slope,) = torch.autograd.grad(kernel(x, torch.tensor(X[:1])).to_dense().sum(), x)
    assert_allclose(slope.numpy(), numpy_kernel.gradient(X[0], X[:1]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_batches_are_one_matrix_after_the_other(name):
    kernel = GPyTorchKernel(ALL[name]).double()
    batches, points = torch.rand(3, 2, 4, 2).double(), torch.rand(5, 2).double()
    found = kernel(batches, points.expand(3, 2, 5, 2)).to_dense()
    assert found.shape == (3, 2, 4, 5)
    for i, j in np.ndindex(3, 2):
        assert_allclose(found[i, j], kernel(batches[i, j], points).to_dense(), rtol=1e-12)
    copies = GPyTorchKernel(ALL[name], batch_shape=torch.Size([2])).double()
    assert copies(points).shape == (2, 5, 5)
    assert_allclose(copies[1](points).to_dense(), kernel(points).to_dense(), rtol=1e-12)
    assert_allclose(copies(points, diag=True)[0], kernel(points, diag=True), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:The last_dim_is_batch argument")
@pytest.mark.parametrize("name", ["legendre l2", "prior", "stationary"])
def test_every_input_can_be_a_batch(name):
    kernel = GPyTorchKernel(FAMILIES[name](1)).double()
    x = torch.tensor(X)
    found = kernel(x, last_dim_is_batch=True).to_dense()
    for i in range(2):
        assert_allclose(found[i], kernel(x[:, i]).to_dense(), rtol=1e-12)
    diagonal = kernel(x, diag=True, last_dim_is_batch=True)
    assert_allclose(diagonal, found.diagonal(dim1=-1, dim2=-2), rtol=1e-12)
    with pytest.raises(ShapeError, match="1 inputs per point; expected"):
        GPyTorchKernel(FAMILIES[name](2)).double()(x, last_dim_is_batch=True).to_dense()


@pytest.mark.parametrize("name", ALL)
def test_copies_pickles_and_state(name):
    kernel = GPyTorchKernel(ALL[name]).double()
    expected = dense(kernel, X)
    for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert_allclose(dense(twin, X), expected, rtol=0)
    other = GPyTorchKernel(ALL[name].scaled(2.0)).double()
    assert_allclose(dense(other, X), 2 * expected, rtol=1e-12)
    other.load_state_dict(kernel.state_dict())
    assert_allclose(dense(other, X), expected, rtol=0)
    assert not list(kernel.parameters())
    assert "eta" in kernel.state_dict()


def test_a_fitted_factor_comes_from_a_scale_kernel():
    scaled = ScaleKernel(GPyTorchKernel(ALL["mixed"])).double()
    scaled.outputscale = torch.tensor(3.0).double()
    assert_allclose(dense(scaled, X), 3 * ALL["mixed"](X), rtol=1e-12)
    assert len(list(scaled.parameters())) == 1


def test_no_active_kernel_is_the_kernel_zero():
    nothing = GPyTorchKernel(mk.KernelSum(mk.kernels.legendre(3, scaling="l2"), np.zeros(3)))
    assert not dense(nothing, X[:, :1]).any()
    assert not nothing(torch.tensor(X[:, :1]), diag=True).any()


def test_the_domain_and_the_inputs_are_checked_as_in_numpy():
    kernel = GPyTorchKernel(ALL["legendre l2"]).double()
    with pytest.raises(InputError, match=r"\[-1, 1\]"):
        dense(kernel, 1.5 * X + 1)
    with pytest.raises(InputError, match=r"nan"):
        dense(kernel, np.full((2, 2), np.nan))
    with pytest.raises(ShapeError, match="3 inputs"):
        dense(kernel, np.zeros((2, 3)))
    for slip in (1e-15, 1e-7):  # float64, and float64 that was float32
        edge = np.array([[1.0 + slip, -1.0]])
        assert_allclose(dense(kernel, edge), ALL["legendre l2"](edge))
    with pytest.raises(InputError, match=r"give KernelSum\.uniform"):
        GPyTorchKernel(mk.kernels.legendre(3, scaling="l2"))


@pytest.mark.parametrize("name", OWN)
def test_your_own_function_has_values_and_says_that_it_has_no_slope(name):
    kernel = GPyTorchKernel(OWN[name]).double()
    x = torch.tensor(X, requires_grad=True)
    assert_allclose(kernel(x).to_dense().detach(), OWN[name](X), rtol=1e-12)
    with pytest.raises(InputError, match=r"'mine' is your own NumPy function.*with_grad"):
        kernel(x).to_dense().sum().backward()


def test_the_mean_is_that_of_the_prior_and_differentiable():
    learned = Calibration(shape_in(2), MODEL, np.empty(0))
    mean = GPyTorchMean(learned)
    for dtype, rtol in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        found = mean.to(dtype)(torch.tensor(X, dtype=dtype))
        assert found.dtype == dtype
        assert_allclose(found, learned.center(X), rtol=rtol)
    batch = torch.tensor(X[:6].reshape(2, 3, 2), requires_grad=True)
    assert mean.double()(batch).shape == (2, 3)
    assert torch.autograd.gradcheck(mean, (batch,))
    assert_allclose(pickle.loads(pickle.dumps(mean))(batch.detach()), mean(batch).detach())


def test_every_family_passes_the_checks_as_the_host_wrote_them():
    checks = [name for name in dir(BaseKernelTestCase) if name.startswith("test")]
    assert len(checks) >= CHECKS
    for made in CASES.values():
        assert all(getattr(made, name) is getattr(BaseKernelTestCase, name) for name in checks)


@pytest.mark.parametrize("check", ["test_kernel_dtype_device", "test_kernel_getitem_single_batch"])
def test_the_host_notices_a_kernel_that_forgets_its_batch_or_precision(check):
    class Forgetful(GPyTorchKernel):
        dtype = torch.float16

        def __getitem__(self, index):
            return GPyTorchKernel(FAMILIES["cosines"](2))

    class Broken(Conformance, TestCase):
        def create_kernel_no_ard(self, **options):
            return Forgetful(FAMILIES["fourier"](2), **options)

    result = Broken(check).run()
    assert result is not None
    assert not result.wasSuccessful()
