"""Charts as inline SVG, and pieces of HTML, for the report and notebooks.

What is drawn has a role, and a role looks the same everywhere. Colours are those of Okabe and Ito,
which all readers can tell apart, and variables of the page, so that dark pages stay dark. The
pictures of papers (`metakel.plots`) are drawn with matplotlib in the same colours. In pieces of
HTML for notebooks all text is escaped, and colours are those around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 12, 44
LETTER = 10  # room for a letter, on a telephone too
LINE = 16  # room for a line of text, on a telephone too
UPRIGHT = 16  # letters of a name that stands upright, at most
DASHES = {"-": "", "--": "5 4", ":": "2 4"}


@dataclass(frozen=True)
class Style:
    """How everything with one role looks.

    Parameters
    ----------
    name : str
        The role.
    color, on_dark : str
        On white, and on a dark page.
    line : "-", "--" or ":"
    """

    name: str
    color: str
    on_dark: str = ""
    line: str = "-"

    @property
    def look(self) -> dict[str, Any]:
        """Options of matplotlib's lines."""
        return {"color": self.color, "linestyle": self.line}


LEARNED = Style("learned", "#0072b2", "#6cb8ea")  # with what past tasks teach
COLD = Style("cold", "#d55e00", "#ff9d5c")  # without it: a cold start, or all base kernels
SPREAD = Style("spread", "#56b4e9", "#3a86b8")  # what sets tasks apart
RANDOM = Style("random", "#777777", "#98a2ae", ":")
TRUTH = Style("truth", "#222222", "#e6e9ee", "--")  # the function itself, or the oracle
OBSERVED = Style("observed", "#444c56", "#b4bdc8")
CHOSEN = Style("chosen", "#c2338a", "#f08bc4")  # where to look next
CERTIFICATE = Style("certificate", "#e69f00", "#f0b93a", "--")
ALARM = Style("alarm", "#c11e2f", "#ff7b83", "--")
REFERENCE = Style("reference", "#888888", "#7d8793")  # a diagonal, a threshold
ROLES = (
    *(LEARNED, COLD, SPREAD, RANDOM, TRUTH, OBSERVED),
    *(CHOSEN, CERTIFICATE, ALARM, REFERENCE),
)
# For curves that have no role of their own.
SERIES = tuple(
    Style(f"series-{i}", color)
    for i, color in enumerate(
        ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0c000", "#222222"]
    )
)
BAND_OPACITY = 0.17


@dataclass(frozen=True)
class Axis:
    """Numbers from ``low`` to ``high`` along one side of a picture, by logarithm if ``log``.

    Parameters
    ----------
    label : str
    low, high : float
    log : bool
    categories : tuple of str
        Names that stand for the numbers 0, 1, ...; see `Axis.of`.
    """

    label: str
    low: float
    high: float
    log: bool = False
    categories: tuple[str, ...] = ()

    @classmethod
    def covering(cls, label: str, *values: ArrayLike) -> Axis:
        """All finite numbers among the values, with a little room; never empty."""
        joined = np.concatenate([np.asarray(v, dtype=np.float64).ravel() for v in values])
        finite = joined[np.isfinite(joined)]
        if not finite.size:
            return cls(label, 0.0, 1.0)
        low, high = float(finite.min()), float(finite.max())
        room = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
        return cls(label, low - room, high + room)

    @classmethod
    def of(cls, label: str, categories: Sequence[str]) -> Axis:
        """Names side by side."""
        return cls(label, -0.5, len(categories) - 0.5, categories=tuple(categories))

    def fraction(self, value: float) -> float:
        """Where a number is between the ends, 0 to 1; numbers beyond an end are put there."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = log10(low), log10(high), log10(at)
        return (at - low) / (high - low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers within the range, or the categories, each with its text."""
        if self.categories:
            return [(float(i), name) for i, name in enumerate(self.categories)]
        return [(value, number(value)) for value in self._round_numbers()]

    def names(self, letters: int, room: float) -> list[tuple[float, str]]:
        """Categories of at most so many letters that can be told apart, with a line for each.

        Where the ``room`` has fewer lines, some are left out.
        """
        shown = [clip(name, letters) for name in self.categories]
        if len(set(shown)) < len(set(self.categories)):  # they begin alike: ends tell more
            head = (letters - 1) // 3
            tail = letters - 1 - head
            shown = [
                name if len(name) <= letters else f"{name[:head]}…{name[-tail:]}"
                for name in self.categories
            ]
        step = max(ceil(len(shown) * LINE / room), 1)
        return [(float(i), name) for i, name in enumerate(shown)][::step]

    def _round_numbers(self) -> list[float]:
        if not self.log:
            return _round_steps(self.low, self.high)
        first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
        if last - first < 1:
            return [self.low, self.high]
        step = max(1, ceil((last - first) / 4))
        return [10.0**k for k in range(first, last + 1, step)]


def number(value: float) -> str:
    """A number as short as it can be read."""
    if value == 0 or abs(value) < 1e-12:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"
    mantissa, _, power = f"{value:.2g}".partition("e")
    sign = "" if mantissa == "1" else f"{mantissa}·"
    return f"{sign}10{str(int(power)).translate(_RAISED)}" if power else mantissa


def short(value: Any, digits: int = 5) -> str:
    """The value of a parameter as people read it."""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _round_steps(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    power = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    return [k * step for k in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def style_sheet() -> str:
    """CSS that gives everything of the class of a role its colour, on light and dark pages."""
    light = " ".join(f"--{role.name}: {role.color};" for role in ROLES)
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
        aside, anchor = (5, "start") if self.x.fraction(x) < 0.5 else (-5, "end")
        self._marks.append(
            f'<line class="rule {style.name}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" '
            f'y2="{HEIGHT - BOTTOM}"/><text class="{style.name}" x="{at + aside:.1f}" '
            f'y="{TOP + 10}" text-anchor="{anchor}">{escape(label)}</text>'
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
        names, below = self._below()
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT + below}" role="img" '
            f'aria-label="{escape(description, quote=True)}">'
            f"{self._axes(names, below)}{''.join(self._marks)}</svg>"
        )

    def _place(self, x: float, y: float) -> str:
        across = LEFT + self.x.fraction(x) * (WIDTH - RIGHT - LEFT)
        up = HEIGHT - BOTTOM - self.y.fraction(y) * (HEIGHT - BOTTOM - TOP)
        return f"{across:.1f},{up:.1f}"

    def _named(self, mark: str, style: Style, label: str) -> Self:
        if label:
            self.legend.append((f"{mark} {style.name}", label))
        return self

    def _below(self) -> tuple[str, int]:
        """Numbers or names below the picture, and the room that they need beyond that of a line.

        Names that are too long to stand side by side stand upright.
        """
        width, names = WIDTH - RIGHT - LEFT, self.x.categories
        upright = max(map(len, names), default=0) > int(width / max(len(names), 1) / LETTER)
        ticks = self.x.names(UPRIGHT, width) if names else self.x.ticks
        parts = []
        for tick, text in ticks:
            at, y = LEFT + self.x.fraction(tick) * width, HEIGHT - BOTTOM + 18
            place = f'x="{at:.1f}" y="{y}" text-anchor="middle"'
            if upright:
                turned = f"translate({at + 4:.1f} {y - 12}) rotate(-90)"
                place = f'transform="{turned}" text-anchor="end"'
            parts.append(f"<text {place}>{escape(text)}</text>")
        longest = max((len(text) for _, text in ticks), default=0)
        return "".join(parts), 8 * longest if upright else 0

    def _axes(self, names: str, below: int) -> str:
        parts = []
        for tick, text in self.y.ticks:
            at = HEIGHT - BOTTOM - self.y.fraction(tick) * (HEIGHT - BOTTOM - TOP)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
            )
        parts.append(names)
        middle, height = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
        x_label, y_label = (escape(clip(axis.label, 34)) for axis in (self.x, self.y))
        parts.append(
            f'<text class="label" x="{middle}" y="{HEIGHT + below - 8}" '
            f'text-anchor="middle">{x_label}</text>'
            f'<text class="label" transform="translate(13 {height}) rotate(-90)" '
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


# No colour of its own, so that it is readable on light and dark pages.
FRAME = "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:.5em .9em;max-width:60em"
CELL = "text-align:left;padding:.15em 1em .15em 0"
SMALL = "font-size:90%;opacity:.8"


def card(title: str, *parts: str) -> str:
    """A titled box around pieces that are HTML already."""
    return f'<div style="{FRAME}"><b>{escape(title)}</b>{"".join(parts)}</div>'


def text_card(text: str) -> str:
    """Text of several lines: the first one is the title."""
    title, *lines = text.splitlines() or [""]
    return card(title.rstrip(":"), items([line.strip() for line in lines]))


def items(lines: Sequence[str]) -> str:
    """Lines below each other; nothing where there are none."""
    inner = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul style="margin:.3em 0;padding-left:1.2em">{inner}</ul>' if lines else ""


def paragraph(text: str) -> str:
    """A sentence or more."""
    return f'<p style="margin:.3em 0">{escape(text)}</p>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """Text in columns, and a remark below."""
    head = "".join(f'<th style="{CELL}">{escape(cell)}</th>' for cell in header)
    body = "".join(
        "<tr>" + "".join(f'<td style="{CELL}">{escape(cell)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    below = f'<div style="{SMALL}">{escape(note)}</div>' if note else ""
    return (
        f'<div style="overflow-x:auto"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{below}"
    )
