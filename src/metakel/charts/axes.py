"""Charts on matplotlib axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from metakel.charts.style import BAND_OPACITY, Axis, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def new_axes(
    panels: int = 1, *, size: tuple[float, float] = (6.4, 3.8), **options: Any
) -> list[Axes]:
    """Axes side by side in a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install metakel[plots]") from error
    _, axes = plt.subplots(1, panels, figsize=size, layout="constrained", squeeze=False, **options)
    return list(axes[0])


def tidy(*axes: Axes) -> None:
    """No frame where there is no axis, and faint lines to read values off."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.set_axisbelow(True)


class Panel:
    """A chart on matplotlib axes; whatever else is wanted goes to ``ax`` itself.

    Parameters
    ----------
    ax : Axes
    x, y : Axis, optional
        Range, ticks and label; without one matplotlib chooses.
    """

    def __init__(self, ax: Axes, x: Axis | None = None, y: Axis | None = None) -> None:
        self.ax = ax
        for side, axis in (("x", x), ("y", y)):
            if axis is not None:
                places, texts = zip(*axis.ticks, strict=True)
                getattr(ax, f"set_{side}scale")("log" if axis.log else "linear")
                getattr(ax, f"set_{side}lim")(axis.low, axis.high)
                getattr(ax, f"set_{side}ticks")(places, texts)
                getattr(ax, f"set_{side}ticks")([], minor=True)
                getattr(ax, f"set_{side}label")(axis.label)

    def line(
        self, x: ArrayLike, y: ArrayLike, style: Style, *, label: str = "", **look: Any
    ) -> Self:
        """A curve; it is broken where a value is not finite."""
        look = {"color": style.colour, "linestyle": style.line, **look}
        self.ax.plot(x, y, label=label or None, **look)
        return self

    def steps(self, x: ArrayLike, y: ArrayLike, style: Style, *, label: str = "") -> Self:
        """A value that stays until it changes, such as the best so far."""
        return self.line(x, y, style, label=label, drawstyle="steps-post")

    def band(
        self, x: ArrayLike, lower: ArrayLike, upper: ArrayLike, style: Style, *, label: str = ""
    ) -> Self:
        """The area between two curves; there is none where one of them is not finite."""
        low, high = (np.asarray(edge, dtype=np.float64) for edge in (lower, upper))
        finite = np.isfinite(low) & np.isfinite(high)
        edges = np.where(finite, low, np.nan), np.where(finite, high, np.nan)
        look: dict[str, Any] = {"color": style.colour, "alpha": BAND_OPACITY, "linewidth": 0}
        self.ax.fill_between(np.asarray(x), *edges, label=label or None, **look)
        return self

    def curve(
        self,
        x: ArrayLike,
        centre: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
        style: Style,
        *,
        label: str = "",
        **look: Any,
    ) -> Self:
        """A curve with its spread."""
        self.band(x, lower, upper, style)
        return self.line(x, centre, style, label=label, **look)

    def dots(
        self,
        x: ArrayLike,
        y: ArrayLike,
        style: Style,
        *,
        label: str = "",
        tips: Sequence[str] = (),
        size: float = 7.0,
        **look: Any,
    ) -> Self:
        """Points; there is nobody to ask about one of them, so that ``tips`` are left out."""
        look = {"color": style.colour, "markersize": 0.6 * size, **look}
        self.ax.plot(x, y, "o", label=label or None, **look)
        return self

    def rule(self, x: float, style: Style, label: str = "") -> Self:
        """A line from bottom to top."""
        self.ax.axvline(
            x, label=label or None, color=style.colour, linestyle=style.line, linewidth=1.2
        )
        return self

    def level(self, y: float, style: Style, label: str = "") -> Self:
        """A line from left to right."""
        self.ax.axhline(
            y, label=label or None, color=style.colour, linestyle=style.line, linewidth=1.2
        )
        return self
