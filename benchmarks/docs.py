"""Sections of TABLES.md that programs write, each between markers of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

TABLES = Path(__file__).with_name("TABLES.md")
SECTION = re.compile(r"<!-- (\S+):begin -->\n(.*?)<!-- \S+:end -->", re.S)


def sections() -> dict[str, str]:
    """What the programs wrote, by the names of their markers."""
    return dict(SECTION.findall(TABLES.read_text(encoding="utf-8")))


def update_section(name: str, title: str, section: str) -> None:
    """Put the section between the markers ``name``, adding them where absent.

    It ends with the commit and the day on which it was written. Its numbers are kept in the
    history; one that fell by more than its noise is printed.
    """
    from benchmarks import history, summary  # which are made of tables, too

    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = TABLES.read_text(encoding="utf-8")
    if begin not in text:
        text += f"\n## {title}\n\n{begin}\n{end}\n"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    stamp = f"Written at commit {history.commit()} on {date.today()}."
    TABLES.write_text(f"{head}{begin}\n{section}\n\n{stamp}\n{end}{tail}", encoding="utf-8")
    summary.write()
    for warning in history.record(name, section):
        print(f"WARNING: {warning}")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with aligned columns, which reads as text and as Markdown."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    )
