"""A function in the space of a kernel with features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.errors import ShapeError
from metakel.kernels.sum import KernelSum


@dataclass(frozen=True, eq=False)
class KernelFunction:
    """f(x) = phi(x)' coefficients (Eq. 6), as a function of points (n, d0).

    Parameters
    ----------
    kernel : KernelSum
        With features phi.
    coefficients : (d,) array
    """

    kernel: KernelSum
    coefficients: Array

    def __post_init__(self) -> None:
        if np.shape(self.coefficients) != (self.kernel.dim,):
            raise ShapeError(
                f"coefficients have shape {np.shape(self.coefficients)}; expected "
                f"({self.kernel.dim},), one for every feature of the kernel"
            )

    def __call__(self, Z: Array) -> Array:
        """(n,) values at ``Z`` (n, d0)."""
        return np.asarray(self.kernel.features(Z) @ self.coefficients)

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """(n,) values and (n, d0) derivatives, for smooth kernels."""
        Phi, jacobian = self.kernel.features_and_jacobian(Z)
        return Phi @ self.coefficients, np.einsum("d,ndk->nk", self.coefficients, jacobian)

    def __neg__(self) -> KernelFunction:
        return replace(self, coefficients=-self.coefficients)

    @property
    def norm(self) -> float:
        """Its norm in the space of the kernel."""
        return float(np.linalg.norm(self.coefficients))

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {"kernel": self.kernel.to_json(), "coefficients": self.coefficients.tolist()}

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> KernelFunction:
        """Inverse of `to_dict`; ``functions`` maps the names of the user's own kernels to them."""
        kernel = KernelSum.from_json(data["kernel"], functions)
        return cls(kernel, np.array(data["coefficients"], dtype=np.float64))
