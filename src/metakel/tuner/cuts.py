"""How many lines a journal had, noted beside it: lines that were cut off leave no other trace.

A hidden file ``.NAME.count`` has the checksum of the first line, by which it knows its journal, and
a number of lines. It is written after the lines are on disk, so that it never says more than there
were. Without it, as of a journal that was copied, nothing is lost but this guard.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def count_file(journal: Path) -> Path:
    """Where the number of lines of a journal is noted."""
    place = Path(os.path.realpath(journal))
    return place.with_name(f".{place.name}.count")


def note_count(journal: Path, first: int, lines: int) -> None:
    """Note that it has so many lines; where that cannot be written, it is not noted."""
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with suppress(OSError):
        descriptor = os.open(count_file(journal), flags, 0o644)
        try:
            os.write(
                descriptor, b"%08x %012d\n" % (first, lines)
            )  # as long as before, in one piece
        finally:
            os.close(descriptor)


def noted_count(journal: Path) -> tuple[int, int]:
    """The checksum of its first line, and how many lines it had; 0 where nothing is noted."""
    try:
        first, lines = count_file(journal).read_bytes().split()
        return int(first, 16), int(lines)
    except (OSError, ValueError):
        return 0, 0
