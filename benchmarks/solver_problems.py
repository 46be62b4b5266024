"""The benchmark problems of the group lasso (Eq. 8) and the certificate every solver is judged by.

Imports NumPy only, because the worker of a rival with an environment of its own reads it too.

Notation: m tasks of n points, p groups of d_j features, d = p d_j. ``memory`` is (m, d, n): the
transposed features of each task, contiguous in n, which is how dictionaries produce them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

JITTER = 1e-10  # added to the exact kernels so that their Cholesky factors exist

PAPER_SEED = 2  # lam = 0.03 is 0.056 lambda_max


@dataclass(frozen=True)
class Instance:
    """One problem: features, values and the regularisation, or a path of them.

    Parameters
    ----------
    memory : (m, d, n) array
        Transposed features. In kernel mode, block j of task s is the transposed Cholesky factor
        of the Gram matrix of kernel j.
    y : (m, n) array
    p : int
    lams : (k,) array
        Decreasing; one value unless the problem is a path.
    kernel_mode : bool
        Whether a solver that can work from Gram matrices alone gets those.
    """

    name: str
    memory: Array
    y: Array
    p: int
    lams: Array
    kernel_mode: bool = False

    @property
    def Phi(self) -> Array:
        """Features, (m, n, d), a transposed view."""
        return self.memory.transpose(0, 2, 1)

    @property
    def dim(self) -> int:
        """Features of a group, d_j."""
        return self.memory.shape[1] // self.p

    @property
    def groups(self) -> tuple[slice, ...]:
        return tuple(slice(j * self.dim, (j + 1) * self.dim) for j in range(self.p))

    @property
    def lam(self) -> float:
        return float(self.lams[-1])

    def grams(self) -> Array:
        """Gram matrices of the kernels, (m, p, n, n)."""
        m, d, n = self.memory.shape
        factors = self.memory.reshape(m, self.p, self.dim, n)
        return np.matmul(factors.transpose(0, 1, 3, 2), factors)

    def head(self, tasks: int) -> Instance:
        """Only the first tasks: a small problem of the same types, to warm a solver up on."""
        return replace(self, memory=self.memory[:tasks].copy(), y=self.y[:tasks].copy())

    def save(self, file: Path) -> None:
        fields = {"memory": self.memory, "y": self.y, "lams": self.lams}
        np.savez(file, name=self.name, p=self.p, kernel_mode=self.kernel_mode, **fields)

    @classmethod
    def load(cls, file: Path) -> Instance:
        with np.load(file) as data:
            return cls(
                name=str(data["name"]),
                memory=data["memory"],
                y=data["y"],
                p=int(data["p"]),
                lams=data["lams"],
                kernel_mode=bool(data["kernel_mode"]),
            )


def group_norms(v: Array, p: int) -> Array:
    """Norm of every group over all tasks, (p,), of an (m, d) array."""
    m, d = v.shape
    return np.sqrt(np.einsum("sjk,sjk->j", v.reshape(m, p, d // p), v.reshape(m, p, d // p)))


def correlations(instance: Instance, r: Array) -> Array:
    """Phi_s' r_s for every task, (m, d)."""
    return np.matmul(instance.memory, r[:, :, None])[:, :, 0]


def lambda_max(instance: Instance) -> float:
    """Smallest lambda at which zero is optimal."""
    y = instance.y
    return float(2 / y.size * group_norms(correlations(instance, y), instance.p).max())


def certificate(instance: Instance, beta: Array, lam: float) -> tuple[float, float]:
    """Objective and relative duality gap of beta (m, d), from the raw data.

    The dual point is the residual, scaled to be feasible; the gap is divided by ||y||^2 / N.
    """
    y, c = instance.y, 1 / instance.y.size
    r = y - np.matmul(beta[:, None, :], instance.memory)[:, 0, :]
    fit, square = float(np.vdot(y, r)), float(np.vdot(r, r))
    steepest = 2 * c * float(group_norms(correlations(instance, r), instance.p).max())
    t = min(1.0, lam / steepest, fit / square)
    primal = c * square + lam * float(group_norms(beta, instance.p).sum())
    dual = c * (2 * t * fit - t**2 * square)
    return primal, (primal - dual) / (c * float(np.vdot(y, y)))


def beta_of_weights(instance: Instance, eta: Array, lam: float) -> Array:
    """The coefficients (m, d) that are optimal for given kernel weights eta (p,)."""
    m, d, n = instance.memory.shape
    weights = np.repeat(eta, instance.dim)
    beta = np.empty((m, d))
    for s, Phi_t in enumerate(instance.memory):
        K = (Phi_t.T * weights) @ Phi_t + lam / 2 * instance.y.size * np.eye(n)
        beta[s] = weights * (Phi_t @ np.linalg.solve(K, instance.y[s]))
    return beta


def _legendre_features(x: Array, p: int) -> Array:
    """Degrees 1..p with unit L2 norm on [-1, 1]; x is (m, n), the result (m, p, n)."""
    V = np.polynomial.legendre.legvander(x, p)[:, :, 1:]  # (m, n, p)
    V *= np.sqrt(np.arange(1, p + 1) + 0.5)
    return np.ascontiguousarray(V.transpose(0, 2, 1))


def _meta_data(rng: np.random.Generator, memory: Array, *, active: int = 5) -> Array:
    """Values of the paper's synthetic tasks, sigma = 0.01, from transposed features (m, p, n)."""
    m, p, n = memory.shape
    support = rng.choice(p, active, replace=False)
    weights = rng.uniform(size=active)
    weights /= weights.sum()
    used = rng.uniform(size=(m, active)) < 0.5
    empty = ~used.any(axis=1)
    used[empty, rng.integers(active, size=empty.sum())] = True
    coefficients = rng.uniform(size=(m, active)) * used
    coefficients *= 10 / np.linalg.norm(coefficients, axis=1, keepdims=True)
    clean = np.einsum("sk,skn->sn", coefficients * np.sqrt(weights), memory[:, support])
    return clean + 0.01 * rng.standard_normal((m, n))


def sparse_data(
    rng: np.random.Generator, memory: Array, *, active: int, noise: float, dim: int = 1
) -> Array:
    """Values (m, n) of tasks that share a few groups of features with normal coefficients."""
    m, d, n = memory.shape
    support = rng.choice(d // dim, active, replace=False)
    columns = (support[:, None] * dim + np.arange(dim)).ravel()
    clean = np.einsum("sk,skn->sn", rng.standard_normal((m, active * dim)), memory[:, columns])
    return clean + noise * rng.standard_normal((m, n))


def at_share(instance: Instance, share: float) -> Instance:
    """The instance with lambda at a share of its lambda_max."""
    return replace(instance, lams=np.array([share * lambda_max(instance)]))


def legendre_inputs(rng: np.random.Generator, m: int) -> Array:
    """Where the tasks of `legendre_problem` were observed, (m, 50): the first draw of its seed."""
    return rng.uniform(-1, 1, (m, 50))


def legendre_problem(name: str, m: int, *, lam: float = 0.03, seed: int = PAPER_SEED) -> Instance:
    """The paper's synthetic tasks with 20 Legendre polynomials."""
    rng = np.random.default_rng(seed)
    memory = _legendre_features(legendre_inputs(rng, m), 20)
    return Instance(name, memory, _meta_data(rng, memory), 20, np.array([lam]))


def path_problem(name: str, m: int) -> Instance:
    """100 values from lambda_max to lambda_max / 1000."""
    instance = legendre_problem(name, m)
    return replace(instance, lams=lambda_max(instance) * np.logspace(0, -3, 100))


def phases_problem(name: str, *, share: float, seed: int = 0) -> Instance:
    """500 random cosines of two inputs, one a group."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (50, 50, 2))
    w, b = rng.standard_normal((500, 2)) / 0.25, rng.uniform(0, 2 * np.pi, 500)
    memory = np.sqrt(2) * np.cos(np.matmul(w, x.transpose(0, 2, 1)) + b[:, None])
    y = sparse_data(rng, memory, active=10, noise=0.1)
    return at_share(Instance(name, memory, y, 500, np.array([np.nan])), share)


def fourier_pairs(x: Array, w: Array) -> Array:
    """Groups (cos w'x, sin w'x) of x (m, n, 2), as transposed features (m, 2 p, n)."""
    m, n, _ = x.shape
    angles = np.matmul(w, x.transpose(0, 2, 1))  # (m, p, n)
    return np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(m, 2 * len(w), n)


def pairs_problem(name: str, *, share: float, seed: int = 0) -> Instance:
    """250 random Fourier pairs; the truth has frequencies that are not in the dictionary."""
    rng = np.random.default_rng(seed)
    m, n, p, hidden = 25, 1000, 250, 30
    x = rng.uniform(-1, 1, (m, n, 2))
    memory = fourier_pairs(x, rng.standard_normal((p, 2)) / 0.4)
    truth = fourier_pairs(x, rng.standard_normal((hidden, 2)) / 0.6)
    coefficients = rng.standard_normal((m, 2 * hidden)) / np.sqrt(hidden)
    y = np.einsum("sk,skn->sn", coefficients, truth) + 0.01 * rng.standard_normal((m, n))
    return at_share(Instance(name, memory, y, p, np.array([np.nan])), share)


def cosine_problem(name: str, *, m: int = 2000, n: int = 100, p: int = 100) -> Instance:
    rng = np.random.default_rng(0)
    angles = np.pi * np.arange(1, p + 1)[:, None] * rng.uniform(size=(m, 1, n))
    memory = np.sqrt(2) * np.cos(angles)
    y = sparse_data(rng, memory, active=10, noise=0.1)
    return at_share(Instance(name, memory, y, p, np.array([np.nan])), 0.1)


def exact_problem(name: str, *, m: int = 20, n: int = 200, seed: int = 0) -> Instance:
    """One exact squared exponential per column of [0, 1]^6 and lengthscale; truth: 4 GP draws."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(m, n, 6))
    squares = (x[:, :, None, :] - x[:, None, :, :]).transpose(0, 3, 1, 2) ** 2  # (m, 6, n, n)
    scales = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
    K = np.exp(-squares[:, :, None] / (2 * scales**2)[:, None, None]).reshape(m, 30, n, n)
    L = np.linalg.cholesky(K + JITTER * np.eye(n))
    support = rng.choice(30, 4, replace=False)
    y = np.einsum("sjnk,sjk->sn", L[:, support], rng.standard_normal((m, 4, n)))
    y += 0.1 * rng.standard_normal((m, n))
    memory = np.ascontiguousarray(L.transpose(0, 1, 3, 2)).reshape(m, 30 * n, n)
    return at_share(Instance(name, memory, y, 30, np.array([np.nan]), kernel_mode=True), 0.1)


PROBLEMS: dict[str, Callable[[], Instance]] = {
    "paper": lambda: legendre_problem("paper", 50),
    "a": lambda: legendre_problem("a", 500),
    "b": lambda: phases_problem("b", share=0.1),
    "c": lambda: pairs_problem("c", share=0.1),
    "d": lambda: cosine_problem("d"),
    "e": lambda: exact_problem("e"),
    "b-low": lambda: phases_problem("b-low", share=0.01),
    "c-low": lambda: pairs_problem("c-low", share=0.01),
    "path-paper": lambda: path_problem("path-paper", 50),
    "path-a": lambda: path_problem("path-a", 500),
}
