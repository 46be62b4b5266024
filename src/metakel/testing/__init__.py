"""Checks for own kernels, models, acquisitions and runs for the library; no framework needed."""

from metakel.testing.laws import (
    check_derivatives,
    check_features,
    check_gradient,
    check_grams,
    check_kernel,
    check_model,
    check_optimizer,
    check_score,
    check_select,
    check_storage,
)
from metakel.testing.library import check_library_entry

__all__ = [
    "check_derivatives",
    "check_features",
    "check_gradient",
    "check_grams",
    "check_kernel",
    "check_library_entry",
    "check_model",
    "check_optimizer",
    "check_score",
    "check_select",
    "check_storage",
]
