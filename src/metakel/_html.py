"""Small pieces of HTML for notebooks: all text is escaped, and colours are those around them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

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
