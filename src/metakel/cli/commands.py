"""The table of commands; a command is imported when it is typed.

``metakel --help`` and the completion of a command's name read this table alone, so that they do
not wait for numpy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from metakel.cli.console import EXIT_CODES, version_option

# The first sentence of the help of every command, in the order of use.
SUMMARIES = {
    "learn": "Learn a prior for the next task from a table of past runs.",
    "show": "Show what was learned, and how far it can be trusted.",
    "suggest": "Suggest the next configurations to try; with --journal they are recorded as "
    "pending.",
    "tell": "Record the result of a configuration in a journal; it is on disk when this returns.",
    "status": "List the trials of a journal with their numbers and results.",
    "tune": "Tune a command, whose value is the last line of its output: a number, alone or after "
    "a name.",
    "report": "Write one HTML page: what was learned, how far to trust it, and how a run went.",
    "demo": "Learn from the bundled history, tune unseen tasks, and show the gain.",
    "paper": "The figures of the paper, each by one command (in a clone of the repository).",
}


class CommandGroup(TyperGroup):
    """The root command, which knows summaries and loads what was typed."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The name, the command and its words."""
        name, known, words = super().resolve_command(ctx, args)
        return name, known if name is None else load(name), words


def root_command() -> typer.Typer:
    """``metakel`` itself."""
    root = _app(
        cls=CommandGroup,
        no_args_is_help=True,
        help="Learn from past tasks, then tune the next one.",
        epilog=EXIT_CODES,
    )
    root.callback()(version_option)
    for name, summary in SUMMARIES.items():
        root.command(name, help=summary)(_placeholder)
    return root


def load(name: str) -> Any:
    """The command of this name, with its options, for the machinery below typer."""
    module = import_module(f"metakel.cli.{name}")
    if name == "paper":
        return typer.main.get_command(module.paper_commands())
    options: dict[str, Any] = {}
    if name == "tell":  # a negative value is a value, not an option
        options = {"context_settings": {"ignore_unknown_options": True}}
    elif name == "tune":
        options = {"cls": module.TuneCommand}
    app = _app(add_completion=False)
    app.command(name, **options)(getattr(module, name))
    return typer.main.get_command(app)


def _app(**settings: Any) -> typer.Typer:
    markup = "markdown" if sys.stdout.isatty() else None
    return typer.Typer(rich_markup_mode=markup, pretty_exceptions_enable=False, **settings)  # type: ignore[arg-type]


def _placeholder() -> None:
    """Stands for a command until it is typed."""
