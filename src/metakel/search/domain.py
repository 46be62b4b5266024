"""What a domain is: points to choose from, and a search for the best of them.

The rest of the input may be a context, which somebody else decides (`InContext`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points, check_generator
from metakel.errors import InputError, ShapeError

# (n, d0) points -> (n,) values
Function = Callable[[Array], Array]
# (n, d0) points -> (n,) values and their (n, d0) gradients
WithGradient = Callable[[Array], tuple[Array, Array]]

# Values this close, relative to their range over the domain, are ties.
TIE = 1e-9


@dataclass(frozen=True, eq=False)
class StartPoints:
    """Points at which every search of a domain begins.

    Parameters
    ----------
    X : (n, d0) array
        As a model sees them.
    neighbours : (n, k) array of int, optional
        Which points are next to each; not needed where all points of a domain are here.
    U : (n, d) array, optional
        As a named space sees them, where that differs.
    """

    X: Array
    neighbours: NDArray[np.intp] | None = None
    U: Array | None = None


class Domain(ABC):
    """A set of points of d0 inputs."""

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Domain]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Domain._kinds[cls.kind] = cls

    @property
    @abstractmethod
    def d0(self) -> int:
        """How many inputs a point has."""

    @property
    @abstractmethod
    def repeat(self) -> bool:
        """Whether a point may be chosen more than once."""

    @abstractmethod
    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        """(n,) which of the points ``X`` (n, d0) lie in the domain, up to rounding."""

    def snap(self, X: Array) -> Array:
        """(n, d0) points ``X`` that it contains, without the rounding that `contains` allows."""
        return X

    @abstractmethod
    def same(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        """(n, k) which points of ``X`` (n, d0) and ``Z`` (k, d0) are the same up to rounding."""

    @abstractmethod
    def unused(self, X: Array) -> float:
        """How many points of the domain are not among ``X`` (n, d0); inf for a continuous one."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, d0) points drawn uniformly and independently."""

    @abstractmethod
    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        """Points at which a search begins: all of a finite domain, else ``landmarks`` as well."""

    @abstractmethod
    def maximisers(
        self,
        function: Function,
        start: StartPoints,
        *,
        gradient: WithGradient | None = None,
        exclude: Array | None = None,
    ) -> tuple[Array, Array]:
        """The best points found (k, d0), all equally good, and their values (k,).

        Parameters
        ----------
        function : (n, d0) -> (n,)
        start : StartPoints
            ``function`` is called with their very array, so it may keep what it computed for it.
        gradient : (n, d0) -> (n,), (n, d0), optional
            ``function`` again with its derivative. A box climbs with it, and feels its way without.
        exclude : (k, d0) array, optional
            Points that must not be chosen.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""

    @classmethod
    @abstractmethod
    def read(cls, data: Mapping[str, Any]) -> Domain:
        """Inverse of `to_dict`; `domain_from_dict` finds the class."""

    def maximise(
        self,
        function: Function,
        rng: np.random.Generator,
        *,
        gradient: WithGradient | None = None,
        exclude: Array | None = None,
        start: StartPoints | None = None,
    ) -> tuple[Array, float]:
        """A best point (d0,) and its value; ties are broken by the generator, never by order.

        Parameters are those of `maximisers`; without ``start`` new points are drawn.
        """
        check_generator(rng)
        start = self.start_points(rng) if start is None else start
        found, values = self.maximisers(function, start, gradient=gradient, exclude=exclude)
        chosen = int(rng.integers(len(found)))
        return found[chosen], float(values[chosen])

    def supply(self, tried: Array, pending: Array) -> float:
        """How many more points may be asked for after these (n, d0) and (q, d0)."""
        return np.inf if self.repeat else self.unused(np.concatenate([tried, pending]))

    def excluded(self, tried: Array, pending: Array) -> Array:
        """(k, d0) points not to ask for: pending ones, and those tried where none is repeated."""
        if not self.repeat:
            return np.concatenate([pending, tried])
        return pending if self.unused(pending) else pending[:0]

    def decode(self, x: Array) -> Any:
        """A point (d0,) as users see it."""
        return x.copy()

    def locate(self, points: Any, where: str) -> Array:
        """(n, d0) points as a model sees them, which need not lie in the domain."""
        given = np.asarray(points)
        if given.ndim == 0 or (given.ndim == 1 and self.d0 > 1):
            given = given.reshape(1, -1)
        found = as_points(given, where)
        if found.shape[1] != self.d0:
            raise ShapeError(
                f"{where}: a point has {found.shape[1]} inputs; the domain has {self.d0}"
            )
        return found

    def encode(self, points: Any, where: str) -> Array:
        """Points as users give them, as an (n, d0) array; an error where one is not in the domain.

        One point may be given as a vector of d0 numbers; for d0 = 1 a vector is n points. Rounding,
        as by float32, is undone.
        """
        found = self.locate(points, where)
        inside = self.contains(found)
        if not inside.all():
            first = found[int(np.argmin(inside))]
            raise InputError(f"{where}: the point {first.tolist()} is not in the domain {self!r}")
        return self.snap(found)


def domain_from_dict(data: Mapping[str, Any]) -> Domain:
    """Inverse of `Domain.to_dict`."""
    kind = data.get("kind")
    if kind not in Domain._kinds:
        known = ", ".join(sorted(Domain._kinds))
        raise InputError(f"stored domain is of kind {kind!r}; known kinds are {known}")
    return Domain._kinds[kind].read(data)


@dataclass(frozen=True, eq=False, repr=False)
class InContext(Domain):
    """All points of a domain, followed by one context.

    Parameters
    ----------
    choices : Domain
        What is chosen.
    contexts : Domain
        Where contexts come from.
    context : (c,) array
        The one at hand.
    """

    choices: Domain
    contexts: Domain
    context: Array

    kind: ClassVar[str] = "context"

    @property
    def d0(self) -> int:
        """Inputs of a choice and of a context together."""
        return self.choices.d0 + self.contexts.d0

    @property
    def repeat(self) -> bool:
        """As for the choices."""
        return self.choices.repeat

    def join(self, X: Array) -> Array:
        """(n, d0) choices ``X`` in this context."""
        return np.concatenate([X, np.broadcast_to(self.context, (len(X), len(self.context)))], 1)

    def split(self, X: Array) -> tuple[Array, Array]:
        """The choices and the contexts of points ``X`` (n, d0)."""
        return X[:, : self.choices.d0], X[:, self.choices.d0 :]

    def _here(self, X: Array) -> Array:
        """The choices of those points ``X`` (n, d0) that are in this context."""
        choices, contexts = self.split(X)
        return choices[self.contexts.same(contexts, self.context[None])[:, 0]]

    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        """(n,) which points are choices in this very context."""
        choices, contexts = self.split(as_points(X, "domain"))
        here = self.contexts.same(contexts, self.context[None])[:, 0]
        return np.asarray(self.choices.contains(choices) & here)

    def same(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        """(n, k) which points are the same choice in the same context."""
        (X, in_x), (Z, in_z) = self.split(X), self.split(Z)
        return np.asarray(self.choices.same(X, Z) & self.contexts.same(in_x, in_z))

    def unused(self, X: Array) -> float:
        """How many choices are not among ``X`` in this context."""
        return self.choices.unused(self._here(X))

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, d0) random choices in this context."""
        return self.join(self.choices.sample(rng, n))

    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        """Those of the choices, in this context; ``landmarks`` are choices."""
        return self.start_from(self.choices.start_points(rng, landmarks))

    def start_from(self, start: StartPoints) -> StartPoints:
        """The same for start points that were drawn before."""
        return replace(start, X=self.join(start.X))

    def maximisers(
        self,
        function: Function,
        start: StartPoints,
        *,
        gradient: WithGradient | None = None,
        exclude: Array | None = None,
    ) -> tuple[Array, Array]:
        """The best choices found; the context stays."""
        choices, _ = self.split(start.X)

        def values(X: Array) -> Array:
            return function(start.X if X is choices else self.join(X))

        def slopes(X: Array) -> tuple[Array, Array]:
            assert gradient is not None
            found, slope = gradient(self.join(X))
            return found, slope[:, : self.choices.d0]

        X, heights = self.choices.maximisers(
            values,
            replace(start, X=choices),
            gradient=None if gradient is None else slopes,
            exclude=None if exclude is None else self._here(exclude),
        )
        return self.join(X), heights

    def decode(self, x: Array) -> Any:
        """The choice alone, as users see it."""
        return self.choices.decode(x[: self.choices.d0])

    def encode(self, points: Any, where: str) -> Array:
        """(n, d0) of choices as users give them."""
        return self.join(self.choices.encode(points, where))

    def locate(self, points: Any, where: str) -> Array:
        """(n, d0) of choices that need not lie in the domain."""
        return self.join(self.choices.locate(points, where))

    def __repr__(self) -> str:
        return f"{self.choices!r} in the context {self.contexts.decode(self.context)}"

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        parts = {"choices": self.choices.to_dict(), "contexts": self.contexts.to_dict()}
        return {"kind": self.kind, **parts, "context": self.context.tolist()}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> InContext:
        """Inverse of `to_dict`."""
        choices, contexts = domain_from_dict(data["choices"]), domain_from_dict(data["contexts"])
        return cls(choices, contexts, np.array(data["context"], dtype=np.float64))


def tied(values: Array, spread: Array) -> NDArray[np.bool_]:
    """Which values equal the largest up to rounding, on the scale of the finite ``spread``."""
    top, scale = values.max(), float(spread.max()) - float(spread.min())
    if not np.isfinite(scale):
        finite = spread[np.isfinite(spread)]
        scale = np.ptp(finite) if len(finite) else 0.0
    best: NDArray[np.bool_] = values >= (top - TIE * scale if np.isfinite(top) else top)
    return best


def checked_bounds(bounds: ArrayLike, where: str) -> Array:
    """Bounds as a (d0, 2) array with low < high in every row."""
    try:
        pairs = np.array(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError(
            f"{where}: bounds are {bounds!r}; expected one (low, high) per input"
        ) from None
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ShapeError(
            f"{where}: bounds have shape {pairs.shape}; expected one (low, high) per input"
        )
    wrong = np.flatnonzero(~(np.isfinite(pairs).all(axis=1) & (pairs[:, 0] < pairs[:, 1])))
    if len(wrong):
        low, high = pairs[wrong[0]]
        raise InputError(
            f"{where}: input {wrong[0]} has bounds ({low}, {high}); expected low < high"
        )
    pairs.setflags(write=False)
    return pairs
