"""Factorise, solve and invert stacks of small symmetric positive definite matrices.

There are three methods, and each is the fastest for some shape: one elimination that sweeps over
all matrices at once, NumPy's stacked LAPACK, and SciPy's in-place LAPACK calls in a Python loop.
Where a solver begins is found without any factor, by `block_descent`.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.grouplasso.problem import Index, group_sums

# Crossing points, measured. From LOOP_FROM rows on, a loop over LAPACK calls is the fastest; below
# SWEEP_BELOW rows and from SWEEP_STACK matrices on, one sweep over all of them is.
LOOP_FROM = 24
SWEEP_BELOW, SWEEP_STACK = 8, 64
INDEFINITE = 1e-8  # a ridge this large, relative to the diagonal, is no repair of rounding errors


class Indefinite(InputError):
    """A matrix has negative eigenvalues that are not rounding errors."""


class Cholesky:
    """Cholesky factors of a stack A (m, k, k), which is overwritten.

    The factor of matrix s is in the triangle of A[s] that LAPACK calls lower. LAPACK reads A[s] by
    columns, which makes no difference for a symmetric matrix.
    """

    def __init__(self, A: Array) -> None:
        from scipy.linalg.lapack import dpotrf

        assert A.flags.c_contiguous  # otherwise LAPACK would work on a copy
        self.A = A
        k = A.shape[1]
        diagonals = A.reshape(len(A), -1)[:, :: k + 1].copy()
        for a, diagonal in zip(A, diagonals, strict=True):
            ridge = k * np.finfo(float).eps
            # A[s].T is Fortran-ordered, so LAPACK works in place.
            while dpotrf(a.T, lower=1, overwrite_a=1, clean=0)[1]:
                # Rounding made the matrix indefinite. Restore it from the other triangle, which
                # LAPACK does not touch, and add a ridge.
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
        """A^-1 as full symmetric matrices; overwrites the factor."""
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
    return Cholesky(A).invert()


def sweep(B: Array) -> None:
    """Invert m matrices B (k, k, m) in place, by Gauss-Jordan elimination of all at once.

    No pivoting is needed, because the matrices are positive definite.
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


# -- the systems of the solver ---------------------------------------------------------------------


class Stacked:
    """The systems T_s = I + X^1/2 G_s X^1/2 of the m tasks, for fixed G (m, k, k) and varying X.

    X is the diagonal matrix of the weights x = root^2. One matrix after another, by LAPACK.
    """

    def __init__(self, G: Array) -> None:
        self.G = G
        self.inverse = G

    def solve(self, root: Array, b: Array, *, stiff: bool) -> Array:
        """T^-1 b for b (m, k); ``stiff`` avoids the explicit inverse, which would lose digits."""
        T = self.G * (root[:, None] * root)
        T.reshape(len(T), -1)[:, :: root.size + 1] += 1.0
        if stiff:
            factor = Cholesky(T)
            w = factor.solve(b)
            self.inverse = factor.invert()
            return w
        self.inverse = inverse(T)
        products: Array = np.matmul(self.inverse, b[:, :, None])
        return products[..., 0]

    def form(self, v: Array) -> Array:
        """(k, k) sums over the tasks of v_a T^-1_ab v_b for v (m, k), with T as last solved."""
        form: Array = np.einsum("sab,sb->ab", self.inverse * v[:, :, None], v)
        return form

    def apply(self, C: Array) -> Array:
        """T^-1 C for C (m, k, c), with T as last solved."""
        products: Array = np.matmul(self.inverse, C)
        return products


class Swept:
    """The same systems: all matrices at once by `sweep`, with the tasks last in memory."""

    def __init__(self, G: Array) -> None:
        self.G = np.ascontiguousarray(G.transpose(1, 2, 0))
        self.inverse = self.G

    def solve(self, root: Array, b: Array, *, stiff: bool) -> Array:
        T = self.G * (root[:, None] * root)[:, :, None]
        T.reshape(-1, T.shape[2])[:: root.size + 1] += 1.0
        if stiff:
            factor = Cholesky(np.ascontiguousarray(T.transpose(2, 0, 1)))
            w = factor.solve(b)
            self.inverse = np.ascontiguousarray(factor.invert().transpose(1, 2, 0))
            return w
        sweep(T)
        self.inverse = T
        w = np.einsum("abs,bs->as", T, np.ascontiguousarray(b.T))
        return np.ascontiguousarray(w.T)

    def form(self, v: Array) -> Array:
        columns = np.ascontiguousarray(v.T)
        form: Array = np.einsum("abs,bs->ab", self.inverse * columns[:, None], columns)
        return form

    def apply(self, C: Array) -> Array:
        products: Array = np.matmul(np.ascontiguousarray(self.inverse.transpose(2, 0, 1)), C)
        return products


def systems_of(G: Array) -> Stacked | Swept:
    """The faster implementation for G (m, k, k)."""
    m, k = G.shape[:2]
    return Swept(G) if 0 < k < SWEEP_BELOW and m >= SWEEP_STACK else Stacked(G)


# -- the start of the solver -----------------------------------------------------------------------


def block_descent(
    gram: Array, h: Array, starts: Index, lam: Array, *, sweeps: int = 2, root_steps: int = 2
) -> Array:
    r"""Weights x (k,) after a few sweeps over k groups from zero, the strongest group first.

    With the other groups fixed, group j depends on the data through c_s = z_s^(j) + G_s,jj
    beta_s^(j). In the eigenbasis of the G_s,jj (eigenvalues gamma) its minimiser is
    x c / (1 + gamma x), where x is the root of the secular equation

    .. math:: \sum_{s,i} \frac{c_{si}^2}{(1 + \gamma_{si} x)^2} = \lambda_j^2,

    or zero if the left-hand side is at most lam_j^2 at x = 0. One or two sweeps separate most
    inactive groups from the active ones before anything is factorised; approximate roots are enough
    for that.

    ``gram`` (m, d, d) and ``h`` (m, d) are 2/N Phi Phi' and 2/N Phi y, ``starts`` (k + 1,) says
    where the columns of each group begin, ``lam`` is (k,). The first sweep visits all groups with
    ``root_steps`` Newton steps towards each root, every later one those of positive weight with
    one step less than before.
    """
    G, z = np.ascontiguousarray(gram.transpose(1, 2, 0)), h.T.copy()  # tasks last
    strength = np.sqrt(group_sums(np.einsum("dm,dm->d", z, z), starts)) / lam
    x = np.zeros(lam.size)
    order = [j for j in np.argsort(-strength).tolist() if strength[j] > 1]
    blocks = {j: Block(G, slice(int(starts[j]), int(starts[j + 1]))) for j in order}
    for done in range(sweeps):
        for j in order:
            x[j] = blocks[j].minimize(z, float(lam[j]), float(x[j]), max(root_steps - done, 1))
        order = [j for j in order if x[j] > 0]
    return x


class Block:
    """One group, in the eigenbasis of its blocks of the Gram matrices G (d, d, m)."""

    def __init__(self, G: Array, cols: slice) -> None:
        self.cols, self.rows = cols, G[cols]
        self.vectors: Array | None = None
        if cols.stop == cols.start + 1:
            self.gamma = G[cols.start, cols]
        else:
            gamma, self.vectors = np.linalg.eigh(G[cols, cols].transpose(2, 0, 1))
            self.gamma = np.maximum(gamma.T, 0.0)
        self.beta: Array | None = None

    def minimize(self, z: Array, lam: float, x: float, steps: int) -> float:
        """The weight of this group with the others fixed; updates z (d, m)."""
        c = z[self.cols]
        if self.vectors is not None:
            c = np.einsum("sab,as->bs", self.vectors, c)
        if self.beta is not None:
            c = c + self.gamma * self.beta
        x = secular_root(c, self.gamma, lam, x=x, steps=steps)
        if x == 0.0 and self.beta is None:
            return x
        beta = c * (x / (1 + x * self.gamma))
        change = beta if self.beta is None else beta - self.beta
        self.beta = beta
        if self.vectors is None:
            z -= self.rows[0] * change
        else:
            change = np.einsum("sab,bs->as", self.vectors, change)
            z -= np.einsum("acs,as->cs", self.rows, change)
        return x


def secular_root(c: Array, gamma: Array, lam: float, *, x: float = 0.0, steps: int = 30) -> float:
    """The x >= 0 with sum c^2 / (1 + gamma x)^2 = lam^2, or 0 if the sum is smaller at x = 0.

    Newton's method on 1/sqrt(sum), which is concave and nearly linear. The first step ends left of
    the root, wherever it starts; later ones increase x without overshooting.
    """
    for _ in range(steps):
        if x:
            shrink = 1 / (1 + gamma * x)
            z, curvature = c * shrink, gamma * shrink
        else:
            z, curvature = c, gamma
        total = float(np.vdot(z, z))
        excess = sqrt(total) / lam
        if abs(excess - 1) <= 5e-7 or (excess < 1 and x == 0.0):
            break
        slope = float(np.vdot(z * z, curvature))  # minus half the derivative of the sum
        if slope <= 0.0:
            break
        x = max(x + total * (excess - 1) / slope, 0.0)
    return x
