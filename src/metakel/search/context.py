"""Points to choose from in a given context: the rest of the input, which somebody else decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points
from metakel.errors import InputError, ShapeError
from metakel.search.domain import Domain, Function, WithGradient, domain_from_dict
from metakel.search.maximise import StartPoints
from metakel.search.named import SearchSpace


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


def encode_contexts(contexts: Domain | None, given: Any, n: int, where: str) -> Array:
    """(n, c) contexts of n points: one for all, or one for each; c = 0 where there are none."""
    if contexts is None:
        if given is not None:
            raise InputError(
                f"{where}: context is {given!r}, but this optimizer has no contexts; make it with "
                "context=, the domain of contexts"
            )
        return np.zeros((n, 0))
    if given is None:
        raise InputError(
            f"{where}: there is no context; expected context= with {described(contexts)}"
        )
    if isinstance(contexts, SearchSpace):
        for row in [given] if isinstance(given, Mapping) else given:
            _check_names(row, contexts, where)
    Z = contexts.encode(given, f"{where}: context")
    if len(Z) not in (1, n):
        raise ShapeError(f"{where}: {len(Z)} contexts for {n} points; expected one, or one each")
    return np.broadcast_to(Z, (n, Z.shape[1]))


def described(contexts: Domain) -> str:
    """What a context is, for messages."""
    if isinstance(contexts, SearchSpace):
        return ", ".join(map(repr, contexts.space.names))
    return f"{contexts.d0} input{'s' * (contexts.d0 != 1)} of {contexts!r}"


def _check_names(row: Any, contexts: SearchSpace, where: str) -> None:
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: context is {row!r}; expected a dict with {described(contexts)}")
    missing = [name for name in contexts.space.names if name not in row]
    if missing:
        raise InputError(f"{where}: the context {dict(row)} lacks {', '.join(map(repr, missing))}")
