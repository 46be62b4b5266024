"""``metakel learn --update``: learn again, from the tables and journals that there are now.

A prior's file keeps the options with which it was learned. So an update is the command of the first
time once more, and every task counts once, however often a prior is updated.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from metakel.errors import InputError
from metakel.priors import Prior

HERE_AND_NOW = ("update", "out", "workers", "json")  # said anew every time
PATHS = ("history", "journals", "space")


def learned_by(context: typer.Context, out: Path, **known: Any) -> dict[str, Any]:
    """The options that were typed, for the prior's file, and those that a person has answered.

    Paths are relative to the file, so that a folder can be moved as a whole.
    """
    typed = {n: context.params[n] for n in _typed(context) if n not in HERE_AND_NOW} | known
    return {
        name: _mapped(value, lambda path: _relative(path, out)) if name in PATHS else value
        for name, value in typed.items()
    }


def words_again(context: typer.Context, out: Path, journals: list[Path]) -> list[str]:
    """The words of the command that has learned the prior at ``out``; with more journals."""
    others = [n for n in _typed(context) if n not in (*HERE_AND_NOW, "journals")]
    if others:
        options = {p.name: p.opts[0] for p in context.command.params if p.name}
        raise typer.BadParameter(
            f"{', '.join(options[name] for name in others)} beside --update, which takes the "
            "options of the first time; to change them, repeat the whole command without --update"
        )
    if not out.exists():
        raise InputError(f"there is no prior {out} to update; learn it without --update first")
    command = Prior.load(out).command
    if command is None:
        raise InputError(
            f"{out} does not say how it was learned: it was made in Python or by an earlier "
            "version; repeat the whole command once, without --update"
        )
    given = {
        name: _mapped(value, lambda path: _from_here(path, out)) if name in PATHS else value
        for name, value in command.items()
    }
    known = {os.path.realpath(path) for path in given.get("journals", ())}
    more = [str(path) for path in journals if os.path.realpath(path) not in known]
    if more:
        given["journals"] = [*given.get("journals", ()), *more]
    now = {name: context.params[name] for name in _typed(context) if name in HERE_AND_NOW[1:]}
    return _words(context, given | now)


def what_is_new(before: Prior, after: Prior) -> str:
    """Tasks and runs that an update has added."""
    new = [name for name in after.info.tasks if name not in before.info.tasks]
    gone = [name for name in before.info.tasks if name not in after.info.tasks]
    runs = after.info.runs - before.info.runs
    parts = [f"new: {', '.join(new)}"] if new else []
    parts += [f"gone: {', '.join(gone)}"] if gone else []
    if not parts and not runs:
        return "nothing new: the same tasks and runs as before"
    return f"{'; '.join([*parts, f'{runs:+d} runs'])}; {len(after.info.tasks)} tasks in all"


def _typed(context: typer.Context) -> list[str]:
    """Names of the options that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [n for n, source in sources.items() if source and source.name == "COMMANDLINE"]


def _words(context: typer.Context, given: Mapping[str, Any]) -> list[str]:
    options: list[str] = []
    arguments: list[str] = []
    for parameter in context.command.params:
        value = given.get(parameter.name or "")
        if value is None:
            continue
        if parameter.param_type_name == "argument":
            arguments += map(str, value)
        elif isinstance(value, bool):
            options.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            several = isinstance(value, list) and parameter.nargs == 1
            for one in value if several else [value]:
                each = one if isinstance(one, list | tuple) else [one]
                options += [parameter.opts[0], *map(str, each)]
    return [*options, "--", *arguments]


def _mapped(value: Any, change: Any) -> Any:
    return (
        [change(str(v)) for v in value] if isinstance(value, list | tuple) else change(str(value))
    )


def _relative(path: str, out: Path) -> str:
    if "://" in path:
        return path
    try:
        return Path(os.path.relpath(path, out.resolve().parent)).as_posix()
    except ValueError:  # another drive
        return os.path.abspath(path)


def _from_here(path: str, out: Path) -> str:
    return path if "://" in path else os.path.relpath(out.resolve().parent / path)
