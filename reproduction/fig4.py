"""Figure 4: regret of GP-UCB with the true, the learned and the full kernel."""

from __future__ import annotations

from dataclasses import replace
from math import nan

from matplotlib.figure import Figure as Canvas

from reproduction.drawing import curves
from reproduction.figure import Claim, Figure, Rows, Table, ratio
from reproduction.play import PAPER_RULE, curve_rows, final, final_ratios, play_paper, wins
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import domain, instance, objective

# The paper has one k*; nine more tell whether it was a lucky one.
SETTINGS = ExperimentSettings(runs=100, draws=10)
QUICK = replace(SETTINGS, runs=6, draws=2)

SLOWER = 0.75
INSIDE, ENDS = 0.8, 0.95  # |x*|


def run_once(settings: ExperimentSettings, streams: Streams) -> Rows:
    """One draw of meta-data and objective; regret curves by kernel."""
    drawn = instance(settings, streams)
    Z = domain(settings)
    f = objective(settings, drawn.true, Z, streams)
    played = {n: play_paper(settings, k, Z, f, streams) for n, k in drawn.kernels().items()}
    rows = curve_rows(played)
    return [{**row, "optimum": float(Z[f.argmax(), 0])} for row in rows]


def measure(table: Table) -> dict[str, float]:
    """The numbers of Property B, and where k_full is how much slower."""
    simple = table[table["t"] == table["t"].max()].groupby("kernel")["simple"].mean()
    known = table[(table["t"] == 10) & (table["kernel"] != "learned")]
    wide = final(table)["reg"]
    means = wide.groupby(level="draw").mean()
    by_draw = means["learned"] / means["full"]
    # |x*| of every instance, in the order of `wide`.
    away = table.groupby(["draw", "run"])["optimum"].first().abs().reindex(wide.index)
    measured = {
        **final_ratios(table, "learned", "true"),
        **final_ratios(table, "learned", "full"),
        "simple at the end": float(simple.max()),
        "largest simple at t = 10 with k* and k_full": float(known["simple"].max()),
        "learned beats full": wins(table, "reg", "learned", "full"),
        "share of k* within 0.75": float((by_draw <= SLOWER).mean()),
        "smallest reg learned/full": float(by_draw.min()),
    }
    hardest = wide.loc[[by_draw.idxmax()]]
    measured |= ratio("hardest reg true/full", hardest["true"], hardest["full"])
    for name, part in (("inside", wide[away <= INSIDE]), ("at the ends", wide[away >= ENDS])):
        if len(part):
            measured |= ratio(f"reg learned/full {name}", part["learned"], part["full"])
        else:
            measured[f"reg learned/full {name}"] = nan
    return measured


def draw(table: Table, settings: ExperimentSettings, canvas: Canvas) -> None:
    """Simple, inference and cumulative regret, for the first k*."""
    first = table[table["draw"] == 0]
    titles = {
        "simple": "simple regret",
        "mu": "cumulative inference regret\n(as printed: f* − max μ)",
        "reg": "cumulative regret\n(f* − f(x_t))",
    }
    axes = canvas.subplots(1, 3)
    for ax, (regret, title) in zip(axes, titles.items(), strict=True):
        curves(ax, first, regret, spread="quantiles" if regret == "simple" else "std")
        ax.set_title(title)
        ax.set_xlabel("step t")
        ax.set_ylim(bottom=0)
    axes[0].set(yscale="log", ylim=(1e-3, 100))
    axes[0].set_ylabel("regret (units of f), mean\nleft: 10 to 90 %, others ± 1 std")
    axes[0].legend(loc="upper right")


FIGURE = Figure(
    title="Regret of GP-UCB with the true, the learned and the full kernel",
    caption="Simple and cumulative regret for GP-UCB. The algorithm converges to the optimum "
    "using all three kernels, at a slower pace when using k_full; k̂ is competitive with k*.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    rule=PAPER_RULE,
    claims=(
        Claim(
            "converges with all three: largest mean simple regret at the end",
            "simple at the end",
            0,
            0.1,
        ),
        Claim("k̂ competitive with k*: inference regret of k̂ / k*", "mu learned/true", 0.85, 1.2),
        Claim("k̂ competitive with k*: cumulative regret of k̂ / k*", "reg learned/true", 0, 1.3),
        Claim("k_full is slower: inference regret of k̂ / k_full", "mu learned/full", 0, 0.85),
        Claim("the same, clearly where f is minimised", "mu learned/full", 0, 0.65, False),
        Claim("k_full is slower: cumulative regret of k̂ / k_full", "reg learned/full", 0, 0.75),
        Claim("the same for every k*: largest ratio", "worst reg learned/full", 0, SLOWER, False),
        Claim(
            "the oracle itself for that k*: cumulative regret of k* / k_full",
            "hardest reg true/full",
            said=False,
        ),
        Claim("fraction of the k* with at most 0.75", "share of k* within 0.75", said=False),
        Claim("smallest ratio over the k*", "smallest reg learned/full", said=False),
        Claim(
            "k_full is surely slower for every k*: largest ratio",
            "worst reg learned/full",
            0,
            1,
            False,
        ),
        Claim(
            "where the optimum lies inside, |x*| ≤ 0.8: k̂ / k_full",
            "reg learned/full inside",
            said=False,
        ),
        Claim(
            "where it lies near the ends, |x*| ≥ 0.95: k̂ / k_full",
            "reg learned/full at the ends",
            said=False,
        ),
    ),
    readings=("resolved", "literal", "signed"),
    size=(10, 3.3),
    comment="With coefficients uniform on (0, 1) and maximisation, every function has its maximum "
    "at x = 1, where GP-UCB with any kernel looks first: the literal reading separates nothing. "
    "The figure comes out when the same functions are minimised, as the caption of Figure 9 says, "
    "and (less strongly in the printed regret) with coefficients of both signs. The printed "
    "inference regret compares with a predicted value, is not monotone and rewards over-"
    "estimation; the cumulative regret of the points played shows the same order. How much slower "
    "k_full is depends on k*. The bound 0.75 for every k* comes from an earlier study with ten "
    "other k* (0.46 to 0.63). For another one that it names (degrees 4, 5, 6, 9, 20) we find what "
    "it found (`tests/paper/test_fig4.py`), but the bound is not a law: for one k* here the "
    "whole interval of the ratio lies above it, and the oracle does no better against k_full than "
    "k̂. The reason: the prior variance of every sum of Legendre kernels is largest at x = ±1, "
    "so that even k_full begins there. For high degrees (the k* with the largest ratio has 7, 10, "
    "15, 18 and 19) the optimum mostly lies next to the ends and is found on the way; where it "
    "lies inside, k_full must first rule out what the others know (last two lines). The picture "
    "shows the first k*.",
)
