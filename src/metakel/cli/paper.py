"""``metakel paper``: the figures of the paper, which are in the source repository only."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import metakel
from metakel.errors import InputError

if TYPE_CHECKING:
    import typer

HOW = (
    "the figures of the paper are in the source repository of metakel, not in the installed "
    'package: git clone the repository, and in that folder run pip install -e ".[paper]" and '
    "metakel paper all"
)


def paper_commands() -> typer.Typer:
    """The commands of `reproduction.commands`, from the clone that is installed or worked in."""
    for folder in (Path(metakel.__file__).parents[2], Path.cwd()):
        if (folder / "reproduction" / "commands.py").is_file():
            if str(folder) not in sys.path:  # worker processes inherit this path
                sys.path.insert(0, str(folder))
            app: typer.Typer = importlib.import_module("reproduction.commands").app
            return app
    raise InputError(HOW)
