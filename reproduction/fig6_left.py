"""Figure 6, left: regret of GP-UCB in two dimensions, beside the squared exponential."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from matplotlib.figure import Figure as Canvas

from metakel import plots
from metakel.charts import SERIES
from metakel.kernels import KernelSum, squared_exponential
from reproduction.drawing import curves, legend_below
from reproduction.figure import Claim, Figure, Rows, Table, ratio
from reproduction.play import PAPER_RULE, curve_rows, final, final_ratios, play_paper
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import domain, instance, objective

SMOOTH = "se "  # lengthscale, prior variance


@dataclass(frozen=True)
class TwoInputs(ExperimentSettings):
    """The squared exponential is played with every lengthscale and every prior variance."""

    lengthscales: tuple[float, ...] = (0.1, 0.3, 1.0)
    variances: tuple[float, ...] = (1.0, 100.0)


SETTINGS = TwoInputs(runs=50, grid=41)
QUICK = replace(SETTINGS, runs=4, grid=31)


def run_once(settings: TwoInputs, streams: Streams) -> Rows:
    """One draw of meta-data and objective on [-1, 1]^2; regret curves by kernel."""
    drawn = instance(settings, streams, inputs=2)
    Z = domain(settings, 2)
    f = objective(settings, drawn.true, Z, streams)
    played = {name: play_paper(settings, k, Z, f, streams) for name, k in drawn.kernels().items()}
    nu = np.full(settings.horizon, settings.norm)
    for lengthscale, variance in product(settings.lengthscales, settings.variances):
        smooth = KernelSum(squared_exponential(lengthscale, d0=2), np.full(1, variance))
        name = f"{SMOOTH}{lengthscale:g}, {variance:g}"
        played[name] = play_paper(settings, smooth, Z, f, streams, nu)
    return curve_rows(played)


def measure(table: Table) -> dict[str, float]:
    """The numbers of Property D."""
    measured = final_ratios(table, "learned", "true") | final_ratios(table, "learned", "full")
    reached = final(table)["reg"]
    smooth = [name for name in reached if name.startswith(SMOOTH)]
    order = reached[smooth].mean().sort_values().index
    for word, name in (("best", order[0]), ("worst", order[-1])):
        measured |= ratio(f"reg {word} se/learned", reached[name], reached["learned"])
        measured[f"reg {word} se"] = float(reached[name].mean())
    measured["reg learned"] = float(reached["learned"].mean())
    return measured


def draw(table: Table, settings: TwoInputs, canvas: Canvas) -> None:
    """Inference and cumulative regret; logarithmic, for the squared exponential is far above."""
    titles = {
        "mu": "cumulative inference regret\n(as printed)",
        "reg": "cumulative regret\n(f* − f(x_t))",
    }
    axes = canvas.subplots(1, 2)
    for ax, (regret, title) in zip(axes, titles.items(), strict=True):
        curves(ax, table, regret, spread="sem")
        smooth = table[table["kernel"].str.startswith(SMOOTH)]
        means = smooth.groupby(["kernel", "t"])[regret].mean().unstack()
        label = f"squared exponential, {len(means)} settings, best to worst"
        plots.shade(ax, means.columns, means.min(), means.max(), SERIES[2], label=label)
        lowest = table.groupby(["kernel", "t"])[regret].mean().min()
        ax.set(yscale="log", xlabel="step t", ylim=(max(0.8 * lowest, 1.0), None))
        ax.set_title(title)
    axes[0].set_ylabel("regret (units of f), mean ± 2 s.e.")
    legend_below(canvas, axes[0], 2)


FIGURE = Figure(
    title="Regret of GP-UCB in two dimensions",
    caption="Cumulative regret of GP-UCB, a synthetic 2D problem. Using k̂ results in "
    "competitive performance to the oracle; we do not benefit from choosing a complex kernel "
    "(squared exponential) for an inherently low-dimensional problem.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    rule=PAPER_RULE + "; ν = B for the squared exponential",
    claims=(
        Claim("competitive with the oracle: inference regret of k̂ / k*", "mu learned/true", 0, 1.3),
        Claim("better than k_full: cumulative regret of k̂ / k_full", "reg learned/full", 0, 0.75),
        Claim(
            "no benefit from the squared exponential, whichever of the six: cumulative regret of "
            "the best of them / k̂",
            "reg best se/learned",
            1,
        ),
        Claim("the same of the worst of them", "reg worst se/learned", 1, said=False),
        Claim("cumulative regret of k̂", "reg learned", said=False),
        Claim("of the best squared exponential", "reg best se", said=False),
        Claim("of the worst", "reg worst se", said=False),
    ),
    readings=("resolved", "literal", "signed"),
    size=(8, 3.6),
    comment="The paper does not give the parameters of its squared exponential, so six are shown; "
    "others may do better. "
    "The 21 products P_j(x₁)P_{20−j}(x₂) all have total degree 20, not at most 20. "
    "Without orthonormal scaling λ = 0.03 selects no kernel at all, and GP-UCB with the zero "
    "kernel plays at random; and with positive coefficients the maximum is always at (1, 1), "
    "where all polynomial kernels look first.",
)
