"""Charts as inline SVG. Colours are variables of the page, so that dark pages stay dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel.charts.style import BAND_OPACITY, ROLES, Axis, Style

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 12, 44
LETTER = 10  # room for a letter, on a telephone too
DASHES = {"-": "", "--": "5 4", ":": "2 4"}


def style_sheet() -> str:
    """CSS that gives everything of the class of a role its colour, on light and dark pages."""
    light = " ".join(f"--{role.name}: {role.colour};" for role in ROLES)
    dark = " ".join(f"--{role.name}: {role.on_dark};" for role in ROLES)
    classes = "\n".join(f".{role.name} {{ --colour: var(--{role.name}); }}" for role in ROLES)
    return (
        f":root {{ {light} --band: {BAND_OPACITY}; }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{classes}\n"
    )


class SvgChart:
    """A chart as text; marks are drawn in the order they are added.

    Attributes
    ----------
    legend : list of (str, str)
        The classes of marks with a label, and the label; the page writes it beside the picture.
    """

    def __init__(self, x: Axis, y: Axis) -> None:
        self.x, self.y = x, y
        self.legend: list[tuple[str, str]] = []
        self._marks: list[str] = []

    def line(self, x: ArrayLike, y: ArrayLike, style: Style, *, label: str = "") -> Self:
        """A curve; it is broken where a value is not finite."""
        pieces: list[list[str]] = [[]]
        for at, value in _rows(x, y):
            if isfinite(value):
                pieces[-1].append(self._place(at, value))
            elif pieces[-1]:
                pieces.append([])
        dash = DASHES[style.line]
        look = f' stroke-dasharray="{dash}"' if dash else ""
        self._marks += [
            f'<polyline class="line {style.name}"{look} points="{" ".join(piece)}"/>'
            for piece in pieces
            if piece
        ]
        return self._named("line", style, label)

    def steps(self, x: ArrayLike, y: ArrayLike, style: Style, *, label: str = "") -> Self:
        """A value that stays until it changes, such as the best so far."""
        across, up = np.asarray(x), np.asarray(y)
        return self.line(np.repeat(across, 2)[1:], np.repeat(up, 2)[:-1], style, label=label)

    def band(
        self, x: ArrayLike, lower: ArrayLike, upper: ArrayLike, style: Style, *, label: str = ""
    ) -> Self:
        """The area between two curves; there is none where one of them is not finite."""
        rows = [row for row in _rows(x, lower, upper) if isfinite(row[1]) and isfinite(row[2])]
        forth = [self._place(at, high) for at, _, high in rows]
        back = [self._place(at, low) for at, low, _ in reversed(rows)]
        if rows:
            points = " ".join(forth + back)
            self._marks.append(f'<polygon class="band {style.name}" points="{points}"/>')
        return self._named("band", style, label)

    def dots(
        self,
        x: ArrayLike,
        y: ArrayLike,
        style: Style,
        *,
        label: str = "",
        tips: Sequence[str] = (),
        size: float = 7.0,
    ) -> Self:
        """Points, with what to say about each."""
        rows = list(_rows(x, y))
        for (at, value), tip in zip(rows, tips or [""] * len(rows), strict=True):
            if isfinite(value):
                across, up = self._place(at, value).split(",")
                place = f'cx="{across}" cy="{up}" r="{size / 2:g}"'
                self._marks.append(f'<circle class="dot {style.name}" {place}{_tip(tip)}/>')
        return self._named("dot", style, label)

    def rule(self, x: float, style: Style, label: str = "") -> Self:
        """A line from bottom to top, with a word beside it."""
        at = LEFT + self.x.fraction(x) * (WIDTH - RIGHT - LEFT)
        self._marks.append(
            f'<line class="rule {style.name}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" '
            f'y2="{HEIGHT - BOTTOM}"/><text class="{style.name}" x="{at - 5:.1f}" y="{TOP + 10}" '
            f'text-anchor="end">{escape(label)}</text>'
        )
        return self

    def cells(self, strength: Array, style: Style, tips: Sequence[str]) -> Self:
        """A heat map over the whole picture: (rows, columns) strengths 0 to 1, from bottom left."""
        rows, columns = strength.shape
        width, height = (WIDTH - RIGHT - LEFT) / columns, (HEIGHT - BOTTOM - TOP) / rows
        for k, (value, tip) in enumerate(zip(strength.ravel(), tips, strict=True)):
            x, y = LEFT + k % columns * width, HEIGHT - BOTTOM - (k // columns + 1) * height
            self._marks.append(  # a little larger than it is, for no gaps
                f'<rect class="cell {style.name}" x="{x:.2f}" y="{y:.2f}" '
                f'width="{width + 0.4:.2f}" height="{height + 0.4:.2f}" '
                f'fill-opacity="{value:.3f}"{_tip(tip)}/>'
            )
        return self

    def render(self, description: str) -> str:
        """The picture; the description is for those who cannot see it."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(description, quote=True)}">'
            f"{self._axes()}{''.join(self._marks)}</svg>"
        )

    def _place(self, x: float, y: float) -> str:
        across = LEFT + self.x.fraction(x) * (WIDTH - RIGHT - LEFT)
        up = HEIGHT - BOTTOM - self.y.fraction(y) * (HEIGHT - BOTTOM - TOP)
        return f"{across:.1f},{up:.1f}"

    def _named(self, mark: str, style: Style, label: str) -> Self:
        if label:
            self.legend.append((f"{mark} {style.name}", label))
        return self

    def _axes(self) -> str:
        parts = []
        for tick, text in self.y.ticks:
            at = HEIGHT - BOTTOM - self.y.fraction(tick) * (HEIGHT - BOTTOM - TOP)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
            )
        room = (WIDTH - RIGHT - LEFT) / max(len(self.x.categories), 1)
        letters = min(max(int(room / LETTER), 2), 12)
        for tick, text in self.x.ticks:
            at = LEFT + self.x.fraction(tick) * (WIDTH - RIGHT - LEFT)
            parts.append(
                f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" '
                f'text-anchor="middle">{escape(clip(text, letters))}</text>'
            )
        middle, height = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
        x_label, y_label = (escape(clip(axis.label, 34)) for axis in (self.x, self.y))
        parts.append(
            f'<text class="label" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{x_label}'
            f'</text><text class="label" transform="translate(13 {height}) rotate(-90)" '
            f'text-anchor="middle">{y_label}</text>'
        )
        return "".join(parts)


def _rows(*columns: ArrayLike) -> Iterable[tuple[float, ...]]:
    return zip(*(np.asarray(c, dtype=np.float64).tolist() for c in columns), strict=True)


def _tip(text: str) -> str:
    return f' data-tip="{escape(text, quote=True)}" tabindex="0"' if text else ""


def clip(text: str, length: int) -> str:
    """At most so many letters."""
    return text if len(text) <= length else text[: length - 1] + "…"
