"""``metakel learn``: a prior from past runs; with ``--update`` again, from what there is now.

A prior's file keeps the options with which it was learned. So an update is the command of the first
time once more, and every task counts once, however often a prior is updated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from metakel._files import writing
from metakel.cli.console import Json, at_terminal, emit, note, refuse_overwriting, say
from metakel.cli.history import HistoryOptions, TaskColumn, with_journals
from metakel.cli.outputs import Sheet, read_named_numbers
from metakel.cli.show import described
from metakel.data import History
from metakel.errors import InputError
from metakel.priors import Prior, learn_outputs, learn_prior

HERE_AND_NOW = ("update", "out", "workers", "json")  # said anew every time
PATHS = ("history", "journals", "space")


def learn(
    context: typer.Context,
    history: Annotated[
        list[str] | None,
        typer.Argument(
            help="Past runs: .csv(.gz), .xlsx, .parquet, also several files with different "
            "columns; or the URL of an Optuna storage."
        ),
    ] = None,
    task: TaskColumn = "",
    output: Annotated[str, typer.Option(help="Column with the measured value.")] = "",
    limit_outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--limit-output",
            help="Column with another measured output, or several (a,b), or the output itself, "
            "that `metakel tune --limit` will limit.",
        ),
    ] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(
            help="name=value: noise (standard deviation) of an output that will be limited. "
            "[default: what the first half of the tasks leaves unexplained]"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to save.")] = Path("prior.json"),
    minimize: Annotated[
        bool | None,
        typer.Option(
            "--minimize/--maximize",
            help="Whether smaller is better. [default: larger, asked for a loss]",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="A parameter, or several (a,b). [default: other columns]"),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="A column that is no parameter, or several (a,b).")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(help="A parameter on a log scale. [default: the data decide]"),
    ] = None,
    defaults: Annotated[
        list[str] | None,
        typer.Option("--default", help="name=value that was used where the table has none."),
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option("--category", help="A column of choices, even if it looks like numbers."),
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(help="Column that says which runs failed. [default: a status by its words]"),
    ] = None,
    noise_column: Annotated[
        str | None,
        typer.Option(help="Column with the standard deviation of each output, if it is known."),
    ] = None,
    space: Annotated[
        Path | None, typer.Option("--space", help="TOML file with the parameters.")
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Accept rows beyond the ranges of --space.")
    ] = False,
    delimiter: Annotated[
        str | None,
        typer.Option(help="Separates cells, such as ';' or tab. [default: the header decides]"),
    ] = None,
    sheet: Sheet = None,
    journals: Annotated[
        list[Path] | None,
        typer.Option(help="Journal of a finished run, or a folder of them: each is one task more."),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Learn again as --out was learned, from the table and journals of now."
        ),
    ] = False,
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Limits of the output, such as 0 1. [default: 0 1 for an auc and alike]"),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(help="Processes that replay past tasks for the certificate; -1: all cores."),
    ] = 1,
    json: Json = False,
) -> None:
    """Learn a prior for the next task from a table of past runs.

    With --journals the runs that metakel itself has tuned count too. Keep them in one folder, and
    after each task say `metakel learn --update`: the prior is then learned again, in the same way,
    from all tasks so far.

    With --json: the keys of `metakel show --json`, and prior, the path of the file.
    """
    if update:
        _learn_again(context, out, journals or [])
        return
    if not history:
        raise typer.BadParameter("say which files hold past runs, or --update")
    limited = [name.strip() for text in limit_outputs or () for name in text.split(",")]
    runs = HistoryOptions(
        history, task, output, limited, minimize, inputs, exclude or (), log, defaults or (),
        categories or (), status, noise_column, space, extrapolate, delimiter, sheet,
    )  # fmt: skip
    runs.check()
    if noise and not limit_outputs:
        raise typer.BadParameter("--noise without --limit-output: only limits need it")
    refuse_overwriting(out, *history, space)
    past = runs.read()
    answered: dict[str, Any] = {}
    taken = [] if json else _ask_about(past)
    if taken and past.report is not None:
        answered["inputs"] = [*past.report.inputs, *taken]
        past = replace(runs, inputs=answered["inputs"]).read()
    table = past
    if journals:
        past, added = with_journals(past, journals)
        note(added)
    prior = replace(_learned(past, bounds, workers), command=_learned_by(context, out, **answered))
    if limited:
        more = {name: runs.read_other(name, past.space) for name in runs.others}
        # Runs that an optimizer chose cannot vouch for the first configurations of the next task.
        known = learn_outputs({output: table, **more}, read_named_numbers(noise, "--noise"))
        prior = replace(prior, past=known)
    with writing(out):
        prior.save(out)
    if json:
        emit({"prior": str(out), **described(prior)})
        return
    say(str(past.report).partition("\n")[0])  # its notes are the prior's as well
    for part in ("parameters", prior.space, prior, prior.past):
        if part is not None:
            say(str(part))
    note(f"saved {out}; next: metakel suggest {out}, or metakel report {out}")


def _learned(past: History, bounds: tuple[float, float] | None, workers: int) -> Prior:
    """With a bar while past tasks are replayed, where a person looks."""
    if not sys.stderr.isatty():
        return learn_prior(past, outputs=bounds, workers=workers)
    with typer.progressbar(length=1, label="replaying past tasks", file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        return learn_prior(past, outputs=bounds, progress=progress, workers=workers)


def _ask_about(past: History) -> list[str]:
    """Columns that are parameters after all, by the person at the terminal, if there is one."""
    if past.report is None or not at_terminal():
        return []
    return [
        name
        for name, why in past.report.doubtful.items()
        if typer.confirm(f"{name} {why}. Is it a parameter?", err=True)
    ]


# Learn again


def _learned_by(context: typer.Context, out: Path, **known: Any) -> dict[str, Any]:
    """The options that were typed, for the prior's file, and those that a person has answered.

    Paths are relative to the file, so that a folder can be moved as a whole.
    """
    typed = {n: context.params[n] for n in _typed(context) if n not in HERE_AND_NOW} | known
    return {
        name: _mapped(value, lambda path: _relative(path, out)) if name in PATHS else value
        for name, value in typed.items()
    }


def _learn_again(context: typer.Context, out: Path, journals: list[Path]) -> None:
    """The command that has learned the prior at ``out`` once more, with more journals."""
    others = [n for n in _typed(context) if n not in (*HERE_AND_NOW, "journals")]
    if others:
        options = {p.name: p.opts[0] for p in context.command.params if p.name}
        raise typer.BadParameter(
            f"{', '.join(options[name] for name in others)} beside --update, which takes the "
            "options of the first time; to change them, repeat the whole command without --update"
        )
    if not out.exists():
        raise InputError(f"there is no prior {out} to update; learn it without --update first")
    before = Prior.load(out)
    if before.command is None:
        raise InputError(
            f"{out} does not say how it was learned: it was made in Python or by an earlier "
            "version; repeat the whole command once, without --update"
        )
    given = {
        name: _mapped(value, lambda path: _from_here(path, out)) if name in PATHS else value
        for name, value in before.command.items()
    }
    known = {os.path.realpath(path) for path in given.get("journals", ())}
    more = [str(path) for path in journals if os.path.realpath(path) not in known]
    if more:
        given["journals"] = [*given.get("journals", ()), *more]
    now = {name: context.params[name] for name in _typed(context) if name in HERE_AND_NOW[1:]}
    words = _words(context, given | now)
    context.command.main(words, prog_name=context.command_path, standalone_mode=False)
    note(_what_is_new(before, Prior.load(out)))


def _what_is_new(before: Prior, after: Prior) -> str:
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
