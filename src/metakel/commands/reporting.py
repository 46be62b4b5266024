"""``metakel report`` and ``metakel demo``."""

from __future__ import annotations


def report() -> None:
    """One page."""


def demo() -> None:
    """Demo."""
