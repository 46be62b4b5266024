"""The table of commands, their exit codes, and how they print.

A command is imported when it is typed: ``metakel --help`` and the completion of a command's name
read the table alone, so that they do not wait for numpy.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
import typer.main
from typer.core import TyperGroup

from metakel import __version__
from metakel.errors import CannotWrite

NOTHING_SUCCEEDED = 3
CANNOT_WRITE = 4
PENDING_ELSEWHERE = 5
INTERRUPTED = 130
EXIT_CODES = (
    "Exit codes: 0 done, 1 unusable input, 2 wrong usage, 3 no evaluation succeeded, "
    "4 cannot write, 5 results of other machines are missing, 130 interrupted."
)

Json = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of text; see above for the keys.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"metakel {__version__}")
        raise typer.Exit


def version_option(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """What ``metakel`` takes before a command."""


# The first sentence of the help of every command, in the order of use.
SUMMARIES = {
    "look": "Look at a table, and print the options of `learn` that fit it.",
    "learn": "Learn a prior for the next task from a table of past runs.",
    "show": "Show what was learned, and how far it can be trusted.",
    "suggest": "Suggest the next configurations to try.",
    "tell": "Record the result of a configuration in a journal.",
    "status": "List the trials of a journal with their numbers and results.",
    "tune": "Tune a command that prints a value.",
    "report": "Write one HTML page: what was learned, and how a run went.",
    "demo": "Learn from the bundled history, and tune unseen tasks.",
    "paper": "The figures of the paper, in a clone of the repository.",
}
# The modules of commands that have none of their own name.
MODULES = {
    "look": "learn", "tell": "suggest",
    "status": "show", "report": "show", "demo": "show", "paper": "show",
}  # fmt: skip
# Where options stand in the help of the commands that have many, and the words for their values;
# options of promises that stand in a file of their own bring both along.
PANELS = {
    "learn": {
        "Reading": "task:COLUMN output:COLUMN minimize exclude:COLUMN defaults:NAME=VALUE "
        "status:COLUMN noise_column:COLUMN step:COLUMN delimiter:CHARACTER sheet:NAME "
        "rename:OLD=NEW journals:FILE library:MODEL output_range:NUMBERS log_output",
        "Parameters": "inputs:COLUMN log:NAME categories:COLUMN space:FILE sums:EQUATION "
        "extrapolate",
        "Run": "out:FILE workers:COUNT verbose json",
    },
    "tune": {
        "Reading": "observed:FILE value_file:FILE step:PATTERN curves:FILE",
        "Parameters": "candidates:FILE fix:NAME=VALUE narrowed:NAME=LOW..HIGH exclude:NAME=VALUE "
        "sums:EQUATION extrapolate",
        "Run": "budget:COUNT journal:FILE timeout:SECONDS retries:COUNT give_up:COUNT "
        "adopt_after:SECONDS task:NAME same_task seed:NUMBER verbose json",
        "Promises": "stop_at:NUMBER accept_alarm delta:NUMBER",
    },
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
    module = import_module(f"metakel.cli.{MODULES.get(name, name)}")
    if name == "paper":
        return typer.main.get_command(module.paper_commands())
    options: dict[str, Any] = {}
    if name == "tell":  # a negative value is a value, not an option
        options = {"context_settings": {"ignore_unknown_options": True}}
    elif name == "tune":
        options = {"cls": module.TuneCommand}
    app = _app(add_completion=False)
    app.command(name, **options)(spread(getattr(module, name)))
    command: Any = typer.main.get_command(app)
    words = {
        option: (panel, word)
        for panel, options in PANELS.get(name, {}).items()
        for option, _, word in (text.partition(":") for text in options.split())
    }
    for option in command.params:
        if option.name in words:
            option.rich_help_panel, option.metavar = words[option.name]
    return command


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every field of a dataclass that it takes."""
    found: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for taken in inspect.signature(command, eval_str=True).parameters.values():
        group = taken.annotation
        if not is_dataclass(group):
            found.append(taken.replace(kind=taken.KEYWORD_ONLY))
            continue
        groups[taken.name] = group
        hints = get_type_hints(group, include_extras=True)
        found += [
            inspect.Parameter(
                f.name, taken.KEYWORD_ONLY, default=f.default, annotation=hints[f.name]
            )
            for f in fields(group)
        ]

    @wraps(command)
    def typed(**said: Any) -> None:
        for name, group in groups.items():
            said[name] = group(**{f.name: said.pop(f.name) for f in fields(group)})
        command(**said)

    vars(typed)["__signature__"] = inspect.Signature(found)
    return typed


def _app(**settings: Any) -> typer.Typer:
    markup = "markdown" if sys.stdout.isatty() else None
    return typer.Typer(rich_markup_mode=markup, pretty_exceptions_enable=False, **settings)  # type: ignore[arg-type]


def _placeholder() -> None:
    """Stands for a command until it is typed."""


# What is printed


class OutputClosed(Exception):
    """Whoever read the output, ``head`` for instance, has left."""


def say(text: str) -> None:
    """Print a line of the result, at once."""
    try:
        typer.echo(printable(text))
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer goes nowhere, without a second error at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise OutputClosed from None


def note(text: str) -> None:
    """Print a remark that is not part of the result, to stderr."""
    typer.echo(printable(text), err=True)


def printable(text: str) -> str:
    r"""Text in which escape sequences and other control characters are spelled, as in ``\x1b``.

    Names and messages come from files and programs of others, and a terminal obeys what it reads.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else ascii(c)[1:-1] for c in text)


def at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def emit(data: Any) -> None:
    """Print one JSON document on one line; numbers that are not finite become null."""
    say(json.dumps(_finite(data), allow_nan=False))


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: coloured on a terminal, plain text in a pipe."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*(escape(printable(c)) for c in header), box=None, header_style="bold")
        for row in rows:
            table.add_row(*(escape(printable(_in_line(cell))) for cell in row))
        Console().print(table)
        return
    rows = [[_in_line(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def _in_line(cell: str) -> str:
    """A name that holds line ends must not look like rows of the table."""
    return cell.replace("\n", "\\n").replace("\t", "\\t")


def short(value: Any) -> str:
    """A value as people read it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def one_line(configuration: Mapping[str, Any]) -> str:
    """A configuration as people read it."""
    return "  ".join(f"{name}={short(value)}" for name, value in configuration.items())


def refuse_overwriting(out: Path, *sources: str | Path | None) -> None:
    """A result does not replace what it is made from."""
    for source in sources:
        if source is not None and out.exists() and Path(source).exists() and out.samefile(source):
            raise CannotWrite(f"{out} is read by this command; expected another place to write to")


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(k): _finite(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(v) for v in data]
    if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))):
        return None
    return data
