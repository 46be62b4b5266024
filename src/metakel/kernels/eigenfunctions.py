"""Principal functions of past tasks as base kernels: not stationary, each a single function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from metakel._arrays import Array
from metakel.kernels.family import FeatureFamily, Functions
from metakel.kernels.nystrom import NystromFeatures


@dataclass(frozen=True, eq=False)
class Eigenfunctions(FeatureFamily):
    r"""Base kernels :math:`\phi_j(x) \phi_j(z)` with :math:`\phi_j(x) = c_j + \psi(x)^\top u_j`.

    Parameters
    ----------
    basis : NystromFeatures
        Gives psi.
    constants : (p,) array
        c_j.
    directions : (r, p) array
        u_j, one per column.
    labels : tuple of p str
    """

    basis: NystromFeatures
    constants: Array
    directions: Array
    labels: tuple[str, ...]

    kind: ClassVar[str] = "principal"

    @property
    def names(self) -> tuple[str, ...]:
        """The labels."""
        return self.labels

    @property
    def dims(self) -> tuple[int | None, ...]:
        """One feature each."""
        return (1,) * len(self.labels)

    @property
    def d0(self) -> int | None:
        """How many inputs a point has."""
        return len(self.basis.shared.lengthscales)

    @property
    def sup(self) -> Array:
        """Unknown: nan."""
        return np.full(self.p, np.nan)

    @property
    def smooth(self) -> bool:
        """Matern-5/2 has derivatives everywhere."""
        return True

    def write_features(self, X: Array, out: Array) -> None:
        """Write the values, one function per row."""
        np.matmul(self.directions.T, self.basis.features(X).T, out=out)
        out += self.constants[:, None]

    def write_jacobian(self, X: Array, out: Array) -> None:
        """Write the (p, d0, n) derivatives."""
        pull = self.basis.inverse.T @ self.directions  # (r, p)
        for i in range(X.shape[1]):
            out[:, i] = pull.T @ self.basis.shared.slope(X, self.basis.landmarks, i).T

    def select(self, indices: Sequence[int]) -> Self:
        """These functions only."""
        chosen = list(indices)
        return type(self)(
            self.basis,
            self.constants[chosen],
            self.directions[:, chosen],
            tuple(self.labels[i] for i in chosen),
        )

    def parameters(self) -> dict[str, Any]:
        """Everything, as lists."""
        return {
            "basis": self.basis.to_dict(),
            "constants": self.constants.tolist(),
            "directions": self.directions.tolist(),
            "labels": list(self.labels),
        }

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], functions: Functions) -> Eigenfunctions:
        """Inverse of `parameters`."""
        basis = NystromFeatures.from_dict(parameters["basis"])
        directions = np.array(parameters["directions"], dtype=np.float64).reshape(basis.r, -1)
        constants = np.array(parameters["constants"], dtype=np.float64)
        return cls(basis, constants, directions, tuple(parameters["labels"]))
