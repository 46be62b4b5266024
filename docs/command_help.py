"""The page of the command line, from the commands that are typed."""

from __future__ import annotations

import re
from typing import Any

from metakel.cli.console import EXIT_CODES, SUMMARIES, load


def commands_as_markdown() -> str:
    """Every command with its help, arguments and options."""
    documented = [name for name in SUMMARIES if name != "paper"]
    parts = [_command(name, load(name)) for name in documented]
    paper = f"## metakel paper\n\n{SUMMARIES['paper']} `metakel paper list` names them."
    return "\n\n".join([*parts, paper, f"## Exit codes\n\n{EXIT_CODES.partition(': ')[2]}"])


def _command(name: str, command: Any) -> str:
    usage = " ".join(["[OPTIONS]", *filter(None, map(_usage, command.params))])
    head = f"## metakel {name}\n\n{command.help}\n\n```text\nmetakel {name} {usage}\n```"
    rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
    return "\n".join([head, "", "| name | what it is | default |", "|---|---|---|", *rows])


def _usage(parameter: Any) -> str:
    if parameter.param_type_name != "argument":
        return ""
    word = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return word if parameter.required else f"[{word}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{option}`" for option in parameter.opts)
    default = "" if parameter.default in (None, False, "") else f"`{parameter.default}`{{ .whole }}"
    text = re.sub(r"\s*\[default: [^]]*\]", "", parameter.help or "").replace("|", "\\|")
    return f"| {names} | {text} | {default} |"
