"""How the figures look: one colour per kernel, mean and spread of curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from metakel._arrays import Array
from metakel.learn import Scale
from reproduction.figure import Figure, Table
from reproduction.settings import ExperimentSettings

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
# In points, for as long as a figure is drawn.
FONTS: dict[Any, Any] = {"axes.titlesize": 9, "legend.fontsize": 7}


DPI = 110


def draw(figure: Figure, table: Table, settings: ExperimentSettings, path: str | Path) -> None:
    """Draw saved results into a file."""
    canvas = Canvas(figsize=figure.size, layout="constrained")
    with matplotlib.rc_context(FONTS):
        figure.draw(table, settings, canvas)
    canvas.savefig(
        path, dpi=DPI, metadata={"Software": None} if str(path).endswith("png") else None
    )


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
        shaded(ax, t, mean, (mean - width, mean + width), **look(kernel))
    tidy(ax)


def look(kernel: str) -> dict[str, Any]:
    """Colour, style and legend entry of the curve of a kernel."""
    style = STYLES.get(kernel, "-")
    return {"colour": COLOURS[kernel], "linestyle": style, "label": LABELS[kernel]}


def shaded(
    ax: Axes,
    x: Array,
    centre: Array,
    edges: tuple[Array, Array],
    *,
    colour: str,
    alpha: float = 0.13,
    **line: Any,
) -> None:
    """A curve and the area between two edges around it."""
    ax.plot(x, centre, color=colour, **line)
    ax.fill_between(x, *edges, color=colour, alpha=alpha, linewidth=0)


def believed(ax: Axes, x: Array, f: Array, mean: Array, width: Array, *, label: str) -> None:
    """A function and what is believed of it with the learned kernel, framed by the function."""
    colour, margin = COLOURS["learned"], 0.3 * np.ptp(f)
    ax.plot(x, mean, color=colour, linewidth=1.2)
    ax.fill_between(x, mean - width, mean + width, color=colour, alpha=0.2, lw=0, label=label)
    ax.plot(x, f, "--", color=COLOURS["true"], linewidth=1.2, label="f")
    ax.set_ylim(f.min() - margin, f.max() + margin)


def one_run(table: Table, run: int = 0) -> Table:
    """The rows of one run with the first k*."""
    return table[(table["run"] == run) & (table["draw"] == 0)]


def rates(successes: Any) -> tuple[Array, Array]:
    """(groups,) rates of grouped successes, and two standard errors of each."""
    rate = successes.mean().to_numpy()
    return rate, 2 * np.sqrt(rate * (1 - rate) / successes.count().to_numpy())


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


def tidy(*axes: Axes) -> None:
    """No frame where there is no axis, and faint lines to read values off."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.set_axisbelow(True)
