"""How the figures look: one colour per kernel, mean and spread of curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from numpy.typing import ArrayLike

from metakel import plots
from metakel._arrays import Array
from metakel.charts import COLD, LEARNED, OBSERVED, RANDOM, SERIES, TRUTH
from metakel.learn import Scale
from metakel.plots import tidy
from reproduction.figure import Figure, Table, rate
from reproduction.settings import ExperimentSettings

LABELS = {
    "true": "true kernel $k^*$ (oracle)",
    "learned": "learned kernel $\\hat{k}$",
    "full": "all base kernels, $k_{full}$",
    "se": "squared exponential",
    "se-fit": "squared exponential, refitted",
    "random": "random search",
}
STYLES = {
    "true": TRUTH,
    "learned": LEARNED,
    "full": COLD,
    "se": SERIES[2],
    "se-fit": SERIES[4],
    "random": RANDOM,
}
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

    The band is one standard deviation over runs ("std"), two standard errors of the mean ("sem"),
    or from the 10 % to the 90 % quantile ("quantiles"), which suits logarithmic axes; ``clusters``
    names the column of what was drawn independently, if not the runs.
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
        low, high = mean - width, mean + width
        if spread == "quantiles":
            low, high = wide.quantile(0.1).to_numpy(), wide.quantile(0.9).to_numpy()
        plots.curve(t, mean, low, high, style=STYLES[kernel], label=LABELS[kernel], ax=ax)
    tidy(ax)


def estimate(ax: Axes, x: Array, f: Array, mean: Array, width: Array, *, label: str) -> None:
    """A function and its estimate with the learned kernel, framed by the function."""
    margin = 0.3 * np.ptp(f)
    plots.shade(ax, x, mean - width, mean + width, LEARNED, label=label)
    ax.plot(x, mean, linewidth=1.2, **LEARNED.look)
    ax.plot(x, f, label="f", linewidth=1.2, **TRUTH.look)
    ax.set_ylim(f.min() - margin, f.max() + margin)


def observations(ax: Axes, x: Array, y: Array, size: ArrayLike = 16, *, label: str) -> None:
    """Dots of an area."""
    ax.scatter(x, y, s=size, color=OBSERVED.color, zorder=3, label=label)


def one_run(table: Table, run: int = 0) -> Table:
    """The rows of one run with the first k*."""
    return table[(table["run"] == run) & (table["draw"] == 0)]


def rates(successes: Any) -> tuple[Array, Array, Array]:
    """(groups,) rates of grouped successes, and the ends of their Wilson intervals."""
    found = [rate("rate", group) for _, group in successes]
    each = ([one[key] for one in found] for key in ("rate", "rate low", "rate high"))
    middle, low, high = (np.array(values) for values in each)
    return middle, low, high


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
    """Ticks of a logarithmic x axis at these values, written as they are where there is room."""
    places = np.log(values) / np.ptp(np.log(values)) if len(values) > 1 else np.zeros(1)
    labels, last = [], -np.inf
    for value, place in zip(values, places, strict=True):
        room = place - last >= 0.09 or value == values[-1] or len(values) <= 7
        labels.append(f"{value:g}" if room else "")
        last = place if room else last
    ax.set_xscale("log")
    ax.set_xticks(values, labels, fontsize=8)
    ax.minorticks_off()
