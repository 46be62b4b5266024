"""The two pictures that go into papers: a band after t values, and curves of the regret.

They need matplotlib (``pip install matplotlib``), draw on the Axes that they are given, or on
new ones, and return them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import as_points
from metakel.charts import BAND_OPACITY, CHOSEN, LEARNED, OBSERVED, TRUTH, Style
from metakel.confidence.sequence import ConfidenceSequence
from metakel.errors import ShapeError
from metakel.optimize import Optimizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def band(
    source: ConfidenceSequence | Optimizer,
    Z: ArrayLike,
    *,
    ax: Axes | None = None,
    truth: ArrayLike | None = None,
    next_point: ArrayLike | None = None,
) -> Axes:
    """The confidence band over one input after the values so far, with the data and the next point.

    Parameters
    ----------
    source : ConfidenceSequence or Optimizer
        An optimizer of `mk.GPUCB`
    Z : (n,) or (n, 1) array
        Where to draw it; sorted by the picture.
    ax : Axes, optional
    truth : (n,) or (n, 1) array, optional
        The function at ``Z``, where it is known.
    next_point : (1,) array, optional
        Where to look next, usually ``optimizer.ask()``; the pending points of an optimizer are
        marked without it.
    """
    ax = ax or new_axes()
    grid = as_points(Z, "plot")
    if grid.shape[1] != 1:
        raise ShapeError(f"plot: Z has {grid.shape[1]} inputs per point; a line needs one")
    order = np.argsort(grid[:, 0])
    x = grid[order, 0]
    waiting = []
    if isinstance(source, Optimizer):
        bounds, mean, delta = source.confidence(grid), source.predict(grid)[0], source.model.delta
        seen_x, seen_y, waiting = source.X, source.y, source.pending
    else:
        bounds, mean, delta = source.interval(grid), source.mean(grid), source.delta
        batches = source.told.batches
        seen_x = np.concatenate([np.zeros((0, 1)), *(batch.X for batch in batches)])
        seen_y = np.concatenate([np.zeros(0), *(batch.y for batch in batches)])
    lower, upper = (bound[order] for bound in bounds)
    shade(ax, x, lower, upper, LEARNED, label=f"{1 - delta:.0%} confidence, all x and t")
    ax.plot(x, mean[order], color=LEARNED.color, label="posterior mean")
    if truth is not None:
        values = np.asarray(truth, dtype=np.float64)
        if values.shape == (len(grid), 1):
            values = values.reshape(len(grid))
        if values.shape != (len(grid),):
            raise ShapeError(f"band: truth has shape {values.shape}; expected ({len(grid)},)")
        ax.plot(x, values[order], label="function", linewidth=1, **TRUTH.look)
    if len(seen_x):
        label = f"{len(seen_x)} observation{'s' if len(seen_x) > 1 else ''}"
        look: dict[str, Any] = {"color": OBSERVED.color, "markersize": 4.2, "clip_on": False}
        ax.plot(seen_x[:, 0], seen_y, "o", label=label, **look)
    awaited = np.array(waiting, dtype=np.float64).reshape(-1, 1)
    if next_point is not None:
        awaited = np.asarray(next_point, dtype=np.float64).reshape(-1, 1)
    for i, point in enumerate(awaited[:, 0]):
        ax.axvline(point, label=None if i else "next point", linewidth=1.2, **CHOSEN.look)
    ax.set_xlabel("x")
    ax.set_ylabel("value")
    ax.set_xlim(x[0], x[-1])
    # Above the picture: the band fills all of it in the beginning.
    ax.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize="small", frameon=False
    )
    return ax


def curve(
    x: ArrayLike,
    center: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    style: Style = LEARNED,
    label: str = "",
    ax: Axes | None = None,
    **look: Any,
) -> Axes:
    """A curve with its spread, such as the mean regret after t values and its standard error.

    Parameters
    ----------
    x, center, lower, upper : (n,) arrays
    style : Style
        Colour and line, of `metakel.charts`.
    label : str
        For the legend.
    ax : Axes, optional
    **look
        As for ``Axes.plot``.
    """
    ax = ax or new_axes()
    shade(ax, x, lower, upper, style)
    ax.plot(np.asarray(x), np.asarray(center), label=label or None, **{**style.look, **look})
    return ax


def shade(
    ax: Axes, x: ArrayLike, lower: ArrayLike, upper: ArrayLike, style: Style, *, label: str = ""
) -> None:
    """The area between two curves; there is none where one of them is not finite."""
    low, high = (np.asarray(edge, dtype=np.float64) for edge in (lower, upper))
    finite = np.isfinite(low) & np.isfinite(high)
    edges = np.where(finite, low, np.nan), np.where(finite, high, np.nan)
    look: dict[str, Any] = {"color": style.color, "alpha": BAND_OPACITY, "linewidth": 0}
    ax.fill_between(np.asarray(x), *edges, label=label or None, **look)


def tidy(*axes: Axes) -> None:
    """No frame where there is no axis, and faint lines to read values off."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.set_axisbelow(True)


def new_axes() -> Axes:
    """Axes of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install matplotlib") from error
    ax: Axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")[1]
    return ax
