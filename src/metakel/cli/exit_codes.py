"""Exit codes that a script can rely on, and what leads to them."""

from __future__ import annotations

from pathlib import Path

from metakel.errors import CannotWrite

UNUSABLE_INPUT = 1
WRONG_USAGE = 2
NOTHING_SUCCEEDED = 3
CANNOT_WRITE = 4
INTERRUPTED = 130


def refuse_overwriting(out: Path, *sources: str | Path | None) -> None:
    """A result does not replace what it is made from."""
    for source in sources:
        if source is not None and out.exists() and Path(source).exists() and out.samefile(source):
            raise CannotWrite(f"{out} is read by this command; expected another place to write to")
