"""GPyTorch's own test case for kernels, with a class for every family of base kernels."""

from __future__ import annotations

from unittest import TestCase

import torch
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from torch_kernels import FAMILIES, OWN

from metakel.integrations.gpytorch import GPyTorchKernel

# The host evaluates its kernels on data of this many inputs; ours are made for a number of them.
INPUTS = {"test_active_dims_list": 4, "test_active_dims_range": 6}
CHECKS = 13  # of the host, for each of them


class Conformance(BaseKernelTestCase):
    """The host's checks, on data inside of the domain of Legendre polynomials."""

    def make(self, d0):
        raise NotImplementedError

    def create_kernel_no_ard(self, **options):
        return GPyTorchKernel(self.make(INPUTS.get(self._testMethodName, 2)), **options)

    def create_kernel_ard(self, num_dims, **options):
        return GPyTorchKernel(self.make(num_dims), **options)

    def create_data_no_batch(self):
        return 2 * torch.rand(50, 10) - 1

    def create_data_single_batch(self):
        return 2 * torch.rand(2, 3, 2) - 1

    def create_data_double_batch(self):
        return 2 * torch.rand(3, 2, 50, 2) - 1


def case(name, make):
    title = "Test" + "".join(word.capitalize() for word in name.split())
    return title, type(title, (Conformance, TestCase), {"make": lambda self, d0: make(d0)})


CASES = dict(
    case(name, make)
    for name, make in (FAMILIES | {name: lambda d0, k=k: k for name, k in OWN.items()}).items()
)
