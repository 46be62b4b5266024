"""The kernel protocol, families of base kernels, and dictionaries to learn a kernel from (Eq. 5).

To add a kind of base kernel, write a subclass of `FeatureFamily` or `GramFamily` with a ``kind`` of
its own, and a function that makes a `KernelDictionary` of it. If the class is a frozen dataclass,
`metakel._files` stores and loads it by its fields; nothing else needs to know it.
`metakel.testing.check_kernel` checks what is promised here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_points
from metakel.errors import InputError, ShapeError

# Rescaling or float32 may leave a domain by rounding, which is corrected; more is an error.
DOMAIN_SLACK = 1e-6


class Kernel(Protocol):
    """A positive semi-definite function of two points."""

    def __call__(self, X: ArrayLike, Z: ArrayLike | None = None) -> Array:
        """(n, k) Gram matrix of ``X`` against ``Z`` (against itself when ``Z`` is None)."""
        ...

    def diag(self, X: ArrayLike) -> Array:
        """(n,) values k(x, x)."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class KernelDictionary:
    """Base kernels k_1, ..., k_p (Eq. 5), made by `legendre`, `matern`, ... and joined by ``+``.

    Parameters
    ----------
    families : tuple of Family
        Blocks of kernels evaluated together, in the order of the kernels.
    d0 : int or None
        How many inputs a point has; found from the families that fix it, None if none does.
    """

    families: tuple[Family, ...]
    d0: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "families", tuple(self.families))
        d0 = self.d0
        for family in self.families:
            d0 = family.d0 if d0 is None else d0
            if family.d0 not in (None, d0):
                raise ShapeError(
                    f"base kernel {family.names[0]} takes {family.d0} inputs but others take {d0}; "
                    "all base kernels of a dictionary share their inputs"
                )
        object.__setattr__(self, "d0", d0)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the p kernels, as reports show them."""
        return tuple(name for family in self.families for name in family.names)

    @cached_property
    def p(self) -> int:
        """Number of base kernels."""
        return len(self.names)

    @cached_property
    def dims(self) -> tuple[int | None, ...]:
        """Feature dimension d_j of each kernel, None where there are Gram matrices only."""
        return tuple(dim for family in self.families for dim in family.dims)

    @cached_property
    def sup(self) -> Array:
        """(p,) supremum of k_j(x, x) over the domain, nan where unknown."""
        return np.concatenate([np.empty(0), *(family.sup for family in self.families)])

    @cached_property
    def finite(self) -> bool:
        """Whether every kernel has a feature map."""
        return None not in self.dims

    @cached_property
    def smooth(self) -> bool:
        """Whether every kernel has derivatives everywhere."""
        return all(family.smooth for family in self.families)

    @cached_property
    def dim(self) -> int:
        """d, the number of features of all kernels together (feature kernels only)."""
        return sum(family.dim for family, _ in self._feature_rows)

    @cached_property
    def groups(self) -> tuple[slice, ...]:
        """Columns of `features` that belong to each kernel (feature kernels only)."""
        _ = self._feature_rows
        return row_slices(self.dims)

    @cached_property
    def _feature_rows(self) -> tuple[tuple[FeatureFamily, slice], ...]:
        """Every family and the rows of its features in a table of all; refuses Gram families."""
        found, stop = [], 0
        for family in self.families:
            if not isinstance(family, FeatureFamily):
                raise InputError(
                    f"base kernel {family.names[0]} has no feature map, only Gram matrices; "
                    "use grams instead of features"
                )
            found.append((family, slice(stop, stop := stop + family.dim)))
        return tuple(found)

    def points(self, X: ArrayLike) -> Array:
        """Points as a checked ``(n, d0)`` array; a vector is n points of one input each."""
        points = as_points(X, "kernel")
        if self.d0 is not None and points.shape[1] != self.d0:
            raise ShapeError(
                f"kernel: X has shape {np.shape(X)}, which is {points.shape[1]} inputs per point; "
                f"expected (n, {self.d0})"
            )
        for low, high in self._domains:
            found_low, found_high = points.min(initial=low), points.max(initial=high)
            if found_low < low - DOMAIN_SLACK or found_high > high + DOMAIN_SLACK:
                raise InputError(
                    f"kernel: X ranges over [{points.min():.9g}, {points.max():.9g}]; the base "
                    f"kernels live on [{low:g}, {high:g}] (rescale the inputs first)"
                )
            if found_low < low or found_high > high:
                np.clip(points, low, high, out=points)
        return points

    @cached_property
    def _domains(self) -> frozenset[tuple[float, float]]:
        return frozenset(f.domain for f in self.families if f.domain is not None)

    def features(self, X: ArrayLike) -> Array:
        """(n, d) features of all kernels; each column is contiguous in memory."""
        points = self.points(X)
        out = np.empty((self.dim, len(points)))
        for family, rows in self._feature_rows:
            family.write_features(points, out[rows])
        return out.T

    def jacobian(self, X: ArrayLike) -> Array:
        """(n, d, d0) derivatives of the features in the inputs."""
        points = self.points(X)
        out = np.empty((self.dim, points.shape[1], len(points)))
        for family, rows in self._feature_rows:
            family.write_jacobian(points, out[rows])
        return out.transpose(2, 0, 1)

    def features_and_jacobian(self, X: ArrayLike) -> tuple[Array, Array]:
        """`features` (n, d) and `jacobian` (n, d, d0) at once."""
        points = self.points(X)
        features = np.empty((self.dim, len(points)))
        jacobian = np.empty((self.dim, points.shape[1], len(points)))
        for family, rows in self._feature_rows:
            family.write_both(points, features[rows], jacobian[rows])
        return features.T, jacobian.transpose(2, 0, 1)

    def grams(self, X: ArrayLike, Z: ArrayLike | None = None) -> Array:
        """(p, n, k) Gram matrices of every kernel."""
        left = self.points(X)
        right = left if Z is None else self.points(Z)
        blocks = [family.grams(left, right) for family in self.families]
        if len(blocks) == 1:
            return blocks[0]
        return np.concatenate([np.empty((0, len(left), len(right))), *blocks])

    def diags(self, X: ArrayLike) -> Array:
        """(p, n) values k_j(x, x)."""
        points = self.points(X)
        blocks = [family.diags(points) for family in self.families]
        return np.concatenate([np.empty((0, len(points))), *blocks])

    def select(self, indices: Sequence[int] | Array) -> KernelDictionary:
        """The dictionary of these base kernels only, in this order."""
        owner = [(b, i) for b, family in enumerate(self.families) for i in range(family.p)]
        chosen = [owner[j] for j in checked_indices(indices, self.p)]
        runs = [(b, [i for _, i in run]) for b, run in groupby(chosen, key=lambda pair: pair[0])]
        return KernelDictionary(tuple(self.families[b].select(run) for b, run in runs), self.d0)

    def __add__(self, other: KernelDictionary) -> KernelDictionary:
        if not isinstance(other, KernelDictionary):
            return NotImplemented
        return KernelDictionary(self.families + other.families)

    def __len__(self) -> int:
        return self.p

    def __repr__(self) -> str:
        shown = self.names if self.p <= 6 else (*self.names[:3], "...", self.names[-1])
        return f"KernelDictionary(p={self.p}, d0={self.d0 or 'any'}: {', '.join(shown)})"


def checked_indices(indices: Any, p: int) -> list[int]:
    """Indices of base kernels as distinct integers in 0..p-1."""
    found = np.asarray(indices)
    if found.size == 0:
        return []
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise InputError(f"indices of base kernels must be a list of integers; found {indices!r}")
    if found.min() < 0 or found.max() >= p:
        raise InputError(
            f"there are {p} base kernels, 0 to {p - 1}; found indices from {found.min()} "
            f"to {found.max()}"
        )
    if len(np.unique(found)) < len(found):
        raise InputError(f"a base kernel is chosen twice in {found.tolist()}")
    return [int(i) for i in found]


class Family(ABC):
    """p base kernels evaluated together; immutable.

    Its methods receive checked points: finite ``(n, d0)`` arrays, which they must not change. A
    family either has feature maps (`FeatureFamily`) or gives Gram matrices only (`GramFamily`).
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the p kernels, as reports show them."""

    @property
    @abstractmethod
    def dims(self) -> tuple[int | None, ...]:
        """Feature dimension of each kernel, None where it is infinite."""

    @property
    @abstractmethod
    def d0(self) -> int | None:
        """Number of inputs of a point, None if any number will do."""

    @property
    def sup(self) -> Array:
        """(p,) supremum of k_j(x, x) over the domain, nan where unknown (the default)."""
        return np.full(self.p, np.nan)

    @property
    @abstractmethod
    def smooth(self) -> bool:
        """Whether every kernel has derivatives everywhere."""

    @property
    def p(self) -> int:
        """Number of base kernels."""
        return len(self.names)

    @property
    def domain(self) -> tuple[float, float] | None:
        """Bounds of every input outside of which the kernels are not defined, if there are any."""
        return None

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """Functions of the user, by the names under which they are stored."""
        return {}

    @abstractmethod
    def grams(self, X: Array, Z: Array) -> Array:
        """(p, n, k) Gram matrices."""

    @abstractmethod
    def diags(self, X: Array) -> Array:
        """(p, n) values k_j(x, x)."""

    @abstractmethod
    def select(self, indices: Sequence[int]) -> Self:
        """The family of these base kernels only, in this order."""


class FeatureFamily(Family):
    r"""Base kernels with finite feature maps, :math:`k_j(x, z) = \phi_j(x)^\top \phi_j(z)`."""

    @abstractmethod
    def write_features(self, X: Array, out: Array) -> None:
        """Write the features of all kernels, one per row, into ``out`` of shape (d, n)."""

    @abstractmethod
    def write_jacobian(self, X: Array, out: Array) -> None:
        """Write the derivatives of the features into ``out`` of shape (d, d0, n)."""

    def write_both(self, X: Array, features: Array, jacobian: Array) -> None:
        """`write_features` and `write_jacobian`, which may share work."""
        self.write_features(X, features)
        self.write_jacobian(X, jacobian)

    @cached_property
    def dim(self) -> int:
        """Number of features of all kernels together."""
        return sum(dim for dim in self.dims if dim is not None)

    def features(self, X: Array) -> Array:
        """(n, d) features; each column is contiguous in memory."""
        out = np.empty((self.dim, len(X)))
        self.write_features(X, out)
        return out.T

    def jacobian(self, X: Array) -> Array:
        """(n, d, d0) derivatives of the features."""
        out = np.empty((self.dim, X.shape[1], len(X)))
        self.write_jacobian(X, out)
        return out.transpose(2, 0, 1)

    def grams(self, X: Array, Z: Array) -> Array:
        """(p, n, k) Gram matrices."""
        left = self.features(X).T
        right = left if Z is X else self.features(Z).T
        out = np.empty((self.p, len(X), len(Z)))
        for K, rows in zip(out, row_slices(self.dims), strict=True):
            np.matmul(left[rows].T, right[rows], out=K)
        return out

    def diags(self, X: Array) -> Array:
        """(p, n) values k_j(x, x)."""
        squares = self.features(X).T ** 2
        if self.dim == self.p:
            return squares
        starts = [rows.start for rows in row_slices(self.dims)]
        return np.asarray(np.add.reduceat(squares, starts, axis=0))


class GramFamily(Family):
    """Base kernels known by their Gram matrices only; their features may be infinite."""

    @abstractmethod
    def each_gram(self, X: Array, Z: Array) -> Iterator[Array]:
        """Yield one (n, k) Gram matrix after the other, so that p of them need not be stored."""

    @abstractmethod
    def each_gradient(self, X: Array, Z: Array) -> Iterator[Array]:
        """Yield one (n, k, d0) derivative of k_j(x, z) in x after the other."""

    @property
    def dims(self) -> tuple[int | None, ...]:
        """None for every kernel: the features are not available."""
        return (None,) * self.p

    def grams(self, X: Array, Z: Array) -> Array:
        """(p, n, k) Gram matrices."""
        out = np.empty((self.p, len(X), len(Z)))
        for j, K in enumerate(self.each_gram(X, Z)):
            out[j] = K
        return out

    def gram_gradients(self, X: Array, Z: Array) -> Array:
        """(p, n, k, d0) derivatives of k_j(x, z) in x."""
        out = np.empty((self.p, len(X), len(Z), X.shape[1]))
        for j, gradient in enumerate(self.each_gradient(X, Z)):
            out[j] = gradient
        return out


def row_slices(dims: Sequence[int | None]) -> tuple[slice, ...]:
    """Where the features of each kernel are when all are concatenated."""
    ends = np.cumsum([0, *(dim or 0 for dim in dims)]).tolist()
    return tuple(slice(start, stop) for start, stop in pairwise(ends))
