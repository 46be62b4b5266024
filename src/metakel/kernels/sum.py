"""Weighted sums of base kernels (Eqs. 5, 9, 10), and functions in their space."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel._files import Content, Format, Functions, decode, encode, write_file
from metakel.errors import InputError, ShapeError
from metakel.kernels.base import GramFamily, KernelDictionary, checked_indices, row_slices


@dataclass(frozen=True, eq=False)
class KernelFunction:
    """f(x) = phi(x)' coefficients (Eq. 6), as a function of points (n, d0)."""

    kernel: KernelSum  # with features phi
    coefficients: Array  # (d,)

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


FORMAT = Format("metakel.KernelSum", version=1, noun="kernel")


@dataclass(frozen=True, eq=False, repr=False)
class KernelSum:
    r"""The kernel :math:`k = \sum_j \eta_j k_j` (Eqs. 5 and 9).

    Only the active kernels, those with eta_j > 0, are evaluated. A sum without active kernels is
    allowed: it is zero.

    Parameters
    ----------
    base : KernelDictionary
        The base kernels k_j.
    eta : (p,) array
        Their weights, none of them negative.
    """

    base: KernelDictionary
    eta: Array

    def __post_init__(self) -> None:
        eta = np.array(self.eta, dtype=np.float64)
        if eta.shape != (self.base.p,):
            raise ShapeError(
                f"eta has shape {eta.shape}; expected one weight for each of the "
                f"{self.base.p} base kernels"
            )
        bad = np.flatnonzero(~(np.isfinite(eta) & (eta >= 0)))
        if len(bad):
            raise InputError(
                f"eta[{bad[0]}] is {eta[bad[0]]}; expected finite weights that are not negative"
            )
        eta.setflags(write=False)
        object.__setattr__(self, "eta", eta)

    @classmethod
    def uniform(
        cls,
        base: KernelDictionary,
        active: Sequence[int] | NDArray[np.intp] | None = None,
        weight: float | None = None,
    ) -> KernelSum:
        """The same weight on every kernel: k_full with 1/p (Eq. 10).

        Parameters
        ----------
        base : KernelDictionary
        active : indices, optional
            The kernels that get the weight; all of them by default.
        weight : float, optional
            By default 1/p on all kernels (Eq. 10), and 1 on each kernel of ``active``.
        """
        eta = np.zeros(base.p)
        if active is None:
            eta[:] = 1 / max(base.p, 1) if weight is None else weight
        else:
            eta[checked_indices(active, base.p)] = 1.0 if weight is None else weight
        return cls(base, eta)

    @cached_property
    def active(self) -> NDArray[np.intp]:
        """Indices of the kernels with a positive weight."""
        return np.flatnonzero(self.eta)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the active kernels."""
        return tuple(self.base.names[j] for j in self.active)

    @property
    def d0(self) -> int | None:
        """How many inputs a point has, None if any number will do."""
        return self.base.d0

    @cached_property
    def dims(self) -> tuple[int | None, ...]:
        """Feature dimensions of the active kernels."""
        return tuple(self.base.dims[j] for j in self.active)

    @cached_property
    def finite(self) -> bool:
        """Whether every active kernel has a feature map."""
        return None not in self.dims

    @cached_property
    def dim(self) -> int:
        """Number of features of the active kernels together (feature kernels only)."""
        return self._finite_part.dim

    @cached_property
    def groups(self) -> tuple[slice, ...]:
        """Columns of `features` that belong to each active kernel (feature kernels only)."""
        return self._finite_part.groups

    @property
    def min_weight(self) -> float:
        """The smallest positive weight, 0 for the empty sum."""
        return float(self.eta[self.active].min()) if len(self.active) else 0.0

    @cached_property
    def smooth(self) -> bool:
        """Whether every active kernel has derivatives everywhere."""
        return self._mapped.smooth and self._unmapped.smooth

    @cached_property
    def _mapped(self) -> KernelDictionary:
        """The active kernels with a feature map."""
        return self.base.select([j for j in self.active if self.base.dims[j] is not None])

    @cached_property
    def _root_weights(self) -> Array:
        """(dim, 1) square roots of the weights, one per feature of `_mapped`."""
        pairs = [(self.eta[j], self.base.dims[j]) for j in self.active]
        roots = [np.full(dim, np.sqrt(weight)) for weight, dim in pairs if dim is not None]
        return np.concatenate([np.empty(0), *roots])[:, None]

    @cached_property
    def _unmapped(self) -> KernelDictionary:
        """The active kernels without a feature map."""
        return self.base.select([j for j in self.active if self.base.dims[j] is None])

    @cached_property
    def _unmapped_weights(self) -> tuple[tuple[GramFamily, Array], ...]:
        """Each family of `_unmapped` with the weights of its kernels."""
        weights = np.array([self.eta[j] for j in self.active if self.base.dims[j] is None])
        families = [f for f in self._unmapped.families if isinstance(f, GramFamily)]
        rows = row_slices([family.p for family in families])
        return tuple((f, weights[block]) for f, block in zip(families, rows, strict=True))

    @property
    def _finite_part(self) -> KernelDictionary:
        if not self.finite:
            raise InputError(
                f"active kernel {self._unmapped.names[0]} has no feature map, only Gram matrices; "
                "call the kernel instead of asking for features"
            )
        return self._mapped

    def features(self, X: ArrayLike) -> Array:
        """(n, dim) features sqrt(eta_j) phi_j(x) of the active kernels, contiguous by column."""
        _ = self._finite_part
        return self._weighted_rows(X).T

    def jacobian(self, X: ArrayLike) -> Array:
        """(n, dim, d0) derivatives of the features in the inputs."""
        slopes = self._finite_part.jacobian(X)
        slopes *= self._root_weights
        return slopes

    def features_and_jacobian(self, X: ArrayLike) -> tuple[Array, Array]:
        """`features` (n, dim) and `jacobian` (n, dim, d0) at once, for a climb with few points."""
        features, jacobian = self._finite_part.features_and_jacobian(X)
        features.T[:] *= self._root_weights
        jacobian *= self._root_weights
        return features, jacobian

    def __call__(self, X: ArrayLike, Z: ArrayLike | None = None) -> Array:
        """(n, k) Gram matrix of ``X`` against ``Z`` (against itself when ``Z`` is None)."""
        left = self._weighted_rows(X)
        right = left if Z is None else self._weighted_rows(Z)
        K = left.T @ right
        if self._unmapped_weights:
            points = self._unmapped.points(X)
            others = points if Z is None else self._unmapped.points(Z)
            for family, weights in self._unmapped_weights:
                for weight, part in zip(weights, family.each_gram(points, others), strict=True):
                    K += weight * part
        return K

    def diag(self, X: ArrayLike) -> Array:
        """(n,) values k(x, x)."""
        rows = self._weighted_rows(X)
        values = np.asarray(np.einsum("dn,dn->n", rows, rows))
        for family, weights in self._unmapped_weights:
            values += weights @ family.diags(self._unmapped.points(X))
        return values

    def gradient(self, x: ArrayLike, Z: ArrayLike) -> Array:
        """(k, d0) derivatives of k(x, z_i) in the point x, for every row z_i of ``Z``."""
        point = np.reshape(np.asarray(x, dtype=np.float64), (1, -1))
        slopes = self._mapped.jacobian(point)[0] * self._root_weights  # (d, d0)
        gradient: Array = self._weighted_rows(Z).T @ slopes
        if self._unmapped_weights:
            points, others = self._unmapped.points(point), self._unmapped.points(Z)
            for family, weights in self._unmapped_weights:
                parts = family.each_gradient(points, others)
                for weight, part in zip(weights, parts, strict=True):
                    gradient += weight * part[0]
        return gradient

    def _weighted_rows(self, X: ArrayLike) -> Array:
        rows = self._mapped.features(X).T
        rows *= self._root_weights
        return rows

    def scaled(self, c: float) -> KernelSum:
        """The kernel c k; the norm of a function in its space is divided by sqrt(c)."""
        if not (np.isfinite(c) and c > 0):
            raise InputError(f"a kernel was scaled with {c}; expected a positive number")
        return KernelSum(self.base, c * self.eta)

    def to_json(self) -> str:
        """Exact text form: every number is read back bit by bit."""
        return json.dumps(self._document(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str, functions: Functions | None = None) -> KernelSum:
        """Inverse of `to_json`; ``functions`` gives the functions of the user by name."""
        with FORMAT.load(FORMAT.parse(text)) as content:
            return decode(cls, content, f"stored {FORMAT.noun}", functions)

    def save(self, path: str | Path) -> None:
        """Write `to_json` to a file; on an error the old file is still there."""
        write_file(path, self._document())

    @classmethod
    def load(cls, path: str | Path, functions: Functions | None = None) -> KernelSum:
        """Read what `save` wrote."""
        with FORMAT.read_file(path) as content:
            return decode(cls, content, str(path), functions)

    def _document(self) -> Content:
        kept: dict[str, Any] = {}
        for family in self.base.families:
            for name, function in family.functions.items():
                if kept.setdefault(name, function) is not function:
                    raise InputError(f"two of your kernels are both called {name!r}; rename one")
        return FORMAT.dump(encode(self))

    def __repr__(self) -> str:
        strongest = self.active[np.argsort(-self.eta[self.active], kind="stable")][:6]
        terms = [f"{self.eta[j]:.3g} {self.base.names[j]}" for j in strongest]
        rest = len(self.active) - len(terms)
        shown = " + ".join(terms) + (f" + {rest} more" if rest else "") or "0"
        return f"KernelSum({len(self.active)} of {self.base.p} active: {shown})"


def same_kernels(one: KernelDictionary, other: KernelDictionary) -> bool:
    """Whether these are the same base kernels, the user's own functions included."""
    functions = [[family.functions for family in base.families] for base in (one, other)]
    return one is other or (functions[0] == functions[1] and encode(one) == encode(other))


def as_kernel(name: str, value: Any) -> KernelSum:
    """The kernel itself; an error for anything else says how to get one from it."""
    if isinstance(value, KernelSum):
        return value
    kind = type(value).__name__
    if isinstance(getattr(value, "kernel", None), KernelSum):  # a learned kernel, a prior
        variable = {"LearnedKernel": "learned"}.get(kind, kind.lower())
        advice = f"give {variable}.kernel"
    elif isinstance(value, KernelDictionary):
        advice = "give KernelSum.uniform(base, weight=1.0) for all of its base kernels"
    else:
        advice = "expected a KernelSum, such as KernelSum.uniform(base)"
    raise InputError(f"{name} is a {kind}; {advice}")
