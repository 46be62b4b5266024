"""What a domain is: points to choose from, and a search for the best of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points, check_generator
from metakel.errors import InputError, ShapeError
from metakel.search.maximise import StartPoints

# (n, d0) points -> (n,) values
Function = Callable[[Array], Array]
# (n, d0) points -> (n,) values and their (n, d0) gradients
WithGradient = Callable[[Array], tuple[Array, Array]]

# Values this close, relative to their range over the domain, are ties.
TIE = 1e-9


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
        Z = np.asarray(points, dtype=np.float64)
        Z = Z.reshape(1, -1) if Z.ndim == 0 or (Z.ndim == 1 and self.d0 > 1) else Z
        Z = as_points(Z, where)
        if Z.shape[1] != self.d0:
            raise ShapeError(f"{where}: a point has {Z.shape[1]} inputs; the domain has {self.d0}")
        return Z

    def encode(self, points: Any, where: str) -> Array:
        """Points as users give them, as an (n, d0) array; an error where one is not in the domain.

        One point may be given as a vector of d0 numbers; for d0 = 1 a vector is n points. Rounding,
        as by float32, is undone.
        """
        X = points
        given = np.asarray(X)
        if given.ndim == 0 or (given.ndim == 1 and self.d0 > 1):
            given = given.reshape(1, -1)
        found = as_points(given, where)
        if found.shape[1] != self.d0:
            raise ShapeError(
                f"{where}: a point has {found.shape[1]} inputs; the domain has {self.d0}"
            )
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
