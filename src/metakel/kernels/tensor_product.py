"""Products of one-dimensional functions over any number of inputs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np

from metakel._arrays import check_count
from metakel.kernels.base import KernelDictionary
from metakel.kernels.products import NystromFeatures, Products, Scaling


def tensor_product(
    d0: int,
    order: int,
    *,
    basis: NystromFeatures = "legendre",
    scaling: Scaling,
    include_constant: bool = False,
    max_interaction: int | None = None,
) -> KernelDictionary:
    r"""Products of functions of single inputs up to a total order, each its own base kernel.

    There are :math:`\binom{d_0 + o}{o} - 1` products of total order 1 to o, sorted by it.

    Parameters
    ----------
    d0 : int
        How many inputs a point has.
    order : int
        Largest sum of the orders of the factors.
    basis : "legendre" or "cosine"
        Legendre polynomials P_a on [-1, 1]^d0, or cos(pi a x) on [0, 1]^d0.
    scaling : "sup" or "l2"
        "sup": products of P_a or of cos(pi a x), so that k_j <= 1. "l2": unit second moment under
        the uniform distribution on the domain, with factors sqrt(2a + 1) P_a or
        sqrt(2) cos(pi a x).
    include_constant : bool
        Whether the constant 1 is a base kernel, too (the first).
    max_interaction : int, optional
        Largest number of inputs in one product; all of them by default.
    """
    widest = d0 if max_interaction is None else max_interaction
    for name, number in (("d0", d0), ("order", order), ("max_interaction", widest)):
        check_count(name, number)
    rows = [[0] * d0] if include_constant else []
    for total in range(1, order + 1):
        for width in range(1, min(widest, d0, total) + 1):
            for inputs in combinations(range(d0), width):
                for parts in _compositions(total, width):
                    row = [0] * d0
                    for i, part in zip(inputs, parts, strict=True):
                        row[i] = part
                    rows.append(row)
    return KernelDictionary((Products(basis, scaling, np.array(rows)),))


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write ``total`` as an ordered sum of ``parts`` positive integers."""
    for cuts in combinations(range(1, total), parts - 1):
        ends = (0, *cuts, total)
        yield tuple(stop - start for start, stop in pairwise(ends))
