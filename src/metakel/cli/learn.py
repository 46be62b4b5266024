"""``metakel learn`` and ``metakel show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metakel._files import writing
from metakel.cli.advice import advice_as_options, as_options
from metakel.cli.console import emit, note, say
from metakel.cli.exit_codes import refuse_overwriting
from metakel.cli.histories import is_storage, read_history
from metakel.priors import Prior, learn_prior

HistoryPath = Annotated[
    str, typer.Argument(help="Past runs: .csv, .csv.gz or .parquet, or the URL of an Optuna study.")
]
Task = Annotated[str, typer.Option(help="Column that names the past task.")]
Output = Annotated[str, typer.Option(help="Column that holds what was measured.")]
Minimize = Annotated[
    bool | None,
    typer.Option("--minimize/--maximize", help="Whether smaller is better; by default larger is."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="A parameter, or several (a,b); by default all other columns."),
]
Log = Annotated[
    list[str] | None, typer.Option(help="A parameter on a log scale; by default the data decide.")
]
Defaults = Annotated[
    list[str] | None,
    typer.Option("--default", help="name=value that tasks used where they do not say."),
]
Categories = Annotated[
    list[str] | None,
    typer.Option("--category", help="A column of choices, even if it looks like numbers."),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="What separates cells, such as ';' or tab; by default the header decides."),
]
Outside = Annotated[
    bool, typer.Option("--extrapolate", help="Take rows beyond the ranges of --space as well.")
]
SpacePath = Annotated[Path | None, typer.Option("--space", help="TOML file with the parameters.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
PriorPath = Annotated[Path, typer.Argument(help="What `metakel learn` wrote.")]


def learn(
    history: HistoryPath,
    task: Task = "",
    output: Output = "",
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to save.")] = Path("prior.json"),
    minimize: Minimize = None,
    inputs: Inputs = None,
    log: Log = None,
    defaults: Defaults = None,
    categories: Categories = None,
    space: SpacePath = None,
    extrapolate: Outside = False,
    delimiter: Delimiter = None,
    json: Json = False,
) -> None:
    """Learn from a table of past runs what the next task will be like."""
    if is_storage(history):
        said = {"--task": task, "--output": output, "--log": log, "--space": space}
        said |= {"--category": categories, "--delimiter": delimiter}
        direction = minimize is not None and ("--minimize" if minimize else "--maximize")
        _refuse_options(history, [*(name for name, given in said.items() if given), direction])
    if space is not None and log:
        raise typer.BadParameter(f"--log beside --space: {space} says which scales are log scales")
    if space is not None and categories:
        raise typer.BadParameter(f"--category beside --space: {space} says what columns hold")
    refuse_overwriting(out, history, space)
    if extrapolate and space is None:
        raise typer.BadParameter("--extrapolate without --space: there are no ranges to go beyond")
    with advice_as_options():
        past = read_history(
            history, task, output, minimize=bool(minimize), inputs=inputs, log=log,
            defaults=defaults, categories=categories, space=space, extrapolate=extrapolate,
            delimiter=delimiter,
        )  # fmt: skip
    prior = learn_prior(past)
    with writing(out):
        prior.save(out)
    if json:
        emit({"prior": str(out), **described(prior)})
        return
    say(str(past.report).partition("\n")[0])  # its notes are the prior's as well
    say("parameters")
    say(str(prior.space))
    say(as_options(str(prior)))
    note(f"saved {out}; next: metakel suggest {out}, or metakel report {out}")


def show(prior: PriorPath, json: Json = False) -> None:
    """Say what was learned, and how far it can be trusted."""
    known = Prior.load(prior)
    if json:
        emit(described(known))
        return
    say(as_options(str(known)))
    say("parameters")
    say(str(known.space))
    if known.task_gp is not None:
        say("shares of variance")
        say(str(known.explain()))


def _refuse_options(source: str, given: list[str | bool]) -> None:
    unused = ", ".join(name for name in given if isinstance(name, str))
    if unused:
        raise typer.BadParameter(f"{unused} beside {source}: the studies themselves say this")


def described(prior: Prior) -> dict[str, Any]:
    """A prior for machines."""
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
        "common": None if explained is None else explained.common,
        "differences": None if explained is None else explained.differences,
    }
