"""Regret where one true kernel is missing, beside the linear lower bound that Section 5 cites."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure as Canvas

from metakel import plots
from metakel.charts import SERIES, TRUTH
from metakel.kernels import KernelSum
from reproduction.drawing import LABELS, STYLES, legend_below
from reproduction.figure import Claim, Figure, Rows, Table, rate, ratio
from reproduction.play import PAPER_RULE, curve_rows, play_paper
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import domain, instance, objective

SETTINGS = ExperimentSettings(runs=100, fresh=True, smallest=0.05, horizon=200)
QUICK = replace(SETTINGS, runs=6, horizon=40)
MISSING = "missing"


def run_once(settings: ExperimentSettings, streams: Streams) -> Rows:
    """The true kernel, and the same without its strongest base kernel."""
    drawn = instance(settings, streams)
    Z = domain(settings)
    f = objective(settings, drawn.true, Z, streams)
    weights = drawn.true.eta.copy()
    weights[weights.argmax()] = 0.0
    without = KernelSum(drawn.true.base, weights)
    played = {
        name: play_paper(settings, kernel, Z, f, streams)
        for name, kernel in (("true", drawn.true), (MISSING, without), ("full", drawn.full))
    }
    features = without.features(Z)
    gap = np.abs(f - features @ np.linalg.lstsq(features, f, rcond=None)[0]).max()
    return [{**row, "gap": float(gap), "range": float(np.ptp(f))} for row in curve_rows(played)]


def measure(table: Table) -> dict[str, float]:
    """Regret per step in the second half, where learning is over."""
    last, middle = table["t"].max(), table["t"].max() // 2
    keyed = table.set_index(["draw", "run", "t", "kernel"])
    reg, simple = keyed["reg"].unstack(), keyed["simple"].unstack()
    late = (reg.xs(last, level="t") - reg.xs(middle, level="t")) / (last - middle)
    wide = keyed["range"].unstack().xs(last, level="t")["true"]
    late = late.div(wide, axis=0)
    stuck = simple.xs(last, level="t")[MISSING] > 0.01 * wide
    gap = keyed["gap"].unstack().xs(last, level="t")["true"] / wide
    one = np.ones(len(late))
    return {
        **ratio("late true", late["true"], one),
        **ratio("late missing", late[MISSING], one),
        **ratio("late full", late["full"], one),
        **rate("never within 1 %", stuck),
        "gap": float(gap.mean()),
    }


def draw(table: Table, settings: ExperimentSettings, canvas: Canvas) -> None:
    """Cumulative regret over the range of f."""
    ax = canvas.subplots()
    styles = {"true": TRUTH, "full": STYLES["full"], MISSING: SERIES[2]}
    labels = {MISSING: "strongest kernel of $k^*$ missing", **LABELS}
    scaled = table.assign(reg=table["reg"] / table["range"])
    for name, style in styles.items():
        wide = scaled[scaled["kernel"] == name].pivot_table(
            index=["draw", "run"], columns="t", values="reg"
        )
        mean, error = wide.mean(), 2 * wide.sem().fillna(0.0)
        plots.curve(
            wide.columns, mean, mean - error, mean + error, style=style, label=labels[name], ax=ax
        )
    ax.set(xlabel="step t", ylabel="cumulative regret / range of f\nmean ± 2 s.e.", ylim=(0, None))
    plots.tidy(ax)
    legend_below(canvas, ax, 3)


FIGURE = Figure(
    title="Regret where a true kernel is missing",
    caption="Not in the paper. Section 5 cites a lower bound that is linear in T for a function "
    "outside of the hypothesis space (Bogunovic and Krause 2021).",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    rule=PAPER_RULE,
    claims=(
        Claim(
            "regret per step in the second half, over the range of f: true kernel",
            "late true",
            said=False,
        ),
        Claim("the same, strongest kernel missing", "late missing", said=False),
        Claim("the same, all base kernels", "late full", said=False),
        Claim(
            "strongest kernel missing: runs whose best point is still 1 % of the range away",
            "never within 1 %",
            said=False,
        ),
        Claim(
            "largest distance of f from the kernels that are left, over its range",
            "gap",
            said=False,
        ),
    ),
    readings=("resolved",),
    size=(6, 3.6),
    comment="A regret that grows linearly has the same regret per step for ever; with the true "
    "kernel it goes to zero. This is GP-UCB as printed, without the alarm of this library, which "
    "notices a missing kernel and goes on with all of them (`promises.md`).",
)
