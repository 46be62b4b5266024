"""Sums that inputs keep in every row, as the parts of a blend do: found by a test of their rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from metakel._arrays import Array
from metakel.space import Sum

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


def find_sums(columns: Mapping[str, Array]) -> list[Sum]:
    """The equations that hold in all rows, up to the digits that cells are written with.

    Every column is compared with all independent ones before it, so that there is one sum for
    every rank that the table lacks. Once there are as many as rows, all others may be sums of them.
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
        nearly = bool(independent) and size <= 2 * NEARLY * whole
        total = _sum_of({n: columns[n] for n in (*independent, name)}) if nearly else None
        if total is None:
            independent.append(name)
            if size > 1e-9 * whole:
                basis.append(rest / size)
        else:
            found.append(total)
    return found


def _beside(y: Array, basis: Sequence[Array]) -> Array:
    """What is left of a column without its share in those of an orthonormal basis."""
    if basis:
        Q = np.array(basis)
        for _ in range(2):  # the second time against rounding
            y = y - Q.T @ (Q @ y)
    return y


def _sum_of(columns: Mapping[str, Array]) -> Sum | None:
    """The equation that makes the last column a sum of the others, if there is one."""
    *others, last = columns
    weights = _least_squares(columns, others, last)
    if weights is None:
        return None
    spread = float(np.std(columns[last]))
    part = [n for n in others if abs(weights[n]) * float(np.std(columns[n])) > SMALL * spread]
    weights = _least_squares(columns, part, last) if part else None
    if weights is None:
        return None
    names = [*part, last]
    V = np.column_stack([columns[n] for n in names])
    if len(np.unique(V, axis=0)) < len(names) + MORE_ROWS:
        return None
    w = _simple(np.array([*(-weights[n] for n in part), 1.0]))
    rounding = float(np.abs(w) @ [0.5 * 10.0 ** -_decimals(columns[n]) for n in names])
    if rounding > MOST_ROUNDING * float((np.abs(w) * np.ptp(V, axis=0)).min()):
        return None
    values = V @ w
    slack = rounding + 1e-9 * float((np.abs(V) @ np.abs(w)).max())
    total = float(np.median(values))
    for digits in range(1, 13):
        if abs(float(f"{total:.{digits}g}") - total) <= slack:
            total = float(f"{total:.{digits}g}")
            break
    if np.abs(values - total).max() > slack:
        return None
    return Sum(tuple(zip(names, w.tolist(), strict=True)), "=", total)


def _least_squares(
    columns: Mapping[str, Array], others: Sequence[str], last: str
) -> dict[str, float] | None:
    """Weights of others of which the last column is nearly a sum."""
    y = columns[last] - columns[last].mean()
    spread = [float(np.std(columns[n])) for n in others]
    Z = np.column_stack(
        [(columns[n] - columns[n].mean()) / s for n, s in zip(others, spread, strict=True)]
    )
    shares = np.linalg.lstsq(Z, y, rcond=None)[0]
    if float(np.std(y - Z @ shares)) > NEARLY * float(np.std(y)):
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
