"""A table of named configurations as a domain: every row is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.search.finite import Finite
from metakel.search.named import rows_of
from metakel.space import Space


@dataclass(frozen=True, eq=False, repr=False)
class CandidateTable(Finite):
    """A table of configurations, each of which may be chosen once; make it with `of`.

    Parameters
    ----------
    rows : tuple of dict
        Configurations as they were given, one for every point of ``X``.
    space : Space
    """

    rows: tuple[dict[str, Any], ...] = ()
    space: Space = None  # type: ignore[assignment]

    kind: ClassVar[str] = "table"

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], X: Array, space: Space) -> CandidateTable:
        """From configurations and their points (n, d0); of equal ones the first is kept."""
        if not len(X):
            raise InputError("the table of candidates is empty; expected at least one")
        points = X + 0.0  # -0.0 and 0.0 are one point
        _, first = np.unique(points, axis=0, return_index=True)
        kept = np.sort(first)
        distinct = points[kept]
        distinct.setflags(write=False)
        return cls(distinct, False, None, tuple(dict(rows[i]) for i in kept), space)

    def locate(self, points: Any, where: str) -> Array:
        """(n, d0) of configurations, in the table or not."""
        return self.space.encode(rows_of(points, self.space), extrapolate=True) + 0.0

    def encode(self, points: Any, where: str) -> Array:
        """(n, d0) of one configuration of the table or a sequence of them."""
        found = self.index(self.locate(points, where))
        missing = found < 0
        if missing.any():
            row = rows_of(points, self.space)[int(np.argmax(missing))]
            raise InputError(f"{where}: {dict(row)} is not among the {len(self)} candidates")
        return self.X[found]

    def decode(self, x: Array) -> dict[str, Any]:
        """The configuration as it was listed."""
        return dict(self.rows[int(self.index(x[None])[0])])

    def __repr__(self) -> str:
        return f"table of {len(self)} candidates"

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        rows = [dict(row) for row in self.rows]
        return {"kind": self.kind, "rows": rows, "space": self.space.to_dict()}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> CandidateTable:
        """Inverse of `to_dict`."""
        space = Space.from_dict(data["space"])
        return cls.of(data["rows"], space.encode(data["rows"], extrapolate=True), space)
