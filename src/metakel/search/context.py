"""Points in a context: inputs that somebody else decides, beside those that are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points
from metakel.errors import InputError, ShapeError
from metakel.search.domain import Domain, Score, StartPoints, domain_from_dict
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
        return self.choices.d0 + self.contexts.d0

    @property
    def repeat(self) -> bool:
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
        choices, contexts = self.split(as_points(X, "domain"))
        here = self.contexts.same(contexts, self.context[None])[:, 0]
        return np.asarray(self.choices.contains(choices) & here)

    def same(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        (X, in_x), (Z, in_z) = self.split(X), self.split(Z)
        return np.asarray(self.choices.same(X, Z) & self.contexts.same(in_x, in_z))

    def unused(self, X: Array) -> float:
        return self.choices.unused(self._here(X))

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        return self.join(self.choices.sample(rng, n))

    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        """Those of the choices, in this context; ``landmarks`` are choices."""
        return self.start_from(self.choices.start_points(rng, landmarks))

    def start_from(self, start: StartPoints) -> StartPoints:
        """The same for start points that were drawn before."""
        return replace(start, X=self.join(start.X))

    def maximisers(
        self, score: Score, start: StartPoints, exclude: Array | None = None
    ) -> tuple[Array, Array]:
        choices, _ = self.split(start.X)
        slopes = score.gradient

        def values(X: Array) -> Array:
            return score.values(start.X if X is choices else self.join(X))

        def gradient(X: Array) -> tuple[Array, Array]:
            assert slopes is not None
            found, slope = slopes(self.join(X))
            return found, slope[:, : self.choices.d0]

        X, heights = self.choices.maximisers(
            Score(values, None if slopes is None else gradient),
            replace(start, X=choices),
            None if exclude is None else self._here(exclude),
        )
        return self.join(X), heights

    def decode(self, x: Array) -> Any:
        """The choice alone, as users see it."""
        return self.choices.decode(x[: self.choices.d0])

    def encode(self, points: Any, where: str) -> Array:
        return self.join(self.choices.encode(points, where))

    def locate(self, points: Any, where: str) -> Array:
        return self.join(self.choices.locate(points, where))

    def __repr__(self) -> str:
        return f"{self.choices!r} in the context {self.contexts.decode(self.context)}"

    def to_dict(self) -> dict[str, Any]:
        parts = {"choices": self.choices.to_dict(), "contexts": self.contexts.to_dict()}
        return {"kind": self.kind, **parts, "context": self.context.tolist()}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> InContext:
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
            f"{where}: there is no context; expected context= with {_expected(contexts)}"
        )
    if isinstance(contexts, SearchSpace):
        for row in [given] if isinstance(given, Mapping) else given:
            _check_names(row, contexts, where)
    Z = contexts.encode(given, f"{where}: context")
    if len(Z) not in (1, n):
        raise ShapeError(f"{where}: {len(Z)} contexts for {n} points; expected one, or one each")
    return np.broadcast_to(Z, (n, Z.shape[1]))


def _expected(contexts: Domain) -> str:
    """What a context is, for messages."""
    if isinstance(contexts, SearchSpace):
        return ", ".join(map(repr, contexts.space.names))
    return f"{contexts.d0} input{'s' * (contexts.d0 != 1)} of {contexts!r}"


def _check_names(row: Any, contexts: SearchSpace, where: str) -> None:
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: context is {row!r}; expected a dict with {_expected(contexts)}")
    missing = [name for name in contexts.space.names if name not in row]
    if missing:
        raise InputError(f"{where}: the context {dict(row)} lacks {', '.join(map(repr, missing))}")


def check_agreement(x: Any, context: Mapping[str, Any], where: str) -> None:
    for row in [x] if isinstance(x, Mapping) else x:
        for name, value in context.items():
            if isinstance(row, Mapping) and row.get(name, value) != value:
                raise InputError(
                    f"{where}: {name!r} is {row[name]!r} in the configuration but {value!r} in the "
                    "context; expected the same"
                )
