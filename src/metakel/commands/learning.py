"""``metakel learn`` and ``metakel show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metakel.commands.exits import refuse_overwriting
from metakel.commands.screen import emit, note, say
from metakel.errors import InputError, MetaKelError, writing
from metakel.prior import Prior, learn_prior
from metakel.readers import csv_columns, parquet_columns
from metakel.space import Space
from metakel.tasks import History

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
    list[str] | None, typer.Option("--input", help="A parameter; by default all other columns.")
]
Log = Annotated[
    list[str] | None, typer.Option(help="A parameter on a log scale; by default the data decide.")
]
Defaults = Annotated[
    list[str] | None,
    typer.Option("--default", help="name=value that tasks used where they do not say."),
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
    space: SpacePath = None,
    json: Json = False,
) -> None:
    """Learn from a table of past runs what the next task will be like."""
    if is_storage(history):
        said = {"--task": task, "--output": output, "--log": log, "--space": space}
        direction = minimize is not None and ("--minimize" if minimize else "--maximize")
        _refuse_options(history, [*(name for name, given in said.items() if given), direction])
    if space is not None and log:
        raise typer.BadParameter(f"--log beside --space: {space} says which scales are log scales")
    refuse_overwriting(out, history, space)
    past = read_history(
        history, task, output, minimize=bool(minimize), inputs=inputs, log=log, defaults=defaults,
        space=space,
    )  # fmt: skip
    prior = learn_prior(past)
    with writing(out):
        prior.save(out)
    if json:
        emit({"prior": str(out), **described(prior)})
        return
    say(str(past.report).partition("\n")[0])  # its notes are the prior's as well
    say(str(prior))
    note(f"saved {out}; next: metakel suggest {out}, or metakel report {out}")


def show(prior: PriorPath, json: Json = False) -> None:
    """Say what was learned, and how far it can be trusted."""
    known = Prior.load(prior)
    if json:
        emit(described(known))
        return
    say(str(known))
    say("parameters")
    say(str(known.space))
    if known.shape is not None:
        say("shares of variance")
        say(str(known.explain()))


def read_history(
    source: str,
    task: str,
    output: str,
    *,
    minimize: bool,
    inputs: list[str] | None = None,
    log: list[str] | None = None,
    defaults: list[str] | None = None,
    space: Path | Space | None = None,
) -> History:
    """The history in a file or an Optuna storage."""
    options: dict[str, Any] = {"inputs": inputs, "log": log}
    options["defaults"] = dict(_default(text) for text in defaults or ())
    if space is not None:
        options["space"] = space if isinstance(space, Space) else _read_space(space)
    if is_storage(source):
        return _read_storage(source, {k: v for k, v in options.items() if v})
    read = History.from_parquet if source.endswith((".parquet", ".pq")) else History.from_csv
    if not task or not output:
        columns = (parquet_columns if read == History.from_parquet else csv_columns)(source)
        raise typer.BadParameter(_which(columns, task, output))
    return read(source, task=task, output=output, minimize=minimize, **options)


def is_storage(source: str) -> bool:
    """Whether it is the URL of a storage, not a file."""
    return "://" in source


def _read_storage(url: str, options: dict[str, Any]) -> History:
    try:
        return History.from_optuna(url, **options)
    except (MetaKelError, ImportError):
        raise
    except Exception as error:  # of SQLAlchemy, a driver, or Optuna: whatever they raise
        reason = str(error).partition("\n")[0]
        raise InputError(f"{url} cannot be read as a storage of Optuna: {reason}") from error


def _read_space(path: Path) -> Space:
    try:
        return Space.from_toml(path)
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None


def _refuse_options(source: str, given: list[str | bool]) -> None:
    unused = ", ".join(name for name in given if isinstance(name, str))
    if unused:
        raise typer.BadParameter(f"{unused} beside {source}: the studies themselves say this")


def described(prior: Prior) -> dict[str, Any]:
    """A prior for machines."""
    held = prior.heldout
    explained = None if prior.shape is None else prior.explain()
    return {
        "output": prior.facts.output,
        "minimize": prior.facts.minimize,
        "tasks": list(prior.facts.tasks),
        "runs": prior.facts.runs,
        "used": prior.used,
        "held_out_gain": held.gain,
        "held_out_tasks": int(held.tasks.size),
        "better_than_cold": int((held.gains > held.cold).sum()),
        "outliers": list(prior.outliers),
        "notes": list(prior.facts.notes),
        "parameters": [p.to_dict() for p in prior.space.parameters],
        "common": None if explained is None else explained.common,
        "differences": None if explained is None else explained.differences,
    }


def _which(columns: dict[str, Any], task: str, output: str) -> str:
    lacking = " and ".join(
        f"{option} COLUMN ({meaning})"
        for option, meaning, given in (
            ("--task", "which names the past task", task),
            ("--output", "which was measured", output),
        )
        if not given
    )
    return f"say {lacking}; the columns are: {', '.join(columns)}"


def _default(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--default {text!r}; expected name=value")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value
