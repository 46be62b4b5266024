"""Sections of the documentation that programs write, each between markers of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"  # one page for every question


def update_section(file: Path, name: str, title: str, section: str) -> None:
    """Put the section between the markers ``name`` of the file, adding them where absent.

    It ends with the commit and the day on which it was written. Its numbers are kept in the
    history; one that fell by more than its noise is printed.
    """
    from benchmarks import history  # whose page is made of tables, too

    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = file.read_text(encoding="utf-8") if file.exists() else f"# {title}\n"
    if begin not in text:
        text += f"\n## {title}\n\n{begin}\n{end}\n"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    file.parent.mkdir(parents=True, exist_ok=True)
    stamp = f"Written at commit {history.commit()} on {date.today()}."
    file.write_text(f"{head}{begin}\n{section}\n\n{stamp}\n{end}{tail}", encoding="utf-8")
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
