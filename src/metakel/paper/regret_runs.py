"""What the regret figures share: playing several kernels on one function, and their ratios."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from metakel.kernels import KernelSum
from metakel.paper.figure import Rows, Table
from metakel.paper.instance import paper_noise_var, theory_nu
from metakel.paper.play import OnGrid, Played, play
from metakel.paper.settings import Settings
from metakel.paper.streams import Streams
from metakel.tasks import Array

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


def final_ratios(table: Table, over: str, under: str) -> dict[str, float]:
    """Ratio of mean regrets at the last step, pooled, and its largest value over the draws."""
    last = table[table["t"] == table["t"].max()]
    ratios = {}
    for regret in ("mu", "arg", "reg"):
        means = last.groupby(["draw", "kernel"])[regret].mean().unstack()
        ratios[f"{regret} {over}/{under}"] = float(means[over].mean() / means[under].mean())
        ratios[f"worst {regret} {over}/{under}"] = float((means[over] / means[under]).max())
    return ratios


def wins(table: Table, regret: str, one: str, other: str) -> float:
    """Fraction of instances in which ``one`` ends with less regret than ``other``."""
    last = table[table["t"] == table["t"].max()]
    wide = last.set_index(["draw", "run", "kernel"])[regret].unstack()
    return float(np.mean(wide[one] < wide[other]))
