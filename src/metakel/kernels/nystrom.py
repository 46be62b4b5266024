r"""Nystrom features of the kernel that past tasks share, and functions of them as base kernels.

With landmarks B and L L' = k0(B, B), psi(x) = L^{-1} k0(B, x) gives psi(x)'psi(z) ~ k0(x, z);
what is missing, k0 - psi'psi, is positive semi-definite and zero at the landmarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, single_blas_thread
from metakel._files import Functions
from metakel.errors import ShapeError
from metakel.kernels.base import FeatureFamily
from metakel.kernels.stationary import Matern52ARD

Kind = TypeVar("Kind", bound=np.generic)

LANDMARKS = 200
# A landmark that leaves less than this share of the variance unexplained adds nothing.
RESIDUE = 1e-5


@dataclass(frozen=True, eq=False)
class NystromFeatures:
    """Landmarks and the features they give."""

    shared: Matern52ARD
    landmarks: Array  # (r, d0)
    inverse: Array  # (r, r) L^{-1}, lower triangular

    computed: ClassVar[tuple[str, ...]] = ("inverse",)

    def __post_init__(self) -> None:
        if self.landmarks.shape[1:] != self.shared.lengthscales.shape:
            raise ShapeError(
                f"landmarks have shape {self.landmarks.shape}; expected (r, "
                f"{len(self.shared.lengthscales)})"
            )

    @property
    def r(self) -> int:
        """How many features there are."""
        return len(self.landmarks)

    def features(self, X: Array) -> Array:
        """(n, r) features psi(x)."""
        K = self.shared.of_scaled(*self.shared.scale(X), *self.scaled_landmarks)
        return np.asarray(K @ self.inverse.T)

    @cached_property
    def scaled_landmarks(self) -> tuple[Array, Array]:
        """(r, d0) landmarks in units of the lengthscales, and their (r,) squared norms."""
        return self.shared.scale(self.landmarks)

    def pull(self, coefficients: Array) -> Array:
        """(r, k) weights of the kernel at the landmarks, for functions psi(x)'u_j, u (r, k)."""
        return np.asarray(self.inverse.T @ coefficients)

    def slopes(self, pull: Array, scaled: Array) -> Array:
        """(k, n, d0) derivatives of these functions at points in units of the lengthscales."""
        landmarks, _ = self.scaled_landmarks
        return np.tensordot(pull.T, self.shared.slopes_of_scaled(landmarks, scaled), axes=1)

    @classmethod
    def restored(cls, stored: Mapping[str, Any], functions: Functions) -> NystromFeatures:
        """From kernel and landmarks; the factor is computed again."""
        return basis_at(stored["shared"], stored["landmarks"])


def choose_basis(shared: Matern52ARD, pooled: Array, count: int = LANDMARKS) -> NystromFeatures:
    """Landmarks among the pooled points of all tasks, by pivoted Cholesky factorisation.

    Each is the point that the earlier ones explain least, so none is redundant and no random
    draw is needed.
    """
    points = spread_rows(pooled, 4 * count)
    left = np.full(len(points), shared.signal)
    rows = np.empty((min(count, len(points)), len(points)))
    chosen: list[int] = []
    for j in range(len(rows)):
        pivot = int(np.argmax(left))
        if left[pivot] <= RESIDUE * shared.signal:
            break
        row = shared(points[pivot : pivot + 1], points)[0] - rows[:j, pivot] @ rows[:j]
        row /= np.sqrt(left[pivot])
        rows[j] = row
        left = np.maximum(left - row * row, 0)
        left[pivot] = 0.0
        chosen.append(pivot)
    return basis_at(shared, points[chosen])


@single_blas_thread
def basis_at(shared: Matern52ARD, landmarks: Array) -> NystromFeatures:
    """The basis of these landmarks: the same, to the last bit, for all who read a prior."""
    from scipy.linalg import solve_triangular

    K = shared(landmarks, landmarks)
    K.flat[:: len(K) + 1] += RESIDUE * shared.signal
    inverse = solve_triangular(np.linalg.cholesky(K), np.eye(len(K)), lower=True)
    return NystromFeatures(shared, landmarks, inverse)


def spread_rows(X: NDArray[Kind], count: int) -> NDArray[Kind]:
    """At most ``count`` rows, spread evenly over the table whatever the period of its order."""
    if len(X) <= count:
        return X
    golden = (np.arange(len(X)) * 0.6180339887498949) % 1.0
    return X[np.sort(np.argsort(golden)[:count])]


@dataclass(frozen=True, eq=False)
class Eigenfunctions(FeatureFamily):
    r"""Principal functions of past tasks as base kernels, of one feature each.

    .. math:: k_j(x, z) = \phi_j(x) \phi_j(z), \quad \phi_j(x) = c_j + \psi(x)^\top u_j
    """

    basis: NystromFeatures  # gives psi
    constants: Array  # (p,) c_j
    directions: Array  # (r, p) u_j, one per column
    labels: tuple[str, ...]

    kind: ClassVar[str] = "principal"
    smooth: ClassVar[bool] = True  # Matern-5/2 has derivatives everywhere

    @property
    def names(self) -> tuple[str, ...]:
        return self.labels

    @property
    def dims(self) -> tuple[int | None, ...]:
        return (1,) * len(self.labels)

    @property
    def d0(self) -> int | None:
        return len(self.basis.shared.lengthscales)

    def write_features(self, X: Array, out: Array) -> None:
        np.matmul(self.directions.T, self.basis.features(X).T, out=out)
        out += self.constants[:, None]

    def write_jacobian(self, X: Array, out: Array) -> None:
        pull = self.basis.pull(self.directions)
        out[:] = self.basis.slopes(pull, self.basis.shared.scale(X)[0]).transpose(0, 2, 1)

    def select(self, indices: Sequence[int]) -> Self:
        chosen = list(indices)
        return type(self)(
            self.basis,
            self.constants[chosen],
            self.directions[:, chosen],
            tuple(self.labels[i] for i in chosen),
        )
