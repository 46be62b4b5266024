"""Figure 4: regret of GP-UCB with the true, the learned and the full kernel."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure as Canvas

from metakel.paper.drawing import curves
from metakel.paper.figure import Claim, Figure, Rows, Table
from metakel.paper.instance import domain, instance, objective
from metakel.paper.regret_runs import curve_rows, final_ratios, play_paper, wins
from metakel.paper.settings import Settings
from metakel.paper.streams import Streams

# The paper has one k*; four more tell whether it was a lucky one.
SETTINGS = Settings(runs=100, draws=5)
QUICK = replace(SETTINGS, runs=6, draws=2)


def run_once(settings: Settings, streams: Streams) -> Rows:
    """One draw of meta-data and objective; regret curves by kernel."""
    drawn = instance(settings, streams)
    Z = domain(settings)
    f = objective(settings, drawn.true, Z, streams)
    kernels = {"true": drawn.true, "learned": drawn.learn().kernel, "full": drawn.full}
    return curve_rows({n: play_paper(settings, k, Z, f, streams) for n, k in kernels.items()})


def measure(table: Table) -> dict[str, float]:
    """The numbers of Property B."""
    simple = table[table["t"] == table["t"].max()].groupby("kernel")["simple"].mean()
    known = table[(table["t"] == 10) & (table["kernel"] != "learned")]
    return {
        **final_ratios(table, "learned", "true"),
        **final_ratios(table, "learned", "full"),
        "simple at the end": float(simple.max()),
        "largest simple at t = 10 with k* and k_full": float(known["simple"].max()),
        "learned beats full": wins(table, "reg", "learned", "full"),
    }


def draw(table: Table, settings: Settings, canvas: Canvas) -> None:
    """Simple, inference and cumulative regret, for the first k*."""
    first = table[table["draw"] == 0]
    titles = {
        "simple": "simple regret",
        "mu": "cumulative inference regret\n(as printed: f* − max μ)",
        "reg": "cumulative regret\n(f* − f(x_t))",
    }
    axes = canvas.subplots(1, 3)
    for ax, (regret, title) in zip(axes, titles.items(), strict=True):
        curves(ax, first, regret)
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("step t")
        ax.set_ylim(bottom=0)
    axes[0].set(yscale="log", ylim=(1e-3, 100))
    axes[0].set_ylabel("regret (units of f), mean ± 1 std")
    axes[0].legend(fontsize=7, loc="upper right")


FIGURE = Figure(
    title="Regret of GP-UCB with the true, the learned and the full kernel",
    caption="Simple and cumulative regret for GP-UCB. The algorithm converges to the optimum "
    "using all three kernels, at a slower pace when using k_full; k̂ is competitive with k*.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
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
        Claim("the same for every k*: largest ratio", "worst reg learned/full", 0, 0.75, False),
        Claim("k_full is never faster: largest ratio", "worst reg learned/full", 0, 1, False),
    ),
    readings=("resolved", "literal", "signed"),
    size=(10, 3.3),
    comment="With coefficients uniform on (0, 1) and maximisation, every function has its "
    "maximum at x = 1, where GP-UCB with any kernel looks first: the literal reading separates "
    "nothing. The figure comes out when the same functions are minimised, as the caption of "
    "Figure 9 says, and (less strongly in the printed regret) with coefficients of both signs. "
    "The printed inference regret compares with a predicted value, is not monotone and rewards "
    "over-estimation; the cumulative regret of the points played shows the same order. How much "
    "slower k_full is depends on k*: the bound 0.75 for every k* comes from an earlier study "
    "with ten other k* (0.46 to 0.63), and does not hold for all of the five drawn here; that "
    "k_full is never faster is a weaker line added after seeing this.",
)
