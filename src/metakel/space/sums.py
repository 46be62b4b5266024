"""Sums of parameters that every configuration keeps: ``A + B + C = 100``, ``2 A + B <= 50``.

A model does not know them. They say which configurations are possible: a polytope in the space, in
which points are drawn, and to which points are moved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, is_number
from metakel.errors import Hint, InputError
from metakel.space.configurations import is_numeric, quantity
from metakel.space.parameters import Float, Parameter

if TYPE_CHECKING:
    from metakel.space.space import Space


# Up to this share of the ranges, a sum is kept.
ROUNDED = 0.005  # the share by which rounded parts of a blend may be off
SLACK = 1e-9
# Steps of the walks that draw points of a polytope, for every parameter and besides.
WALK, WALK_PER_PARAMETER = 30, 6
# Shares of the way to the centre that a point goes until it can be rounded.
INWARDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_RELATION = re.compile(r"(.*?)(<=|>=|≤|≥|==|=)(.*)", re.DOTALL).fullmatch


@dataclass(frozen=True)
class Sum:
    """A weighted sum of parameters that is equal to a number, or at most as large.

    Parameters
    ----------
    terms : tuple of pairs
        Names and weights.
    relation : "=" or "<="
    total : float
    """

    terms: tuple[tuple[str, float], ...]
    relation: Literal["=", "<="]
    total: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple((str(n), float(w)) for n, w in self.terms))
        object.__setattr__(self, "total", float(self.total))
        names = [name for name, _ in self.terms]
        if not names or len(set(names)) < len(names) or not all(w for _, w in self.terms):
            raise InputError(f"a sum of {self.terms}; expected every name once, with a weight")
        if self.relation not in ("=", "<=") or not is_number(self.total):
            raise InputError(f"a sum {self.relation} {self.total}; expected = or <= and a number")

    @classmethod
    def of(cls, said: Sum | str, names: Sequence[str]) -> Sum:
        """From text such as ``A + 2 B >= 10``, with the names of the parameters."""
        if isinstance(said, Sum):
            return said
        found = _RELATION(said) if isinstance(said, str) else None
        total = quantity(found[3]) if found else None
        terms = _terms(found[1], names) if found else None
        if found is None or total is None or not terms:
            known = ", ".join(names)
            raise InputError(
                f"found the sum {said!r}; expected names, as in 'A + 2 B <= 50' or 'A + B = 100', "
                f"of {known}"
            )
        if found[2] in (">=", "≥"):
            return cls(tuple((name, -w) for name, w in terms), "<=", -total)
        return cls(tuple(terms), "=" if "<" not in found[2] and found[2] != "≤" else "<=", total)

    def holding(self, fixed: Mapping[str, Any]) -> Sum | None:
        """Of the other parameters, where some are held; None where none is left."""
        left = tuple((name, w) for name, w in self.terms if name not in fixed)
        held = sum(w * fixed[name] for name, w in self.terms if name in fixed)
        return Sum(left, self.relation, self.total - held) if left else None

    def unlike(self, row: Mapping[str, Any]) -> str:
        """How a configuration that was used differs from it, in words; parts may be rounded."""
        if not all(is_numeric(row.get(name)) for name in self.names):
            return ""
        found = float(sum(w * row[name] for name, w in self.terms))
        size = sum(abs(w * row[name]) for name, w in self.terms)
        off = abs(found - self.total) if self.relation == "=" else found - self.total
        return f"the sum is {found:g}, beside {self}" if off > ROUNDED * size else ""

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        terms = [list(term) for term in self.terms]
        return {"terms": terms, "relation": self.relation, "total": self.total}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters that it is about."""
        return tuple(name for name, _ in self.terms)

    def __str__(self) -> str:
        turned = self.relation == "<=" and all(w < 0 for _, w in self.terms)
        sign = -1.0 if turned else 1.0
        text = ""
        for name, weight in self.terms:
            w = sign * weight
            text += (" - " if w < 0 else " + ") if text else ("-" if w < 0 else "")
            text += name if abs(w) == 1 else f"{abs(w):g} {name}"
        return f"{text} {'>=' if turned else self.relation} {sign * self.total + 0.0:g}"


def _terms(text: str, names: Sequence[str]) -> list[tuple[str, float]] | None:
    """Names and weights; names may hold anything, so the longest that fits is meant."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    term = re.compile(rf"\s*([+-]?)\s*(?:([0-9]+(?:\.[0-9]+)?)\s*[*·]?\s*)?({known})(?!\w)\s*")
    found, place = list[tuple[str, float]](), 0
    while place < len(text):
        match = term.match(text, place)
        if match is None or (found and not match[1]):
            return None
        found.append((match[3], (-1.0 if match[1] == "-" else 1.0) * float(match[2] or 1)))
        place = match.end()
    return found


def check_sums(space: Space) -> None:
    """Refuse sums of what is no number, or not always there."""
    optional = {c.name: c for c in space.conditions}
    for total in space.sums:
        for name in total.names:
            parameter = space[name]  # an unknown name is refused there
            value = getattr(parameter, "value", None)
            if not isinstance(parameter, Float) and not is_number(value):
                raise InputError(
                    f"the sum {total} has {name!r}, which is {parameter.describe()}; expected "
                    "numbers"
                )
            if name in optional:
                raise InputError(
                    f"the sum {total} has {name!r}, which is there only "
                    f"{optional[name].describe()}; expected parameters that are always there"
                )


@dataclass(frozen=True, eq=False)
class Polytope:
    """The possible values of parameters with sums, each on a scale from 0 to 1 of its range.

    The numeric columns may be those of another space, in which the parameters have wider ranges.
    """

    parameters: tuple[Float, ...]  # those that vary and are part of a sum
    known: tuple[Float, ...]  # the same in the space of the columns
    columns: NDArray[np.intp]  # (k,) their numeric columns
    A: Array  # (r, k): A w = b in every possible point w
    b: Array  # (r,)
    G: Array  # (q, k): G w <= h
    h: Array  # (q,)
    center: Array  # (k,) a point inside, as far from all faces as possible

    @classmethod
    def of(cls, space: Space, fixed: Mapping[str, Any], known: Space) -> Polytope | None:
        """Of a space in which some parameters are held; None where no sum is left to keep.

        Its columns are those of ``known``.
        """
        held = {p.name: p.value for p in space.parameters if hasattr(p, "value")} | dict(fixed)
        names = {name for total in space.sums for name in total.names} - set(held)
        chosen = tuple(p for p in space.parameters if p.name in names and isinstance(p, Float))
        rows: dict[str, list[tuple[Array, float]]] = {"=": [], "<=": []}
        for total in space.sums:
            weights = dict(total.terms)
            left = total.total - sum(weights[n] * held[n] for n in weights if n in held)
            row = np.array([weights.get(p.name, 0.0) * (p.high - p.low) for p in chosen])
            left -= sum(weights.get(p.name, 0.0) * p.low for p in chosen)
            scale = float(np.abs(row).max(initial=0.0)) or 1.0
            if not row.any() and (abs(left) if total.relation == "=" else -left) > SLACK * max(
                1.0, abs(total.total)
            ):
                raise InputError(f"the sum {total} cannot be kept with {_listed(held, total)}")
            if row.any():
                rows[total.relation].append((row / scale, left / scale))
        if not chosen or not any(rows.values()):
            return None
        A, b, G, h = (
            part
            for pairs in rows.values()
            for part in (
                np.array([row for row, _ in pairs]).reshape(-1, len(chosen)),
                np.array([left for _, left in pairs]),
            )
        )
        columns = np.array([known.columns[p.name].start for p in chosen], dtype=np.intp)
        theirs = tuple(q for p in chosen if isinstance(q := known[p.name], Float))
        center = _center(A, b, G, h)
        if center is None:
            ranges = ", ".join(f"{p.name} from {p.low:g} to {p.high:g}" for p in chosen)
            raise InputError(
                f"no configuration keeps {' and '.join(map(str, space.sums))} with {ranges}"
                + (f" and {_listed(held, *space.sums)}" if held else ""),
                Hint("allow others", "wider ranges, or sums=[]", "learn --sum none"),
            )
        return cls(chosen, theirs, columns, A, b, G, h, center)

    # From numeric columns of the space to the scale from 0 to 1, and back

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        low, high = np.array([(p.low, p.high) for p in self.parameters]).T
        return low, high - low

    def scaled(self, X: Array) -> Array:
        """(n, k) of points (n, d0)."""
        pairs = zip(self.known, self.columns, strict=True)
        values = np.stack([q.number(X[:, [c]]) for q, c in pairs], axis=1)
        return np.asarray((values - self._ends[0]) / self._ends[1])

    def unscaled(self, W: Array) -> Array:
        """(n, k) numeric columns."""
        values = self._ends[0] + np.clip(W, 0, 1) * self._ends[1]
        pairs = zip(self.known, values.T, strict=True)
        return np.concatenate([q.column(column) for q, column in pairs], axis=1)

    def slopes(self, u: Array) -> Array:
        """(k,) derivatives of the scale from 0 to 1 along numeric columns (k,)."""
        rates = []
        for q, c in zip(self.known, u, strict=True):
            span = np.log(q.high / q.low) if q.log else q.high - q.low
            rates.append(span / 2 * (q.number(np.array([[c]]))[0] if q.log else 1.0))
        return np.array(rates) / self._ends[1]

    # Points of the polytope

    def contains(self, W: Array, slack: float = 1e-6) -> NDArray[np.bool_]:
        """(n,) which points keep all sums."""
        equal = np.abs(W @ self.A.T - self.b) <= slack
        return np.asarray(equal.all(axis=1) & (W @ self.G.T - self.h <= slack).all(axis=1))

    def moved(self, W: Array) -> Array:
        """(n, k) points near these that keep all sums; those that do stay.

        Along the shortest way to where all equations hold, and then towards the centre.
        """
        if len(self.b):
            W = W - np.linalg.lstsq(self.A, (W @ self.A.T - self.b).T, rcond=None)[0].T
        way = W - self.center
        room = self._room(np.broadcast_to(self.center, W.shape), way)
        return np.asarray(self.center + np.minimum(room, 1.0)[:, None] * way)

    def _room(self, W: Array, way: Array) -> Array:
        """(n,) how many times a way (n, k) can be gone from points (n, k) inside."""
        sides = np.concatenate([self.G, np.eye(len(self.center)), -np.eye(len(self.center))])
        ends = np.concatenate([self.h, np.ones(len(self.center)), np.zeros(len(self.center))])
        speed, left = way @ sides.T, np.maximum(ends - W @ sides.T, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(speed > 1e-14, left / speed, np.inf)
        return np.asarray(room.min(axis=1))

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, k) points drawn nearly uniformly, by walks that go on in a random direction."""
        k = len(self.center)
        _, values, axes = np.linalg.svd(self.A) if len(self.b) else (0, np.zeros(0), np.eye(k))
        along = axes[int((values > 1e-10).sum()) :]
        W = np.tile(self.center, (n, 1))
        if not len(along):
            return W
        for _ in range(WALK + WALK_PER_PARAMETER * k):
            way = rng.standard_normal((n, len(along))) @ along
            ahead, behind = self._room(W, way), self._room(W, -way)
            step = -behind + rng.random(n) * (ahead + behind)
            W = W + np.where(np.isfinite(step), step, 0.0)[:, None] * way
        return self.moved(np.clip(W, 0, 1))

    def rounded(self, W: Array) -> Array:
        """(n, k) points with values as the parameters are suggested, which keep all sums.

        One parameter of every sum makes up for the rounding of the others, where its own values
        allow that; where they do not, a point farther inside is rounded.
        """
        kept = self._rounded(W)
        for share in INWARDS:
            wrong = ~self.contains(kept, SLACK)
            if not wrong.any():
                break
            kept[wrong] = self._rounded(W[wrong] + share * (self.center - W[wrong]))
        return kept

    def _rounded(self, W: Array) -> Array:
        widths = np.array([p.high - p.low for p in self.parameters])
        kept = self._snapped(W)
        order = sorted(range(len(self.parameters)), key=lambda i: _is_fine(self.parameters[i]))
        for row, left, equal in [
            *((a, b, True) for a, b in zip(self.A, self.b, strict=True)),
            *((g, h, False) for g, h in zip(self.G, self.h, strict=True)),
        ]:
            for i in reversed(order):
                if not row[i] or (not equal and self.A[:, i].any()):
                    continue
                excess = kept @ row - left
                wrong = np.abs(excess) > SLACK if equal else excess > SLACK
                if not wrong.any():
                    break
                trial = kept.copy()
                trial[:, i] -= excess / row[i]
                snapped = self._snapped(trial)
                inside = (trial[:, i] >= -SLACK) & (trial[:, i] <= 1 + SLACK)
                if equal:
                    fits = np.abs(snapped[:, i] - trial[:, i]) * widths[i] <= 1e-9 * widths.max()
                else:
                    fits = snapped @ row - left <= SLACK
                    if not fits.all():  # the next value on the other side
                        step = _step(self.parameters[i]) / widths[i] * np.sign(row[i])
                        snapped[~fits, i] -= step
                        fits = (snapped @ row - left <= SLACK) & (snapped[:, i] >= -SLACK)
                taken = wrong & inside & fits
                kept[taken, i] = np.clip(snapped[taken, i], 0, 1)
        return kept

    def _snapped(self, W: Array) -> Array:
        low, width = self._ends
        values = low + np.clip(W, 0, 1) * width
        pairs = zip(self.parameters, values.T, strict=True)
        return np.asarray((np.stack([p.rounded(v) for p, v in pairs], axis=1) - low) / width)


def _is_fine(p: Float) -> tuple[bool, float]:
    """Parameters that take any value last, and of the others those with the widest range."""
    free = p.step is None and p.digits is None
    return free, p.high - p.low


def _step(p: Parameter) -> float:
    """The distance of neighbouring values."""
    if not isinstance(p, Float):
        return 0.0
    return p.step if p.step is not None else 10.0 ** -(p.digits or 0)


def _center(A: Array, b: Array, G: Array, h: Array) -> Array | None:
    """(k,) the point that is farthest from the faces; None where there is none."""
    from scipy.optimize import linprog

    k = A.shape[1]
    sides = np.concatenate([G, np.eye(k), -np.eye(k)])
    ends = np.concatenate([h, np.ones(k), np.zeros(k)])
    sizes = np.linalg.norm(sides, axis=1)
    found = linprog(
        np.append(np.zeros(k), -1.0),
        A_ub=np.column_stack([sides, sizes]),
        b_ub=ends,
        A_eq=np.column_stack([A, np.zeros(len(A))]) if len(A) else None,
        b_eq=b if len(A) else None,
        bounds=[(0, 1)] * k + [(0, 1)],
    )
    return np.asarray(found.x)[:k] if found.status == 0 else None


def _listed(held: Mapping[str, Any], *sums: Sum) -> str:
    about = [name for total in sums for name in total.names if name in held]
    return ", ".join(f"{name} = {held[name]}" for name in dict.fromkeys(about)) or "these ranges"


STEPS, PRECISION = 60, 1e-9


def climb_within(
    possible: Polytope,
    along: Callable[[Array], tuple[Array, Array]],
    X: Array,
    bounds: Array,
    columns: NDArray[np.intp],
    spread: float,
) -> Array:
    """(n, d0) ends of climbs from points ``X`` (n, d0), along these columns.

    By sequential quadratic programming (SLSQP of SciPy), which keeps equations and inequalities.
    ``along`` gives values (n,) and their derivatives (n, d0); ``bounds`` (k, 2) are those of the
    columns, and ``spread`` is how much the values differ in all, in which steps are measured.
    """
    from scipy.optimize import minimize  # which takes long to load

    ends, sums = X.copy(), _constraints(possible, columns)
    for i, start in enumerate(X):

        def negative(v: Any, start: Array = start) -> Any:
            point = start.copy()
            point[columns] = v
            values, slopes = along(point[None])
            return -float(values[0]) / (spread or 1.0), -slopes[0, columns] / (spread or 1.0)

        found: Any = minimize(
            negative,
            start[columns],
            jac=True,
            bounds=[(low, high) for low, high in bounds.tolist()],
            constraints=sums,
            method="SLSQP",
            options={"maxiter": STEPS, "ftol": PRECISION},
        )
        if np.isfinite(found.x).all():
            ends[i, columns] = np.clip(found.x, *bounds.T)
    return ends


def _constraints(possible: Polytope, columns: NDArray[np.intp]) -> Any:
    """The sums in the words of SciPy."""
    moving = [int(np.flatnonzero(columns == c)[0]) for c in possible.columns]
    size = int(possible.columns.max()) + 1

    def scaled(v: Array) -> Array:
        points = np.zeros((1, size))
        points[0, possible.columns] = v[moving]
        return np.asarray(possible.scaled(points)[0])

    def slopes(v: Array, rows: Array) -> Array:
        found = np.zeros((len(rows), len(columns)))
        found[:, moving] = rows * possible.slopes(v[moving])
        return found

    equal = {
        "type": "eq",
        "fun": lambda v: possible.A @ scaled(v) - possible.b,
        "jac": lambda v: slopes(v, possible.A),
    }
    at_most = {
        "type": "ineq",
        "fun": lambda v: possible.h - possible.G @ scaled(v),
        "jac": lambda v: -slopes(v, possible.G),
    }
    return [*([equal] if len(possible.b) else []), *([at_most] if len(possible.h) else [])]
