"""``metakel learn``: a prior from past runs; ``metakel look``: what their table is taken for."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Annotated, Any

import typer

from metakel._files import writing
from metakel.cli.console import Json, at_terminal, emit, note, refuse_overwriting, say
from metakel.cli.history import PastRuns, read_default, with_journals
from metakel.cli.options import (
    AlsoRecorded,
    Delimiter,
    Minimize,
    Noise,
    NoParameter,
    OutputColumn,
    Rename,
    Sheets,
    TaskColumn,
    read_named_numbers,
)
from metakel.curves import CurveModel
from metakel.data import History
from metakel.errors import InputError, typed_list
from metakel.io import Schema
from metakel.priors import Prior, learn_outputs, learn_prior
from metakel.priors.summary import trust
from metakel.space.configurations import is_numeric

SHOWN, NOTES = 8, 3  # parameters and notes in a short summary
QUESTION = re.compile(r"\?$|[:;] if ")  # notes that somebody has to answer
MOST = 9  # of a log score that is shown as a factor
WIDTH = 80  # of the choices of one parameter in it


def look(
    history: Annotated[list[str], typer.Argument(help="Past runs: .csv(.gz), .xlsx, .parquet.")],
    task: TaskColumn = "",
    output: OutputColumn = "",
    minimize: Minimize = None,
    exclude: NoParameter = None,
    delimiter: Delimiter = None,
    sheet: Sheets = None,
    rename: Rename = None,
    json: Json = False,
) -> None:
    """Look at a table, and print the options of `learn` that fit it.

    The parameters that are found in it are listed first.

    With --json: command, parameters (name and description of each), notes and doubtful, the
    columns that may be parameters after all, each with what speaks against it.
    """
    options = {"minimize": minimize, "exclude": exclude or ()}
    runs = PastRuns(
        history, task, output, delimiter=delimiter, sheets=sheet or (), rename=rename or (),
        options=options,
    )  # fmt: skip
    schema = runs.propose()
    assert schema.space is not None
    command = shlex.join(["metakel", "learn", *history, *_as_options(schema, runs)])
    if json:
        found = {p.name: p.describe() for p in schema.space.parameters}
        more = {"notes": list(schema.notes), "doubtful": dict(schema.doubtful)}
        emit({"command": command, "parameters": found, **more})
        return
    say("parameters")
    say(str(schema.space))
    say("the same, said by options:")
    say(f"  {command}")
    for text in schema.notes:
        note(f"note: {text}")


def _as_options(schema: Schema, typed: PastRuns) -> list[str]:
    """The schema in the words of `metakel learn`, beside how its files are read."""
    assert schema.space is not None
    words = ["--task", schema.roles.task, "--output", schema.roles.output]
    words.append("--minimize" if schema.minimize else "--maximize")
    names = tuple(schema.inputs or ())
    words += ["--input", ",".join(names)] if typed_list(names) else []
    for p in schema.space.parameters:
        if getattr(p, "log", False):
            words += ["--log", p.name]
        if len(p.choices) > 1 and all(map(is_numeric, p.choices)):
            words += ["--category", p.name]
    words += [word for total in schema.space.sums for word in ("--sum", str(total))]
    words += [word for name in typed.sheets for word in ("--sheet", name)]
    words += [word for text in typed.rename for word in ("--rename", text)]
    said = {"--status": schema.roles.status, "--delimiter": typed.delimiter}
    return [*words, *(word for name, v in said.items() if v is not None for word in (name, v))]


def learn(
    history: Annotated[
        list[str] | None,
        typer.Argument(
            help="Past runs: .csv(.gz), .xlsx, .parquet, also several files with different "
            "columns; or the URL of an Optuna storage."
        ),
    ] = None,
    task: TaskColumn = "",
    output: OutputColumn = "",
    also: AlsoRecorded = None,
    noise: Noise = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to save.")] = Path("prior.json"),
    minimize: Minimize = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="A parameter, or several (a,b). [default: other columns]"),
    ] = None,
    exclude: NoParameter = None,
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
    step: Annotated[
        str | None,
        typer.Option(help="Column of steps, such as epochs: a row is one step of a run."),
    ] = None,
    space: Annotated[
        Path | None, typer.Option("--space", help="TOML file with the parameters.")
    ] = None,
    sums: Annotated[
        list[str] | None,
        typer.Option(
            "--sum",
            help="What every suggestion keeps, as in 'A + B = 100' or 'A + 2 B <= 50'; 'none' for "
            "nothing. [default: equations that hold in all rows]",
        ),
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Accept rows beyond the ranges of --space.")
    ] = False,
    delimiter: Delimiter = None,
    sheet: Sheets = None,
    rename: Rename = None,
    journals: Annotated[
        list[Path] | None,
        typer.Option(help="Journal of a finished run, or a folder of them: each is one task more."),
    ] = None,
    output_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Range of the output, such as 0 1. [default: 0 1 for an auc and alike]"),
    ] = None,
    log_output: Annotated[
        bool | None,
        typer.Option(
            "--log-output/--no-log-output",
            help="Learn logarithms of the output. [default: of a loss that spans a factor of 3]",
        ),
    ] = None,
    library: Annotated[
        str | None,
        typer.Option(help="Model of the library whose prior joins, such as lightgbm[:auc]."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(help="Processes that replay past tasks for the certificate; -1: all cores."),
    ] = 1,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print all that was found, as `show -v` does.")
    ] = False,
    json: Json = False,
) -> None:
    """Learn a prior for the next task from a table of past runs.

    With --journals the runs that metakel itself has tuned count too. Keep them in one folder, and
    repeat the command after each task: the prior is then learned again from all tasks so far.

    With --json: the keys of `metakel show --json`, and prior, the path of the file.
    """
    if not history:
        raise typer.BadParameter("say which files hold past runs")
    recorded = [name.strip() for text in also or () for name in text.split(",")]
    options = {
        "minimize": minimize,
        "inputs": inputs,
        "exclude": exclude or (),
        "log": log,
        "defaults": dict(map(read_default, defaults or ())),
        "categories": categories or (),
        "status": status,
        "noise": noise_column,
        "space": space,
        "sums": [] if sums == ["none"] else sums or None,
        "extrapolate": extrapolate,
    }
    runs = PastRuns(
        history, task, output, recorded, step, delimiter, sheet or (), rename or (), options
    )
    if noise and not also:
        raise typer.BadParameter("--noise without --limit-output: nothing else needs it")
    refuse_overwriting(out, *history, space)
    past = runs.read()
    taken = [] if json else _ask_about(past)
    if taken and past.report is not None:
        named = [*past.report.inputs, *taken]
        past = replace(runs, options={**options, "inputs": named}).read()
    table = past
    if journals:
        past, added = with_journals(past, journals)
        note(added)
    prior = _learned(
        past, output_range=output_range, log_output=log_output, workers=workers, library=library
    )
    if recorded:
        more = {name: runs.read_other(name, past.space) for name in runs.others}
        # Runs that an optimizer chose cannot vouch for the first configurations of the next task.
        known = learn_outputs({output: table, **more}, read_named_numbers(noise, "--noise"))
        prior = replace(prior, past=known)
    with writing(out):
        prior.save(out)
    curves = out.with_suffix(".curves.json") if step and _saved_curves(past, out) else None
    if json:
        emit({"prior": str(out), **described(prior)})
        return
    say(str(past.report).partition("\n")[0])  # its notes are the prior's as well
    if verbose:
        for part in ("parameters", prior.space, prior, prior.past):
            if part is not None:
                say(str(part))
    else:
        for line in in_short(prior):
            say(line)
        if prior.past is not None:
            say(str(prior.past))
    if curves:
        note(f"saved {curves}, for metakel tune {out} --step-pattern ... --curves {curves}")
    note(f"saved {out}; next: metakel suggest {out} --table new.csv, or metakel report {out}")


def _saved_curves(past: History, out: Path) -> bool:
    """Whether how runs go on could be learned, and was written beside the prior."""
    assert past.report is not None
    try:
        model = CurveModel.learn(list(past.curves.values()), minimize=past.report.minimize)
    except InputError as error:
        note(f"how runs go on is not learned: {error}")
        return False
    with writing(out.with_suffix(".curves.json")):
        model.save(out.with_suffix(".curves.json"))
    return True


def _learned(past: History, **options: Any) -> Prior:
    """With a bar while past tasks are replayed, where a person looks."""
    if not sys.stderr.isatty():
        return learn_prior(past, **options)
    with typer.progressbar(length=1, label="replaying past tasks", file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        return learn_prior(past, progress=progress, **options)


def _ask_about(past: History) -> list[str]:
    """Columns that are parameters after all, by the person at the terminal, if there is one."""
    if past.report is None or not at_terminal():
        return []
    return [
        name
        for name, why in past.report.doubtful.items()
        if typer.confirm(f"{name} {why}. Is it a parameter?", err=True)
    ]


# What was learned, in words


def in_short(prior: Prior) -> list[str]:
    """What a practitioner acts on, in at most nine lines; the rest is in `show -v`."""
    space = prior.space
    when = {c.name: f", only {c.describe()}" for c in space.conditions}
    shown = [f"{n} ({_briefly(space[n].describe())}{when.get(n, '')})" for n in space.free[:SHOWN]]
    more = f" and {len(space.free) - SHOWN} more" if len(space.free) > SHOWN else ""
    lines = [f"parameters: {', '.join(shown)}{more}"]
    lines += [f"always {total}" for total in space.sums[:2]]
    _, better, used = ("", "", *trust(prior))[-3:]
    # On the task in the middle of those that were held out.
    times = f"{exp(min(prior.heldout.log_score, MOST)):.2g}"
    worth = f"Held-out values are typically {times} times as likely as without what was learned."
    lines += [text for text in (used, better and f"{better} {worth}") if text]
    if prior.task_gp is not None:
        lines.append(f"tried first: {space.show(prior.optimizer().ask())}")
    notes = sorted(
        prior.info.notes,
        key=lambda text: (not QUESTION.search(text), not text.startswith("left out")),
    )
    lines += [f"note: {text}" for text in notes[:NOTES]]
    hidden = len(notes) - NOTES
    if hidden > 0:
        lines.append(f"{hidden} more note{'s' * (hidden > 1)} and all numbers: metakel show -v")
    return lines


def _briefly(choices: str) -> str:
    """The first of many choices."""
    return choices if len(choices) <= WIDTH else choices[:WIDTH].rpartition(", ")[0] + ", ..."


def described(prior: Prior) -> dict[str, Any]:
    """A prior as JSON."""
    held = prior.heldout
    explained = None if prior.task_gp is None else prior.explain()
    return {
        "output": prior.info.output,
        "minimize": prior.info.minimize,
        "tasks": list(prior.info.tasks),
        "runs": prior.info.runs,
        "used": prior.helps,
        "held_out_gain": held.log_score,
        "held_out_tasks": int(held.tasks.size),
        "better_than_cold": held.better_than_cold,
        "outliers": list(prior.outliers),
        "notes": list(prior.info.notes),
        "parameters": [p.to_dict() for p in prior.space.parameters],
        "sums": list(map(str, prior.space.sums)),
        "common": None if explained is None else explained.common,
        "differences": None if explained is None else explained.differences,
    }
