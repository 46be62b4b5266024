"""Who evaluates: a process, by host, number and start, so that a dead one can be told."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """What the journal notes of whoever asked."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "start": _start(os.getpid())}


def is_dead(owner: Mapping[str, Any] | None) -> bool:
    """Whether the process is certainly gone; one on another host is taken to be alive."""
    if owner is None or owner.get("host") != socket.gethostname():
        return False
    pid = int(owner["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    # The number may belong to another process by now.
    return owner.get("start") != _start(pid) or _state(pid) == "Z"


def _fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _start(pid: int) -> str:
    """When the process began, in ticks of the system; empty where there is no /proc."""
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else ""


def _state(pid: int) -> str:
    fields = _fields(pid)
    return fields[0] if fields else ""
