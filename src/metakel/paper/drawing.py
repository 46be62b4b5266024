"""How the figures look: one colour per kernel, mean and spread of curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from metakel.learn import Scale
from metakel.paper.figure import Table
from metakel.tasks import Array

LABELS = {
    "true": "true kernel $k^*$ (oracle)",
    "learned": "learned kernel $\\hat{k}$",
    "full": "all base kernels, $k_{full}$",
    "se": "squared exponential",
    "se-fit": "squared exponential, refitted",
    "random": "random search",
}
COLOURS = {
    "true": "#222222",
    "learned": "#0072b2",
    "full": "#d55e00",
    "se": "#009e73",
    "se-fit": "#cc79a7",
    "random": "#999999",
}
STYLES = {"true": "--", "random": ":"}


def curves(
    ax: Axes, table: Table, value: str, *, spread: str = "std", clusters: str | None = None
) -> None:
    """Mean of ``value`` over runs at every t for each kernel, with a band.

    The band is one standard deviation over runs ("std"), or two standard errors of the mean
    ("sem"); ``clusters`` names the column of what was drawn independently, if not the runs.
    """
    for kernel in (name for name in LABELS if name in set(table["kernel"])):
        one = table[table["kernel"] == kernel]
        wide = one.pivot_table(index=["draw", "run"], columns="t", values=value)
        t, mean = wide.columns.to_numpy(), wide.mean().to_numpy()
        width = wide.std().fillna(0.0).to_numpy()
        if spread == "sem":
            off = wide - mean
            if clusters is not None:
                off = off.groupby(one.groupby(["draw", "run"])[clusters].first()).sum()
            width = 2 * np.sqrt(np.square(off).sum().to_numpy()) / len(wide)
        colour = COLOURS[kernel]
        ax.plot(t, mean, color=colour, linestyle=STYLES.get(kernel, "-"), label=LABELS[kernel])
        ax.fill_between(t, mean - width, mean + width, color=colour, alpha=0.13, linewidth=0)
    tidy(ax)


def band(ax: Axes, x: Array, centre: Array, width: Array, *, colour: str, label: str) -> None:
    """A curve and the band around it."""
    ax.plot(x, centre, color=colour, linewidth=1.2)
    ax.fill_between(x, centre - width, centre + width, color=colour, alpha=0.2, lw=0, label=label)


def weights_label(scale: Scale) -> str:
    """For the axis of the weights: what those of the learned kernel are divided by."""
    return {"sum": "weight η_j (sum 1)", "c1": "weight η_j (of k̂: over c₁)"}.get(
        scale, "weight η_j"
    )


def legend_below(canvas: Canvas, ax: Axes, columns: int) -> None:
    """The legend of one of the axes below all of them, where it covers no curve."""
    handles, labels = ax.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)


def mark_values(ax: Axes, values: Sequence[float]) -> None:
    """Ticks of a logarithmic x axis at these values, written as they are."""
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values], fontsize=8)
    ax.minorticks_off()


def tidy(ax: Axes) -> None:
    """No frame where there is no axis, and faint lines to read values off."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
