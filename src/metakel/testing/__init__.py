"""Checks for people who write their own base kernels; they need no test framework."""

from metakel.testing.kernels import (
    check_derivatives,
    check_features,
    check_gradient,
    check_grams,
    check_kernel,
    check_select,
    check_storage,
)

__all__ = [
    "check_derivatives",
    "check_features",
    "check_gradient",
    "check_grams",
    "check_kernel",
    "check_select",
    "check_storage",
]
