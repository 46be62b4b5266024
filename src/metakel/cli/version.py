"""What ``metakel`` takes before a command."""

from __future__ import annotations

from typing import Annotated

import typer

from metakel import __version__
from metakel.cli.console import say


def _show(wanted: bool) -> None:
    if wanted:
        say(f"metakel {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of no command in particular; `_show` has done the work."""
