"""Charts as inline SVG. Colours are names of the page's style, so that dark pages stay dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isfinite
from typing import Any

from metakel.report.scales import Scale, number

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 12, 44


class Chart:
    """Lines, bands and dots over two axes; layers are drawn in the order they are added."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        x_label: str,
        y_label: str,
        x_log: bool = False,
        y_log: bool = False,
        categories: Sequence[str] = (),
    ) -> None:
        self.x = Scale(*x, LEFT, WIDTH - RIGHT, x_log)
        self.y = Scale(*y, HEIGHT - BOTTOM, TOP, y_log)
        self._labels = x_label, y_label
        self._categories = categories
        self._layers: list[str] = []

    def line(self, xs: Sequence[float] | Any, ys: Sequence[float] | Any, style: str) -> Chart:
        """A line; it is broken where a value is not finite."""
        pieces: list[list[str]] = [[]]
        for x, y in zip(xs, ys, strict=True):
            if isfinite(y):
                pieces[-1].append(f"{self.x(x):.1f},{self.y(y):.1f}")
            elif pieces[-1]:
                pieces.append([])
        self._layers += [
            f'<polyline class="line {style}" points="{" ".join(piece)}"/>'
            for piece in pieces
            if piece
        ]
        return self

    def band(self, xs: Any, lower: Any, upper: Any, style: str) -> Chart:
        """The area between two lines."""
        rows = [
            (x, lo, up)
            for x, lo, up in zip(xs, lower, upper, strict=True)
            if isfinite(lo) and isfinite(up)
        ]
        forth = [f"{self.x(x):.1f},{self.y(up):.1f}" for x, _, up in rows]
        back = [f"{self.x(x):.1f},{self.y(lo):.1f}" for x, lo, _ in reversed(rows)]
        if rows:
            points = " ".join(forth + back)
            self._layers.append(f'<polygon class="band {style}" points="{points}"/>')
        return self

    def dots(
        self, xs: Any, ys: Any, style: str, tips: Sequence[str] = (), radius: float = 3.5
    ) -> Chart:
        """Points, with what to say about each."""
        told = list(tips) or [""] * len(xs)
        for x, y, tip in zip(xs, ys, told, strict=True):
            if isfinite(y):
                place = f'cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius}"'
                self._layers.append(f'<circle class="dot {style}" {place}{_tip(tip)}/>')
        return self

    def vertical(self, x: float, style: str, label: str) -> Chart:
        """A line from top to bottom, with a word."""
        at = self.x(x)
        self._layers.append(
            f'<line class="rule {style}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" '
            f'y2="{HEIGHT - BOTTOM}"/><text class="{style}" x="{at - 5:.1f}" y="{TOP + 10}" '
            f'text-anchor="end">{escape(label)}</text>'
        )
        return self

    def cell(
        self, x: float, y: float, width: float, height: float, strength: float, tip: str
    ) -> Chart:
        """One rectangle of a heat map, in places of the paper."""
        self._layers.append(
            f'<rect class="cell" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" '
            f'height="{height:.2f}" fill-opacity="{strength:.3f}"{_tip(tip)}/>'
        )
        return self

    def render(self, description: str) -> str:
        """The picture; the description is for those who cannot see it."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(description, quote=True)}">'
            f"{self._axes()}{''.join(self._layers)}</svg>"
        )

    def _axes(self) -> str:
        parts = []
        for tick in self.y.ticks:
            at = self.y(tick)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            )
            parts.append(
                f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{number(tick)}</text>'
            )
        if self._categories:
            marks = list(enumerate(self._categories))
        else:
            marks = [(tick, number(tick)) for tick in self.x.ticks]  # type: ignore[misc]
        for tick, label in marks:
            parts.append(
                f'<text x="{self.x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" '
                f'text-anchor="middle">{escape(_clip(label, 12))}</text>'
            )
        middle, height = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
        x_label, y_label = (escape(_clip(label, 34)) for label in self._labels)
        parts.append(
            f'<text class="label" x="{middle}" y="{HEIGHT - 8}" '
            f'text-anchor="middle">{x_label}</text>'
        )
        parts.append(
            f'<text class="label" transform="translate(13 {height}) rotate(-90)" '
            f'text-anchor="middle">{y_label}</text>'
        )
        return "".join(parts)


def _tip(text: str) -> str:
    return f' data-tip="{escape(text, quote=True)}" tabindex="0"' if text else ""


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
