"""docs/guide/tables.md: the commands and options that it names exist, and one file is enough."""

from __future__ import annotations

import re
from pathlib import Path

from metakel.cli.console import load
from metakel.data import History

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guide" / "tables.md").read_text(encoding="utf-8")
COMMANDS = ("learn", "look", "suggest", "tell")


def options(command: str) -> set[str]:
    return {word for parameter in load(command).params for word in parameter.opts}


def test_every_option_of_the_page_exists():
    known = set().union(*(options(command) for command in COMMANDS)) | {"--maximize"}
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE):
        assert option in known, option


def test_every_command_of_the_page_has_its_options():
    for command, rest in re.findall(r"`metakel (\w+)([^`]*)`", PAGE):
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", rest):
            assert option in options(command), f"metakel {command} {option}"


def test_every_reader_of_the_page_exists():
    for name in re.findall(r"History\.(\w+)\(", PAGE):
        assert callable(getattr(History, name))
