"""The table of commands is read quickly, and what others wrote is shown and never obeyed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from metakel.cli.console import PANELS, SUMMARIES, load, printable

START = "import sys; sys.argv[0] = 'metakel'; from metakel.cli import main; "


@pytest.mark.parametrize("name", sorted(set(SUMMARIES) - {"paper"}))
def test_the_summary_of_a_command_is_the_first_sentence_of_its_help(name):
    first, _, _ = load(name).help.partition("\n\n")
    assert " ".join(first.split()) == SUMMARIES[name]


def test_help_lists_every_command_and_does_not_wait_for_numpy():
    code = "import atexit; atexit.register(lambda: print(*sys.modules)); main()"
    shown = subprocess.run(
        [sys.executable, "-c", START + code, "--help"],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert all(f"\n  {name} " in shown for name in SUMMARIES)
    assert all(f" {summary}\n" in shown for summary in SUMMARIES.values()), "a summary is cut"
    assert "metakel.cli.console" in shown
    assert "numpy" not in shown


@pytest.mark.parametrize("name", sorted(PANELS))
def test_every_option_of_a_long_help_has_a_panel_and_a_word_for_its_value(name):
    options = [p for p in load(name).params if p.opts[0].startswith("-")]
    assert len(options) > 20
    for option in options:
        assert option.rich_help_panel in ("Reading", "Parameters", "Run", "Promises"), option.name
        assert option.is_flag or option.metavar.isupper(), option.name
    told = {text.partition(":")[0] for panel in PANELS[name].values() for text in panel.split()}
    assert told <= {option.name for option in options}


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


def test_every_option_that_a_page_shows_exists():
    """Lines of README and docs that call a command name only options that it has."""
    root, wrong = Path(__file__).parents[2], []
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        for line in page.read_text(encoding="utf-8").splitlines():
            found = re.match(r"\s*(?:\$ )?metakel ([a-z]+)\s(.*)", line)
            if found is None or found[1] not in set(SUMMARIES) - {"paper"}:
                continue
            known = {o for p in load(found[1]).params for o in (*p.opts, *p.secondary_opts)}
            said = re.findall(r"(?<!\S)--[a-z][a-z-]+", re.split(r"\s--\s|#", found[2])[0])
            wrong += [f"{page.name}: {found[1]} {o}" for o in said if o not in {*known, "--help"}]
    assert not wrong, wrong


TITLE = "\x1b]0;owned\x07"
FAILING = f"import sys; sys.exit({TITLE!r} + 'no memory')"


@pytest.mark.parametrize("text", ["plain", "é ± μ 漢字 …", "two\nlines\twith a tab", ""])
def test_what_people_write_is_printed_as_it_is(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TITLE, r"\x1b]0;owned\x07"),
        ("a\rb", r"a\rb"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_spelled(text, shown):
    assert printable(text) == shown


def test_the_message_of_a_command_does_not_reach_the_terminal_raw(metakel, prior):
    words = ("--budget", 2, "--journal", "j", "--give-up", 1)
    result = metakel("tune", prior, *words, "--", sys.executable, "-c", FAILING, "{n=layers}")
    assert "no memory" in result.out + result.err
    status = metakel("status", "j")
    assert "no memory" in status.out
    for text in (result.out, result.err, status.out):
        assert "\x1b" not in text
        assert "\x07" not in text
