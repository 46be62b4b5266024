"""Base kernels made from a function of the user: a feature map, or one for Gram matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, check_count
from metakel._files import Functions
from metakel.errors import InputError, ShapeError
from metakel.kernels.base import Family, FeatureFamily, GramFamily, KernelDictionary

# k(x, x) is read off small Gram matrices, so that n points do not cost n**2 values.
DIAGONAL_BLOCK = 64


def from_features(
    function: Callable[[Array], ArrayLike],
    dim: int,
    *,
    name: str,
    d0: int | None = None,
    sup: float | None = None,
) -> KernelDictionary:
    """One base kernel phi(x)'phi(z) from its feature map.

    Parameters
    ----------
    function : callable
        Takes (n, d0) points and gives (n, dim) features.
    dim : int
        How many features there are.
    name : str
        Stored instead of the function when the kernel is saved; loading needs
        ``functions={name: function}``.
    d0 : int, optional
        How many inputs a point has; any number by default.
    sup : float, optional
        Supremum of k(x, x) over the domain, where it is known.
    """
    check_count(f"kernel {name!r}: dim", dim)
    return KernelDictionary((CustomFeatures(function, name, d0, sup, int(dim)),))


def from_gram(
    function: Callable[[Array, Array], ArrayLike],
    *,
    name: str,
    d0: int | None = None,
    sup: float | None = None,
) -> KernelDictionary:
    """One base kernel from a function that gives its Gram matrices.

    Parameters
    ----------
    function : callable
        Takes (n, d0) and (k, d0) points and gives the (n, k) values k(x, z); symmetric and
        positive semi-definite.
    name, d0, sup
        As for `from_features`.
    """
    return KernelDictionary((CustomGram(function, name, d0, sup),))


@dataclass(frozen=True, eq=False)
class Custom(Family):
    """What both kinds share: one function, stored by name."""

    function: Callable[..., ArrayLike]
    name: str
    inputs: int | None
    bound: float | None

    smooth: ClassVar[bool] = False  # the derivatives of the function are not known
    computed: ClassVar[tuple[str, ...]] = ("function",)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"kernel {self.name!r}: {self.function!r} is not a function")
        if self.bound is not None and not (np.isfinite(self.bound) and self.bound > 0):
            raise InputError(f"kernel {self.name!r}: sup is {self.bound}; expected it positive")

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        return {self.name: self.function}

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def d0(self) -> int | None:
        return self.inputs

    @property
    def sup(self) -> Array:
        """The supremum that was given, nan without."""
        return np.array([np.nan if self.bound is None else self.bound])

    def select(self, indices: Sequence[int]) -> Self:
        """The only kernel there is."""
        return self

    @classmethod
    def restored(cls, stored: Mapping[str, Any], functions: Functions) -> Self:
        """From everything but the function, and the function of this name."""
        name = stored["name"]
        if name not in functions:
            given = ", ".join(repr(known) for known in functions) or "none"
            raise InputError(
                f"the saved kernel uses the function {name!r} of its user; load it with "
                f"functions={{{name!r}: ...}} (given: {given})"
            )
        return cls(function=functions[name], **stored)

    def checked(self, values: ArrayLike, shape: tuple[int, ...]) -> Array:
        """What the function returned, if its shape is right and its values are finite."""
        found = np.asarray(values, dtype=np.float64)
        if found.shape != shape:
            raise ShapeError(
                f"kernel {self.name!r}: the function returned shape {found.shape}; expected {shape}"
            )
        if not np.isfinite(found).all():
            raise InputError(
                f"kernel {self.name!r}: the function returned values that are not finite"
            )
        return found

    def no_derivative(self) -> InputError:
        """The error when derivatives are needed."""
        return InputError(f"kernel {self.name!r} is a function of the user, without derivatives")


@dataclass(frozen=True, eq=False)
class CustomFeatures(Custom, FeatureFamily):
    """A base kernel given by its feature map."""

    width: int

    kind: ClassVar[str] = "custom-features"

    @property
    def dims(self) -> tuple[int | None, ...]:
        return (self.width,)

    def write_features(self, X: Array, out: Array) -> None:
        out[:] = self.checked(self.function(X), (len(X), self.width)).T

    def write_jacobian(self, X: Array, out: Array) -> None:
        """Refused: they are not known."""
        raise self.no_derivative()


@dataclass(frozen=True, eq=False)
class CustomGram(Custom, GramFamily):
    """A base kernel given by its Gram matrices."""

    kind: ClassVar[str] = "custom-gram"

    def each_gram(self, X: Array, Z: Array) -> Iterator[Array]:
        K = self.checked(self.function(X, Z), (len(X), len(Z)))
        if Z is X and not np.allclose(K, K.T, rtol=1e-8, atol=1e-8 * np.abs(K).max(initial=0)):
            raise InputError(f"kernel {self.name!r}: the function is not symmetric in its points")
        yield K

    def each_gradient(self, X: Array, Z: Array) -> Iterator[Array]:
        """Refused: they are not known."""
        raise self.no_derivative()

    def diags(self, X: Array) -> Array:
        blocks = (X[i : i + DIAGONAL_BLOCK] for i in range(0, len(X), DIAGONAL_BLOCK))
        diagonals = [np.diagonal(next(self.each_gram(block, block))) for block in blocks]
        return np.concatenate([np.empty(0), *diagonals])[None]
