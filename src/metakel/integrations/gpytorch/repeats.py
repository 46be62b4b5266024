"""Points that BoTorch repeats, looked at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def once(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``function(x)`` (..., n, d), computed once for points that all batches (..., n, d0) share.

    BoTorch puts the observations beside every candidate, which for 500 candidates makes the
    features of a prior 100 times as costly. Not with gradients: equal points may come from
    different places.
    """
    if x.dim() < 3 or not x.numel() or (x.requires_grad and torch.is_grad_enabled()):
        return function(x)
    first = x[(0,) * (x.dim() - 2)]
    shared = (x == first).flatten(0, -3).all(dim=0).all(dim=-1)  # (n,)
    if not shared.any():
        return function(x)
    own = function(x[..., ~shared, :])
    values = own.new_empty(*x.shape[:-1], own.shape[-1])
    values[..., shared, :] = function(first[shared])
    values[..., ~shared, :] = own
    return values
