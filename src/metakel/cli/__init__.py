"""The command line: learn, show, suggest, tell, status, tune, report, demo, the paper's figures.

Exit codes: 0 done; 1 a file or value cannot be used, the message says which; 2 the command was
typed wrongly; 3 no evaluation succeeded; 4 the journal or a result cannot be written; 130 stopped
by the user or a signal (run the same command again to continue).
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

from metakel.errors import InputError, MetaKelError

NEEDS = (
    "the command line needs more packages: pip install typer rich threadpoolctl, and joblib tqdm "
    "for the figures of the paper"
)


def main() -> None:
    """Entry point of the ``metakel`` command."""
    # In a pipe, Windows writes cp1252: names that it lacks are spelled instead of an error.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from metakel.cli.console import CANNOT_WRITE, INTERRUPTED, OutputClosed, root_command
    except ModuleNotFoundError as error:
        sys.exit(f"metakel: {NEEDS} ({error})")
    try:
        root_command()()
    except OutputClosed:  # whoever reads the output has seen enough
        sys.exit(0)
    except InputError as error:
        sys.exit(f"metakel: {error.as_typed()}")
    except MetaKelError as error:
        sys.stderr.write(f"metakel: {error}\n")
        # A journal or a result could not be written, and the error of the system says why.
        sys.exit(CANNOT_WRITE if isinstance(error, OSError) else 1)
    except ModuleNotFoundError as error:
        sys.exit(f"metakel: {NEEDS} ({error})")
    except (OSError, ImportError, UnicodeDecodeError) as error:
        sys.exit(f"metakel: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("metakel: interrupted\n")
        sys.exit(INTERRUPTED)
