"""What others wrote, in names and messages, is shown and never obeyed by the terminal."""

from __future__ import annotations

import sys

import pytest

from metakel.cli.console import printable

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
