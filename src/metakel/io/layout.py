"""Lines of a table that are no rows of it: titles, comments, units, and the header again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from metakel.space.configurations import is_empty
from metakel.space.text import as_number, is_numeric

# A title and remarks may stand in so many lines above a table.
TITLE_ROWS = 10
COMMENT = "#"
UNITS_NOTE = "units below the header are not read"
LOOKED_AT = 3  # rows below a line of units, which tell that their columns hold numbers
_UNIT = re.compile(r"[\[(]?[^\W\d_°%µμ]{0,4}[°%µμ]?[A-Za-zµμΩ°%·*/^.\- ]{0,8}[-−]?[0-9]?[\])]?")


def header_at(lines: Sequence[Sequence[Any]]) -> int:
    """Which line is the header: the first with several cells, or the first of all."""
    filled = [[cell for cell in line if not is_empty(cell)] for line in lines]
    present = [i for i, cells in enumerate(filled) if cells]
    for i in present:
        if i > present[0] + TITLE_ROWS:  # a single column has a single name
            break
        following = next((lines[k] for k in present if k > i), None)
        comment = str(filled[i][0]).startswith(COMMENT) and following is not None
        if comment and len(following or ()) != len(lines[i]):
            continue
        if len(filled[i]) > 1:
            return i
    return present[0] if present else 0


def is_header(cells: Sequence[Any], header: Sequence[str]) -> bool:
    """Whether a line repeats the header, without columns that were added later."""
    names = ["" if cell is None else str(cell).strip() for cell in cells]
    same = [name == said for name, said in zip(names, header, strict=False) if name]
    return len(same) > 1 and all(same)


def is_units(cells: Sequence[Any], below: Sequence[Sequence[Any]]) -> bool:
    """Whether the line below a header holds units: texts above numbers, and nothing above texts."""
    rows = list(below[:LOOKED_AT])
    if not rows:
        return False
    units = 0
    for k, cell in enumerate(cells):
        column = [row[k] for row in rows if k < len(row) and not is_empty(row[k])]
        numbers = bool(column) and all(_is_number(v) for v in column)
        if is_empty(cell) or cell == "-":
            continue
        if not numbers or _is_number(cell) or not _UNIT.fullmatch(str(cell).strip()):
            return False
        units += 1
    return units > 0


def _is_number(cell: Any) -> bool:
    return is_numeric(cell) or (isinstance(cell, str) and as_number(cell) is not None)
