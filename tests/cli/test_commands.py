"""The table of commands is the commands, and reading it is quick."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from metakel.cli.console import SUMMARIES, load

START = "import sys; sys.argv[0] = 'metakel'; from metakel.cli import main; "


@pytest.mark.parametrize("name", sorted(set(SUMMARIES) - {"paper"}))
def test_the_summary_of_a_command_is_the_first_sentence_of_its_help(name):
    first, _, _ = load(name).help.partition("\n\n")
    assert " ".join(first.split()) == SUMMARIES[name]


def test_help_lists_every_command_and_does_not_wait_for_numpy():
    code = "import atexit; atexit.register(lambda: print(*sys.modules)); main()"
    shown = subprocess.run(
        [sys.executable, "-c", START + code, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(f"\n  {name} " in shown for name in SUMMARIES)
    assert "metakel.cli.console" in shown
    assert "numpy" not in shown


def completed(words: str) -> list[str]:
    """What a shell offers after these words, the last of which is not complete."""
    request = {
        "_METAKEL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", START + "main()"],
        env={**os.environ, **request},
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_shells_complete_commands_and_their_options():
    assert completed("metakel s") == ["show", "suggest", "status"]
    assert completed("metakel tune --bu") == ["--budget"]
    assert completed("metakel nothing --bu") == []
