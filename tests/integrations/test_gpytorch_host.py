"""GPyTorch's own test case for kernels, on every family of base kernels."""

from __future__ import annotations

from torch_conformance import CASES

globals().update(CASES)
