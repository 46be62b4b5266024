"""What can be typed after ``metakel``, one file per group of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def register(root: typer.Typer) -> None:
    """Add every command to the command line."""
    from metakel.commands.asking import suggest, tell
    from metakel.commands.learning import learn, show
    from metakel.commands.reporting import demo, report
    from metakel.commands.status import status
    from metakel.commands.tuning import TuneCommand, tune
    from metakel.commands.version import options

    root.callback()(options)
    root.command()(learn)
    root.command()(show)
    root.command()(suggest)
    # A negative value is a value, not an option.
    root.command(context_settings={"ignore_unknown_options": True})(tell)
    root.command()(status)
    root.command(cls=TuneCommand)(tune)
    root.command()(report)
    root.command()(demo)
