"""GP-UCB (Eq. 11) on a finite domain, lean enough to be repeated a hundred thousand times.

The regulariser of Theorem 5.1 changes with t, so nothing is updated: every step solves anew, in
the smaller of feature space and observation space. The values at the domain are computed once.
`metakel.gp.posterior` is the same computation for any points; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from metakel._arrays import Array
from metakel.kernels import KernelSum
from reproduction.figure import Rows, Table, ratio
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import paper_noise_var, theory_nu

PAPER_RULE = "GP-UCB with ν_t of Lemma C.1 for the dimension of each kernel, regulariser 1 + 2/t"
REGRETS = ("simple", "mu", "arg", "reg")
TIE = 1e-9  # relative: rounding must not decide between points that symmetry makes equal


@dataclass(frozen=True)
class OnGrid:
    """A kernel seen at the points of a finite domain.

    Parameters
    ----------
    kernel : KernelSum
    Z : (k, d0) array
    keep : bool
        Whether to keep the whole (k, k) Gram matrix; not worth it for a kernel used only once.
    """

    kernel: KernelSum
    Z: Array
    keep: bool = True

    @cached_property
    def features(self) -> Array | None:
        """(k, dim), or None for kernels without features."""
        return self.kernel.features(self.Z) if self.kernel.finite else None

    @cached_property
    def gram(self) -> Array:
        """(k, k)."""
        return self.kernel(self.Z)

    @cached_property
    def variance(self) -> Array:
        """(k,) prior variances."""
        return self.kernel.diag(self.Z)

    def posterior(self, where: NDArray[np.intp], y: Array, noise_var: float) -> tuple[Array, Array]:
        """Mean and standard deviation (k,) after values ``y`` at the points ``where`` (Eq. 3)."""
        if not len(where):
            return np.zeros(len(self.Z)), np.sqrt(self.variance)
        if self.features is not None and self.kernel.dim <= len(where):
            F = self.features[where]  # (t, d)
            factor = cholesky(F.T @ F + noise_var * np.eye(F.shape[1]), check_finite=False)
            spread = _solve_transposed(factor, self.features.T)  # (d, k)
            inner = _solve_transposed(factor, F.T @ y)
            variance = noise_var * np.einsum("dk,dk->k", spread, spread)
        else:
            cross = self.gram[where] if self.keep else self.kernel(self.Z[where], self.Z)  # (t, k)
            K = cross[:, where]
            factor = cholesky(K + noise_var * np.eye(len(K)), check_finite=False)
            spread = _solve_transposed(factor, cross)
            inner = _solve_transposed(factor, y)
            variance = self.variance - np.einsum("tk,tk->k", spread, spread)
        return spread.T @ inner, np.sqrt(np.maximum(variance, 0))


# A kernel, or a rule that chooses one from the observations (where, y) so far.
Model: TypeAlias = OnGrid | Callable[[NDArray[np.intp], Array], OnGrid]


@dataclass(frozen=True)
class Trajectory:
    """What happened in T steps; entry t - 1 of everything belongs to step t.

    Attributes
    ----------
    f : (k,) array
        The function that was maximised.
    queries : (T,) array of int
        Indices of x_t.
    predicted : (T,) array
        max_x mu_{t-1}(x).
    guesses : (T,) array of int
        Indices of argmax_x mu_{t-1}(x).
    ratio : (T,) array
        Largest abs(f - mu_{t-1}) / (nu_t sigma_{t-1}) over the domain: at most 1 where the
        intervals cover f.
    typical_ratio : (T,) array
        Its median over the domain.
    """

    f: Array
    queries: NDArray[np.intp]
    y: Array
    predicted: Array
    guesses: NDArray[np.intp]
    ratio: Array
    typical_ratio: Array

    def regrets(self) -> dict[str, Array]:
        """(T,) curves: simple; cumulative of x_t; of the guess; and the paper's R_t.

        "mu" is the paper's cumulative inference regret, sum f(x*) - max mu_{t-1}. It compares with
        a predicted value and may decrease; "arg" has f at the maximiser of the mean instead.
        """
        best = self.f.max()
        return {
            "simple": best - np.maximum.accumulate(self.f[self.queries]),
            "mu": np.cumsum(best - self.predicted),
            "arg": np.cumsum(best - self.f[self.guesses]),
            "reg": np.cumsum(best - self.f[self.queries]),
        }


def play(
    model: Model,
    f: Array,
    *,
    nu: Array,
    noise_var: Array,
    noise_std: float,
    noise: np.random.Generator,
    ties: np.random.Generator,
) -> Trajectory:
    """Maximise ``f`` with GP-UCB: x_t = argmax mu_{t-1} + nu_t sigma_{t-1}, ties at random.

    Parameters
    ----------
    model : OnGrid, or callable(where, y) -> OnGrid
        The kernel; a callable may choose it anew from the observations before every step.
    f : (k,) array
        Values at the domain.
    nu, noise_var : (T,) arrays
        nu_t, and the regulariser for the posterior used at step t.
    noise_std : float
        Of the observations.
    """
    horizon = len(nu)
    where = np.zeros(horizon, dtype=np.intp)
    guesses = np.zeros(horizon, dtype=np.intp)
    y, predicted, ratio, typical = (np.zeros(horizon) for _ in range(4))
    for i in range(horizon):
        now = model if isinstance(model, OnGrid) else model(where[:i], y[:i])
        mean, std = now.posterior(where[:i], y[:i], noise_var[i])
        where[i] = first_at_random(mean + nu[i] * std, ties)
        guesses[i] = first_at_random(mean, ties)
        predicted[i] = mean.max()
        errors = _relative(np.abs(f - mean), nu[i] * std)
        ratio[i], typical[i] = errors.max(), np.median(errors)
        y[i] = f[where[i]] + noise_std * noise.standard_normal()
    return Trajectory(f, where, y, predicted, guesses, ratio, typical)


def play_paper(
    settings: ExperimentSettings,
    kernel: KernelSum,
    Z: Array,
    f: Array,
    streams: Streams,
    nu: Array | None = None,
) -> Trajectory:
    """GP-UCB as in Section 6: nu_t of the theory and the regulariser 1 + 2/t.

    Noise and ties are those of the run, the same for every kernel.
    """
    return play(
        OnGrid(kernel, Z),
        f,
        nu=theory_nu(settings, kernel) if nu is None else nu,
        noise_var=paper_noise_var(settings),
        noise_std=settings.noise_std,
        noise=streams.rng("noise"),
        ties=streams.rng("ties"),
    )


def band_after(
    settings: ExperimentSettings, kernel: KernelSum, Z: Array, played: Trajectory, t: int
) -> tuple[Array, Array]:
    """Mean and half-width (k,) of the intervals of `play_paper` after t observations."""
    noise_var, nu = paper_noise_var(settings)[t], theory_nu(settings, kernel)[t]
    mean, std = OnGrid(kernel, Z).posterior(played.queries[:t], played.y[:t], noise_var)
    return mean, nu * std


def curve_rows(played: Mapping[str, Trajectory]) -> Rows:
    """One row per kernel and step, with all regrets."""
    rows: Rows = []
    for name, game in played.items():
        regrets = game.regrets()
        for i in range(len(game.queries)):
            values = {key: float(curve[i]) for key, curve in regrets.items()}
            rows.append({"kernel": name, "t": i + 1, **values})
    return rows


def final(table: Table) -> Table:
    """Regrets at the last step: a row per instance (draw, run), columns (regret, kernel)."""
    last = table[table["t"] == table["t"].max()]
    return last.set_index(["draw", "run", "kernel"])[list(REGRETS)].unstack()


def final_ratios(table: Table, over: str, under: str) -> dict[str, float]:
    """Ratio of mean regrets at the last step, pooled, and its largest value over the draws.

    Intervals: of the pooled ratio for other k* (for other runs, if there is only one k*); of the
    largest one for other runs with the same k*.
    """
    wide = final(table)
    ratios: dict[str, float] = {}
    draws = wide.index.get_level_values("draw")
    for regret in ("mu", "arg", "reg"):
        key, pair = f"{regret} {over}/{under}", (wide[regret, over], wide[regret, under])
        ratios |= ratio(key, *pair, draws if draws.nunique() > 1 else None)
        means = wide[regret].groupby(level="draw").mean()
        worst = draws == (means[over] / means[under]).idxmax()
        ratios |= ratio(f"worst {key}", *(values[worst] for values in pair))
    return ratios


def wins(table: Table, regret: str, one: str, other: str) -> float:
    """Fraction of instances in which ``one`` ends with less regret than ``other``."""
    wide = final(table)[regret]
    return float(np.mean(wide[one] < wide[other]))


def first_at_random(values: Array, rng: np.random.Generator) -> int:
    """Index of the largest value; among equals, each with the same probability."""
    top = values.max()
    return int(rng.choice(np.flatnonzero(values >= top - TIE * (abs(top) + np.ptp(values)))))


def _relative(error: Array, width: Array) -> Array:
    """error / width, where 0 / 0 is covered and anything else over 0 is not."""
    safe = np.where(width > 0, width, 1.0)
    return np.where(width > 0, error / safe, np.where(error > 0, np.inf, 0.0))


def _solve_transposed(factor: Array, right: Array) -> Array:
    return np.asarray(solve_triangular(factor, right, trans="T", check_finite=False))
