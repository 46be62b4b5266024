"""``metakel demo``: the whole way on the bundled history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metakel._files import writing
from metakel.cli.suggest import Seed


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the results.")] = (
        Path("demo")
    ),
    seed: Seed = 0,
) -> None:
    """Learn from the bundled history, and tune unseen tasks."""
    from metakel.demo import main

    with writing(out):  # it reads nothing but what the package brings along
        main(["--out", str(out), "--seed", str(seed)])
