"""Sums of columns, as of the parts of a blend, which a test of their rank finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.space import Float, Space, Sum

# A column is a sum of others if this share of its standard deviation, or less, is left.
NEARLY = 0.02
# Others with a smaller share in it are not part of the sum.
SMALL = 0.05
# So many more different rows than parameters, or the sum may be by chance.
MORE_ROWS = 3
# Weights this close to whole multiples of each other are such.
CLOSE, LARGEST = 0.02, 10
# Rounding of cells may be this share of the ranges, or it hides what the sum is.
MOST_ROUNDING = 0.02
DECIMALS = 12
# So many rows of a blend may have a slip.
SLIPS = 0.05
# Blends in whole per cent hide so many times as much by rounding as those with decimals.
WHOLE_PER_CENT = 4.0


def with_sums(space: Space, cells: Mapping[str, NDArray[Any]], notes: list[str]) -> Space:
    """The space with the sums that all rows keep; a note where only a few rows do not."""
    optional = {c.name for c in space.conditions}
    numbers = [p.name for p in space.parameters if isinstance(p, Float) and p.name not in optional]
    if len({len(cells[name]) for name in numbers}) != 1:
        return space
    columns = {name: cells[name].astype(np.float64) for name in numbers}
    found = find_sums(columns)
    if not found and (nearly := nearly_sums(columns)):
        total, count = nearly
        notes.append(
            f"{total} in all rows but {count}: if every suggestion should keep it, say so "
            f"(sums=[{str(total)!r}], --sum '{total}'), and look at these rows"
        )
    elif not found:
        found = find_blends(columns)
    notes += [
        f"{total} in all rows: every suggestion keeps it, unless other sums are said (sums=[...], "
        "--sum)"
        for total in found
    ]
    return space.summing(found)


def find_sums(columns: Mapping[str, Array], loose: float = 1.0) -> list[Sum]:
    """The equations that hold in all rows, up to the digits that cells are written with.

    Every column is compared with all independent ones before it, so that there is one sum for
    every rank that the table lacks. Once there are as many as rows, all others may be sums of them.
    Rounding may hide ``loose`` times as much as is sure to be no accident.
    """
    found, independent, basis = list[Sum](), list[str](), list[Array]()
    for name, column in columns.items():
        if np.ptp(column) == 0:
            continue
        if len(column) < len(independent) + MORE_ROWS:
            break
        y = column / np.abs(column).max()  # squares of very large numbers are no numbers
        y = y - y.mean()
        rest = _beside(y, basis)
        size, whole = (float(np.linalg.norm(part)) for part in (rest, y))
        nearly = bool(independent) and size <= 2 * loose * NEARLY * whole
        parts = {n: columns[n] for n in (*independent, name)} if nearly else {}
        total = _sum_of(parts, loose) if nearly else None
        if total is None:
            independent.append(name)
            if size > 1e-9 * whole:
                basis.append(rest / size)
        else:
            found.append(total)
    return found


def find_blends(columns: Mapping[str, Array]) -> list[Sum]:
    """Sums to 1 or 100 that hold up to rounding, which is as often too much as too little."""
    found = []
    for total in find_sums(columns, WHOLE_PER_CENT):
        weights = dict(total.terms)
        off = np.sum([columns[n] for n in weights], axis=0) - total.total
        fair = abs(float(off.mean())) <= 3 * float(off.std()) / len(off) ** 0.5
        if {*weights.values()} == {1.0} and total.total in (1, 100) and fair:
            found.append(total)
    return found


def nearly_sums(columns: Mapping[str, Array]) -> tuple[Sum, int] | None:
    """An equation that holds in all rows but a few, where slips are likely, and in how many not.

    The rows that are worst at the direction in which the columns vary least are left out.
    """
    varying = {name: column for name, column in columns.items() if np.ptp(column) > 0}
    if len(varying) < 2:
        return None
    Z = np.column_stack([c / np.std(c) for c in varying.values()])
    kept = np.ones(len(Z), dtype=bool)
    for _ in range(2):  # the first direction is bent by the slips
        centered = Z - Z[kept].mean(axis=0)
        along = centered @ np.linalg.svd(centered[kept], full_matrices=False)[2][-1]
        off = np.abs(along - np.median(along))
        kept = off <= np.quantile(off, 1 - SLIPS)
    for total in find_sums({name: column[kept] for name, column in varying.items()}):
        weights = dict(total.terms)
        off = np.column_stack([columns[n] for n in weights]) @ [*weights.values()] - total.total
        count = int((np.abs(off) > np.abs(off[kept]).max()).sum())
        if count <= SLIPS * len(off):
            return total, count
    return None


def _beside(y: Array, basis: Sequence[Array]) -> Array:
    """What is left of a column without its share in those of an orthonormal basis."""
    if basis:
        Q = np.array(basis)
        for _ in range(2):  # the second time against rounding
            y = y - Q.T @ (Q @ y)
    return y


def _sum_of(columns: Mapping[str, Array], loose: float) -> Sum | None:
    """The equation that makes the last column a sum of the others, if there is one."""
    *others, last = columns
    weights = _least_squares(columns, others, last, loose)
    if weights is None:
        return None
    spread = float(np.std(columns[last]))
    part = [n for n in others if abs(weights[n]) * float(np.std(columns[n])) > SMALL * spread]
    weights = _least_squares(columns, part, last, loose) if part else None
    if weights is None:
        return None
    names = [*part, last]
    V = np.column_stack([columns[n] for n in names])
    if len(np.unique(V, axis=0)) < len(names) + MORE_ROWS:
        return None
    w = _simple(np.array([*(-weights[n] for n in part), 1.0]))
    values, numerical = V @ w, 1e-9 * float((np.abs(V) @ np.abs(w)).max())
    exact = float(np.ptp(values)) <= numerical  # as whole numbers are, whatever their range
    rounding = float(np.abs(w) @ [0.5 * 10.0 ** -_decimals(columns[n]) for n in names])
    if not exact and rounding > loose * MOST_ROUNDING * float(
        (np.abs(w) * np.ptp(V, axis=0)).min()
    ):
        return None
    slack = numerical + (0.0 if exact else rounding)
    total = float(np.median(values))
    for digits in range(1, 13):
        if abs(float(f"{total:.{digits}g}") - total) <= slack:
            total = float(f"{total:.{digits}g}")
            break
    if np.abs(values - total).max() > slack:
        return None
    return Sum(tuple(zip(names, w.tolist(), strict=True)), "=", total)


def _least_squares(
    columns: Mapping[str, Array], others: Sequence[str], last: str, loose: float
) -> dict[str, float] | None:
    """Weights of others of which the last column is nearly a sum."""
    y = columns[last] - columns[last].mean()
    spread = [float(np.std(columns[n])) for n in others]
    Z = np.column_stack(
        [(columns[n] - columns[n].mean()) / s for n, s in zip(others, spread, strict=True)]
    )
    shares = np.linalg.lstsq(Z, y, rcond=None)[0]
    if float(np.std(y - Z @ shares)) > loose * NEARLY * float(np.std(y)):
        return None
    return {n: float(v) / s for n, v, s in zip(others, shares, spread, strict=True)}


def _simple(w: Array) -> Array:
    """Weights as whole multiples of the smallest, where they are nearly that."""
    multiples = w / np.abs(w).min()
    whole = np.rint(multiples)
    if np.abs(multiples - whole).max() <= CLOSE and np.abs(whole).max() <= LARGEST:
        found = whole
    else:
        found = w
    return np.asarray(-found if found[0] < 0 else found)


def _decimals(column: Array) -> int:
    """With how many decimals the numbers are written."""
    texts = (np.format_float_positional(v, precision=DECIMALS, trim="-") for v in column[:1000])
    return max(len(text.partition(".")[2]) for text in texts)
