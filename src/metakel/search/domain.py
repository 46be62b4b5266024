"""What a domain is: points to choose from, and a search for the best of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points, check_generator
from metakel.errors import InputError, ShapeError
from metakel.search.start import Candidates

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

    def settled(self, X: Array) -> Array:
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
    def candidates(self, rng: np.random.Generator) -> Candidates:
        """Points to look at first: all of a finite domain."""

    @abstractmethod
    def maximisers(
        self,
        function: Function,
        candidates: Candidates,
        *,
        gradient: WithGradient | None = None,
        exclude: Array | None = None,
    ) -> tuple[Array, Array]:
        """The best points found (k, d0), all equally good, and their values (k,).

        Parameters
        ----------
        function : (n, d0) -> (n,)
        candidates : Candidates
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
        candidates: Candidates | None = None,
    ) -> tuple[Array, float]:
        """A best point (d0,) and its value; ties are broken by the generator, never by order.

        Parameters are those of `maximisers`; without ``candidates`` new ones are drawn.
        """
        check_generator(rng)
        starts = self.candidates(rng) if candidates is None else candidates
        found, values = self.maximisers(function, starts, gradient=gradient, exclude=exclude)
        chosen = int(rng.integers(len(found)))
        return found[chosen], float(values[chosen])

    def points(self, X: ArrayLike, where: str) -> Array:
        """``X`` as an (n, d0) array of points of the domain; an error where it is not.

        One point may be given as a vector of d0 numbers; for d0 = 1 a vector is n points. What
        rounding has changed, as float32 does, is put right.
        """
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
        return self.settled(found)


def domain_from_dict(data: Mapping[str, Any]) -> Domain:
    """Inverse of `Domain.to_dict`."""
    kind = data.get("kind")
    if kind not in Domain._kinds:
        known = ", ".join(sorted(Domain._kinds))
        raise InputError(f"stored domain is of kind {kind!r}; known kinds are {known}")
    return Domain._kinds[kind].read(data)


def tied(values: Array, spread: Array) -> NDArray[np.bool_]:
    """Which values equal the largest up to rounding, on the scale of the finite ``spread``."""
    top = values.max()
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
