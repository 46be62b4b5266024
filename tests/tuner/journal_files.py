"""Journals as files: read and written in the format that docs/reliability.md states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32


def lines(path: Path) -> list[dict[str, Any]]:
    """Events of a journal, without their checksums."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: v for name, v in event.items() if name != "crc"} for event in events]


def written(path: Path, events: list[dict[str, Any]]) -> Path:
    """A journal of version 2 with these events, whatever they are."""
    text, before = "", 0
    for event in events:
        line = json.dumps(event)
        before = crc32(line.encode(), before)
        text += f'{line[:-1]}, "crc": "{before:08x}"}}\n'
    path.write_text(text)
    return path
