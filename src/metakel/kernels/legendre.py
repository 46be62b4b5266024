"""Legendre polynomials on [-1, 1], and the paper's products of two of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metakel._arrays import check_count, is_integer
from metakel.errors import InputError
from metakel.kernels.base import KernelDictionary
from metakel.kernels.products import Products, Scaling


def legendre(p: int, *, scaling: Scaling, degrees: Sequence[int] | None = None) -> KernelDictionary:
    r"""Kernels :math:`k_j(x, z) = \phi_j(x) \phi_j(z)` on [-1, 1], one Legendre polynomial each.

    Parameters
    ----------
    p : int
        How many base kernels.
    scaling : "sup" or "l2"
        "sup" is P_j itself, so that k_j <= 1 as the paper assumes. "l2" is sqrt(2j + 1) P_j, of
        unit second moment under the uniform distribution; the paper's experiments need it
        (its lambda = 0.03 does not recover the kernel with "sup").
    degrees : sequence of p distinct int, optional
        By default 1..p, without the constant P_0.
    """
    check_count("p", p)
    chosen = list(range(1, p + 1)) if degrees is None else list(degrees)
    whole = all(is_integer(degree) and degree >= 0 for degree in chosen)
    if not whole or len(chosen) != p or len(set(chosen)) != p:
        raise InputError(f"degrees are {chosen}; expected p = {p} distinct integers >= 0")
    return KernelDictionary((Products("legendre", scaling, np.array(chosen)[:, None]),))


def legendre_2d(p: int, *, scaling: Scaling) -> KernelDictionary:
    r"""The paper's p + 1 kernels on [-1, 1]^2: P_j(x_1) P_{p-j}(x_2) for j = 0..p.

    Parameters
    ----------
    p : int
        Total degree of every product.
    scaling : "sup" or "l2"
        "l2" multiplies with sqrt((2j + 1) (2(p - j) + 1)).
    """
    check_count("p", p)
    first = np.arange(p + 1)
    return KernelDictionary((Products("legendre", scaling, np.column_stack([first, p - first])),))
