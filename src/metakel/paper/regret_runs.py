"""What the regret figures share: playing several kernels on one function, and their ratios."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from metakel._arrays import Array
from metakel.kernels import KernelSum
from metakel.paper.figure import Rows, Table
from metakel.paper.instance import paper_noise_var, theory_nu
from metakel.paper.intervals import ratio
from metakel.paper.play import OnGrid, Played, play
from metakel.paper.settings import Settings
from metakel.paper.streams import Streams

REGRETS = ("simple", "mu", "arg", "reg")


def play_paper(
    settings: Settings,
    kernel: KernelSum,
    Z: Array,
    f: Array,
    streams: Streams,
    nu: Array | None = None,
) -> Played:
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


def curve_rows(played: Mapping[str, Played]) -> Rows:
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
