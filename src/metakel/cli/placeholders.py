"""``{name}`` in a command, replaced by values; no shell ever sees them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from metakel.errors import InputError


def check_command(command: Sequence[str], names: Sequence[str]) -> list[str]:
    """Names that do not occur; refuses placeholders that no parameter fills."""
    if not command:
        raise InputError("no command to tune; write it after --, with {name} for each parameter")
    known = (*names, "number")
    several = len(_pattern(known).sub("", command[0]).split()) > 1
    if several and len(command) == 1 and shutil.which(command[0]) is None:
        raise InputError(
            f"there is no program {command[0]!r}: quotes made one word of it. Write the words of "
            f"the command without quotes around them: -- {command[0]}"
        )
    if _pattern(known).search(command[0]):
        raise InputError(f"the program {command[0]!r} must not depend on a parameter")
    for word in command:
        refuse_unknown(word, names, "the command")
    text = " ".join(command)
    return [name for name in names if f"{{{name}}}" not in text]


def refuse_unknown(word: str, names: Sequence[str], where: str) -> None:
    """Placeholders that nothing fills."""
    known = (*names, "number")
    for unknown in re.findall(r"\{([A-Za-z_][\w.-]*)\}", _pattern(known).sub("", word)):
        shown = ", ".join(f"{{{name}}}" for name in known)
        raise InputError(f"{{{unknown}}} in {where} is not a parameter; known are {shown}")


def fill(words: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Words with every ``{name}`` replaced, once: a value is never looked at again."""
    pattern = _pattern(tuple(values))
    return [pattern.sub(lambda found: _text(values[found[1]]), word) for word in words]


def _pattern(names: Sequence[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(r"\{(" + "|".join(map(re.escape, longest_first)) + r")\}")


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
