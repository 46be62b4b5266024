"""Squared exponential and Matern kernels as functions of the squared scaled distance."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

# The slope of the square root at 0 is infinite; below this the distance counts as 0, slope and all.
COINCIDENT = 1e-30


def profile(shape: str, squares: Tensor) -> Tensor:
    """k for "se", "matern12", "matern32" or "matern52", elementwise."""
    if shape == "se":
        return torch.exp(-squares / 2)
    r = squares.clamp_min(COINCIDENT).sqrt()
    if shape == "matern12":
        return torch.exp(-r)
    if shape == "matern32":
        s = sqrt(3) * r
        return (1 + s) * torch.exp(-s)
    s = sqrt(5) * r
    return (1 + s + s * s / 3) * torch.exp(-s)
