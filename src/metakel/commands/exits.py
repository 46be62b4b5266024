"""Exit codes that a script can rely on."""

from __future__ import annotations

UNUSABLE_INPUT = 1
WRONG_USAGE = 2
NOTHING_SUCCEEDED = 3
CANNOT_WRITE = 4
INTERRUPTED = 130
