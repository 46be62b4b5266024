"""Families: blocks of base kernels of one kind that are evaluated together (Eq. 5).

To add a kind of base kernel, write a subclass of `FeatureFamily` or `GramFamily` with a ``kind`` of
its own, and a function that makes a `KernelDictionary` of it. The class registers itself for
loading; nothing else needs to know it. `metakel.testing.check_kernel` checks what is promised here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError

Functions = Mapping[str, Callable[..., Any]]


class Family(ABC):
    """p base kernels evaluated together; immutable.

    Its methods receive checked points: finite ``(n, d0)`` arrays, which they must not change. A
    family either has feature maps (`FeatureFamily`) or gives Gram matrices only (`GramFamily`).
    """

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Family]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            Family._kinds[cls.kind] = cls

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
    @abstractmethod
    def sup(self) -> Array:
        """(p,) supremum of k_j(x, x) over the domain, nan where unknown."""

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

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """What JSON must store to restore the family."""

    @classmethod
    @abstractmethod
    def from_parameters(cls, parameters: Mapping[str, Any], functions: Functions) -> Family:
        """Inverse of `parameters`; ``functions`` are those that JSON cannot store, by name."""

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {"kind": self.kind, **self.parameters()}

    @staticmethod
    def from_dict(data: Mapping[str, Any], functions: Functions | None = None) -> Family:
        """Inverse of `to_dict`."""
        kind = data.get("kind")
        if kind not in Family._kinds:
            known = ", ".join(sorted(Family._kinds))
            raise InputError(f"stored kernels are of kind {kind!r}; known kinds are {known}")
        return Family._kinds[kind].from_parameters(data, functions or {})


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
