"""In what way a kernel is learned, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, is_number
from metakel.errors import InputError
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn.rules import RULES

DEFAULT, PIVOTAL, CV = "self-normalised", "square-root", "cv"

Weights = Literal["uniform", "eta"]
Scale = Literal["sum", "c1", "raw"]
Loss = Literal["points", "tasks"]


@dataclass(frozen=True, eq=False)
class LearnOptions:
    """The arguments of `learn_kernel`, to learn again in the same way."""

    noise_std: float | None
    lam: str | ArrayLike
    strength: float
    delta: float
    weights: Weights
    scale: Scale
    beta_min: float | None
    refit: bool
    loss: Loss
    tol: float

    def __post_init__(self) -> None:
        noise_std, beta_min = self.noise_std, self.beta_min
        _check_lam(self.lam, noise_std)
        if noise_std is not None and not (np.isfinite(noise_std) and noise_std > 0):
            raise InputError(f"noise_std is {noise_std}; expected a positive number, or None")
        if not (is_number(self.strength) and 0 < self.strength <= 1):
            raise InputError(
                f"strength is {self.strength!r}; expected a number in (0, 1]: 1 is the lambda of "
                "the rule, 0.5 half of it"
            )
        if self.weights not in get_args(Weights):
            raise InputError(f"weights is {self.weights!r}; expected 'uniform' or 'eta'")
        if self.scale not in get_args(Scale):
            raise InputError(f"scale is {self.scale!r}; expected 'sum', 'c1' or 'raw'")
        if beta_min is not None and not beta_min > 0:
            raise InputError(f"beta_min is {beta_min}; expected a positive number")

    def kernel(self, base: KernelDictionary, active: NDArray[np.intp], eta: Array) -> KernelSum:
        """The sum of the selected base kernels, weighed as asked (Eq. 9)."""
        if self.weights == "uniform" or not active.size:
            return KernelSum.uniform(base, active=active)
        if not eta.any():  # a refit that finds nothing above the noise: the empty kernel
            return KernelSum(base, eta)
        if self.scale == "sum":
            return KernelSum(base, eta / eta.sum())
        if self.scale == "c1":
            return KernelSum(base, eta / (self.beta_min or eta[eta > 0].min()))
        return KernelSum(base, eta)


def _check_lam(lam: str | ArrayLike | None, noise_std: float | None) -> None:
    """Numbers are checked where the number of kernels is known."""
    if lam is None or (isinstance(lam, str) and lam not in (*RULES, PIVOTAL, CV)):
        found = "lam is None" if lam is None else f"unknown lambda rule {lam!r}"
        raise InputError(
            f"{found}; expected a positive number, one for every base kernel, or one of the "
            f"known rules: {', '.join(RULES)} (these need noise_std), {PIVOTAL}, {CV}"
        )
    if noise_std is None and isinstance(lam, str) and lam not in (DEFAULT, PIVOTAL, CV):
        raise InputError(
            f"lambda rule {lam!r} needs noise_std; expected {PIVOTAL!r} or {CV!r} without it"
        )
