"""Pieces of the page: sections, figures, cards, bars, tables. All text is escaped here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from metakel.charts import LEARNED, SPREAD, Style, SvgChart


def section(title: str, *parts: str) -> str:
    """A titled part of the page."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def side_by_side(*parts: str) -> str:
    """Parts in columns where the page is wide, and one below the other elsewhere."""
    return f'<div class="columns">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


def paragraph(text: str, style: str = "") -> str:
    """Some text."""
    return f'<p class="{style}">{escape(text)}</p>' if style else f"<p>{escape(text)}</p>"


def figure(chart: SvgChart, title: str, caption: str = "", description: str = "") -> str:
    """A chart with its title, the names of its marks, and what to see in it."""
    below = f"<p>{escape(caption)}</p>" if caption else ""
    picture = chart.render(description or caption)
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3>{legend(chart.legend)}</figcaption>"
        f"{picture}{below}</figure>"
    )


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Names beside the marks that they have."""
    return "".join(
        f'<span class="key"><i class="{mark}"></i>{escape(name)}</span>' for mark, name in entries
    )


def figures(*pictures: str) -> str:
    """Side by side where there is room."""
    return f'<div class="figures">{"".join(pictures)}</div>'


def cards(entries: Sequence[tuple[str, str, str]], kind: str = "") -> str:
    """Numbers to see first: value, meaning and style."""
    inner = "".join(
        f'<div class="card {style}"><b>{escape(value)}</b><span>{escape(meaning)}</span></div>'
        for value, meaning, style in entries
    )
    return (
        f'<div class="cards {kind}">{inner}</div>' if kind else f'<div class="cards">{inner}</div>'
    )


def facts(entries: Mapping[str, str]) -> str:
    """Names and what they are, in small print."""
    inner = "".join(
        f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in entries.items()
    )
    return f'<dl class="facts">{inner}</dl>'


def downloadable(name: str, text: str) -> str:
    """A button that saves a text, which is in the page."""
    return (
        f'<p><button class="save" data-name="{escape(name, quote=True)}">Download {escape(name)}'
        f"</button></p><pre hidden>{escape(text)}</pre>"
    )


def bars(rows: Sequence[tuple[str, float, float]], names: tuple[str, str]) -> str:
    """Two shares per row."""
    lines = "".join(
        f'<div class="bar"><span class="name">{escape(name)}</span><span class="tracks">'
        f"{_track(first, LEARNED, names[0])}{_track(second, SPREAD, names[1])}</span></div>"
        for name, first, second in rows
    )
    keys = legend([(LEARNED.name, names[0]), (SPREAD.name, names[1])])
    return f'<p>{keys}</p><div class="bars">{lines}</div>'


def bar_widths() -> str:
    """CSS of the widths of bars: a page with a strict policy has no styles of single elements."""
    return "\n".join(f".w{percent} {{ width: {percent}%; }}" for percent in range(101)) + "\n"


def _track(share: float, style: Style, name: str) -> str:
    percent = round(100 * min(max(share, 0.0), 1.0))
    return (
        f'<span class="track"><i class="{style.name} w{percent}" '
        f'data-tip="{escape(name, quote=True)}: {share:.0%}" tabindex="0"></i>'
        f"<em>{share:.0%}</em></span>"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Cells in columns. Numbers scroll where the page is narrow, and ``"text"`` is broken."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll {kind}"><table>{inner}</table></div>'
