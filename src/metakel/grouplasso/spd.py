"""Stacks of small symmetric positive definite matrices.

Three ways, each the fastest somewhere: all matrices swept together, pivot by pivot; NumPy's stacked
LAPACK; and, from ``LOOP_FROM`` rows on, SciPy's in-place LAPACK calls in a Python loop.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metakel.errors import InputError

Array = NDArray[np.float64]
LOOP_FROM = 24
INDEFINITE = 1e-8  # relative to its diagonal, this is no rounding error any more


class Indefinite(InputError):
    """A matrix has negative eigenvalues that rounding does not explain."""


class Factor:
    """Cholesky factors of a stack A (m, k, k), which is overwritten.

    The factor of matrix s sits in the triangle of A[s] that LAPACK calls lower (A[s] is read by
    columns; a symmetric matrix does not mind).
    """

    def __init__(self, A: Array) -> None:
        from scipy.linalg.lapack import dpotrf

        assert A.flags.c_contiguous  # else LAPACK would work on a copy
        self.A = A
        k = A.shape[1]
        diagonals = A.reshape(len(A), -1)[:, :: k + 1].copy()
        for a, diagonal in zip(A, diagonals, strict=True):
            ridge = k * np.finfo(float).eps
            # A[s].T is Fortran-ordered, so LAPACK works in place.
            while dpotrf(a.T, lower=1, overwrite_a=1, clean=0)[1]:
                # Rounding left the matrix indefinite. LAPACK has not touched the other triangle.
                if ridge > INDEFINITE:
                    raise Indefinite("a Gram matrix has negative eigenvalues, beyond rounding")
                below = np.tril(a, -1)
                a[:] = below + below.T
                np.fill_diagonal(a, (1 + ridge) * diagonal)
                ridge *= 10

    def solve(self, b: Array) -> Array:
        """A^-1 b for b (m, k)."""
        from scipy.linalg.lapack import dpotrs

        return np.array([dpotrs(a.T, v, lower=1)[0] for a, v in zip(self.A, b, strict=True)])

    def whiten(self, B: Array) -> None:
        """L^-1 applied in place to the rows of B (m, r, k), each a vector of length k."""
        from scipy.linalg.lapack import dtrtrs

        assert B.flags.c_contiguous
        for a, b in zip(self.A, B, strict=True):
            dtrtrs(a.T, b.T, lower=1, overwrite_b=1)

    def invert(self) -> Array:
        """A^-1 in place (the factor is lost), as full symmetric matrices."""
        from scipy.linalg.lapack import dpotri

        for a in self.A:
            dpotri(a.T, lower=1, overwrite_c=1)
        k = self.A.shape[1]
        rows, cols = np.tril_indices(k, -1)
        self.A[:, rows, cols] = self.A[:, cols, rows]
        return self.A


def inverse(A: Array) -> Array:
    """A^-1 for a stack (m, k, k); A may be overwritten."""
    k = A.shape[1]
    if k == 0:
        return A
    if k < LOOP_FROM:
        return np.linalg.inv(A).astype(np.float64, copy=False)
    return Factor(A).invert()


def sweep(B: Array) -> None:
    """Invert B (k, k, m), m matrices with the stack last, in place: one pivot after another.

    Needs no pivoting: the matrices are positive definite.
    """
    update = np.empty_like(B)
    for i in range(len(B)):
        pivot = 1 / B[i, i]
        row = B[i] * pivot
        row[i] = pivot
        column = B[:, i].copy()
        B[:, i] = 0.0
        np.multiply(column[:, None], row, out=update)
        B -= update
        B[i] = row
