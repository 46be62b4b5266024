"""The command line: learn, show, suggest, tell, status, tune, report, demo, the paper's figures.

Exit codes: 0 done; 1 a file or value cannot be used, the message says which; 2 the command was
typed wrongly; 3 no evaluation succeeded; 4 the journal or a result cannot be written; 130 stopped
by the user or a signal (run the same command again to continue).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from metakel.errors import CannotWrite, InputError, MetaKelError

if TYPE_CHECKING:
    import typer

NEEDS = (
    'the command line needs more packages: pip install "metakel[cli]", or "metakel[paper]" '
    "for the figures of the paper"
)


def main() -> None:
    """Entry point of the ``metakel`` command."""
    try:
        root = _commands()
    except ModuleNotFoundError as error:
        sys.exit(f"metakel: {NEEDS} ({error})")
    except MetaKelError as error:
        sys.exit(f"metakel: {error}")
    from metakel.cli.console import CANNOT_WRITE, INTERRUPTED, OutputClosed
    from metakel.tuner import JournalError

    try:
        root()
    except (JournalError, CannotWrite) as error:
        sys.stderr.write(f"metakel: {error}\n")
        sys.exit(CANNOT_WRITE)
    except OutputClosed:  # whoever reads the output has seen enough
        sys.exit(0)
    except InputError as error:
        sys.exit(f"metakel: {error.as_typed()}")
    except (MetaKelError, OSError, ImportError, UnicodeDecodeError) as error:
        sys.exit(f"metakel: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("metakel: interrupted\n")
        sys.exit(INTERRUPTED)


def _commands() -> typer.Typer:
    import typer

    from metakel.cli.console import EXIT_CODES, version_option
    from metakel.cli.demo import demo
    from metakel.cli.learn import learn
    from metakel.cli.paper import HELP, paper_commands
    from metakel.cli.report import report
    from metakel.cli.show import show
    from metakel.cli.status import status
    from metakel.cli.suggest import suggest
    from metakel.cli.tell import tell
    from metakel.cli.tune import TuneCommand, tune

    root = typer.Typer(
        no_args_is_help=True,
        help="Learn from past tasks, then tune the next one.",
        epilog=EXIT_CODES,
        rich_markup_mode="markdown" if sys.stdout.isatty() else None,
        pretty_exceptions_enable=False,
    )
    root.callback()(version_option)
    root.command()(learn)
    root.command()(show)
    root.command()(suggest)
    # A negative value is a value, not an option.
    root.command(context_settings={"ignore_unknown_options": True})(tell)
    root.command()(status)
    root.command(cls=TuneCommand)(tune)
    root.command()(report)
    root.command()(demo)
    if sys.argv[1:2] == ["paper"]:  # the figures import a lot that nothing else needs
        app = paper_commands()
    else:
        app = typer.Typer()
        app.callback()(lambda: None)
    root.add_typer(app, name="paper", help=HELP)
    return root
