"""Where an optimizer looks: the space of the prior, or one with other ranges, placed in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.space import Fixed, Float, Space


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """Points of the space ``look``, and where they lie in the numeric domain of ``target``.

    Parameters
    ----------
    look : Space
        Ranges to choose from.
    target : Space
        The space of the prior.
    fixed : dict
        Parameters held at a value. Those of ``target`` that ``look`` lacks have to be here.
    extrapolate : bool
        Whether values may lie beyond the ranges of ``target``.
    """

    look: Space
    target: Space
    fixed: Mapping[str, Any] = field(default_factory=dict)
    extrapolate: bool = False

    def __post_init__(self) -> None:
        for name in (*self.look.names, *self.fixed):
            self.target[name]  # an unknown name is refused there
        for p in self.target.parameters:
            if p.name not in {*self.look.names, *self.fixed} and not isinstance(p, Fixed):
                raise InputError(
                    f"no range and no value for parameter {p.name!r} of the prior; "
                    "hold it by fixed={...}"
                )

    @property
    def free(self) -> NDArray[np.intp]:
        """Numeric columns of ``look`` that vary."""
        return self.look.varying(self._held)

    @property
    def unseen(self) -> dict[str, Any]:
        """Held parameters that no configuration of ``look`` mentions."""
        return {name: v for name, v in self.fixed.items() if name not in self.look.names}

    @property
    def _held(self) -> dict[str, Any]:
        return {name: v for name, v in self.fixed.items() if name in self.look.names}

    def configuration(self, x: Array) -> dict[str, Any]:
        """The parameters of a point (d0,) of ``look``; held numbers exactly as they were given."""
        row = self.look.decode(x[None])[0]
        for name, value in self._held.items():
            if type(self.look[name]) is Float:
                row[name] = float(value)
        return row

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, look.d0) random points."""
        return self.look.sample(rng, n, fixed=self._held, extrapolate=self.extrapolate)

    def past(self, landmarks: Array, like: Array) -> Array:
        """Points of ``target`` that ``look`` has a like of; held columns as ``like``."""
        points = np.clip(landmarks, -1, 1)
        if self.look != self.target:
            points = self._moved(points)
        held = np.tile(like, (len(points), 1))
        held[:, self.free] = points[:, self.free]
        return held

    def _moved(self, points: Array) -> Array:
        found = []
        for row in self.target.decode(points):
            known = {name: value for name, value in row.items() if name in self.look.names}
            try:
                found.append(self.look.encode([known], extrapolate=True))
            except InputError:  # a value that ``look`` has no like of
                continue
        return self.look.nearest(np.concatenate([np.empty((0, self.look.d0)), *found]))

    def nearest(self, X: Array, like: Array) -> Array:
        """Points that stand for a configuration, near to these; held columns as ``like``."""
        near = self.look.nearest(X)
        held = np.ones(self.look.d0, dtype=bool)
        held[self.free] = False
        near[:, held] = like[held]
        return near

    def place(self, X: Array) -> Array:
        """(n, target.d0) the same configurations in the numeric domain of the prior."""
        if self.look == self.target:
            return X
        parts = []
        for p in self.target.parameters:
            if p.name in self.look.names:
                own, columns = self.look[p.name], X[:, self.look.columns[p.name]]
                same = own == p
                parts.append(columns if same else p.encode(own.decode(columns), extrapolate=True))
            elif not isinstance(p, Fixed):
                held = p.encode([self.fixed[p.name]], extrapolate=self.extrapolate)
                parts.append(np.repeat(held, len(X), axis=0))
        return np.concatenate([np.empty((len(X), 0)), *parts], axis=1)
