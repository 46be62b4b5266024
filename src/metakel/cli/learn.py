"""``metakel learn``: a prior from a table or an Optuna storage of past runs."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from metakel._files import writing
from metakel.cli.console import Json, at_terminal, emit, note, refuse_overwriting, say
from metakel.cli.fill_in import is_parquet, is_workbook, table_columns
from metakel.cli.outputs import read_named_numbers
from metakel.cli.show import described
from metakel.cli.suggest import Sheet
from metakel.data import History, Task
from metakel.errors import InputError, MetaKelError
from metakel.io import Source, read_csv, read_excel, read_parquet
from metakel.priors import Prior, learn_outputs, learn_prior
from metakel.space import Space
from metakel.tuner import JournalReader

ENDINGS = (".jsonl", ".journal")


def with_journals(past: History, paths: Sequence[Path]) -> tuple[History, str]:
    """The history with one task more for every journal that has values, and what was added."""
    files = [file for path in paths for file in _files(path)]
    found = [(file, _task(file, past)) for file in files]
    new = tuple(task for _, task in found if task is not None)
    known = {task.name for task in past}
    for task in new:
        if task.name in known:
            raise InputError(
                f"there are two tasks named {task.name!r}; expected another name in the table, or "
                "another name of the journal"
            )
        known.add(task.name)
    runs = sum(task.n for task in new)
    empty = [file.name for file, task in found if task is None]
    said = f"{len(new)} tasks with {runs} runs added from journals"
    return (
        replace(past, tasks=(*past.tasks, *new)),
        f"{said}; without a value: {', '.join(empty)}" if empty else said,
    )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in ENDINGS)
    if not files:
        raise InputError(f"{path} holds no journal; expected files *{', *'.join(ENDINGS)}")
    return files


def _task(file: Path, past: History) -> Task | None:
    """The finished runs of a journal in the units of a history; None where there are none."""
    journal = JournalReader(file)
    assert past.space is not None  # a table has named parameters
    assert past.report is not None
    output, minimize = str(journal.header["output"]), bool(journal.header["minimize"])
    if (output, minimize) != (past.report.output, past.report.minimize):
        raise InputError(
            f"{file} {_aim(output, minimize)}, but the table "
            f"{_aim(past.report.output, past.report.minimize)}"
        )
    if set(journal.space.names) != set(past.space.names):
        raise InputError(
            f"{file} has the parameters {', '.join(journal.space.names)}; expected those of the "
            f"table, {', '.join(past.space.names)}"
        )
    done = [trial for trial in journal.trials.complete if trial.value is not None]
    if not done:
        return None
    X = past.space.encode([trial.configuration for trial in done], extrapolate=True)
    y = np.array([trial.value for trial in done], dtype=np.float64)
    name = str(journal.header.get("task") or file.stem)
    return Task(X, -y if minimize else y, name=name)


def _aim(output: str, minimize: bool) -> str:
    return f"{'minimises' if minimize else 'maximises'} {output!r}"


TaskColumn = Annotated[str, typer.Option(help="Column that names the past task.")]


def learn(
    history: Annotated[
        list[str],
        typer.Argument(
            help="Past runs: .csv(.gz), .xlsx, .parquet, also several files with different "
            "columns; or the URL of an Optuna storage."
        ),
    ],
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
        list[str] | None,
        typer.Option(help="A column that is no parameter, or several (a,b)."),
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

    With --journals the runs that metakel itself has tuned count too. Keep them in one folder and
    repeat the command after each task: every prior is then learned from all tasks so far.

    With --json: the keys of `metakel show --json`, and prior, the path of the file.
    """
    storage = next((source for source in history if is_storage(source)), "")
    if storage and len(history) > 1:
        raise typer.BadParameter(f"{storage} beside other files; expected files, or one storage")
    if storage:
        said = {
            "--task": task,
            "--output": output,
            "--limit-output": limit_outputs,
            "--log": log,
            "--space": space,
            "--category": categories,
            "--status": status,
            "--noise-column": noise_column,
            "--delimiter": delimiter,
            "--sheet": sheet,
            "--minimize": minimize is True,
            "--maximize": minimize is False,
        }
        given = ", ".join(name for name, value in said.items() if value)
        if given:
            raise typer.BadParameter(f"{given} beside {storage}: the studies themselves say this")
    if space is not None and log:
        raise typer.BadParameter(f"--log beside --space: {space} says which scales are log scales")
    if space is not None and categories:
        raise typer.BadParameter(f"--category beside --space: {space} says what columns hold")
    if extrapolate and space is None:
        raise typer.BadParameter("--extrapolate without --space: there are no ranges to go beyond")
    if noise and not limit_outputs:
        raise typer.BadParameter("--noise without --limit-output: only limits need it")
    refuse_overwriting(out, *history, space)
    limited = [name.strip() for text in limit_outputs or () for name in text.split(",")]
    others = [name for name in limited if name != output]

    def read(inputs: list[str] | None) -> History:
        return read_history(
            history, task, output, minimize=minimize, inputs=inputs,
            exclude=[*(exclude or ()), *others], log=log,
            defaults=defaults, categories=categories, status=status,
            noise=noise_column, extrapolate=extrapolate,
            space=None if space is None else _read_space(space), delimiter=delimiter,
            sheet=sheet,
        )  # fmt: skip

    past = read(inputs)
    taken = [] if json else _ask_about(past)
    if taken and past.report is not None:
        past = read([*past.report.inputs, *taken])
    if journals:
        past, added = with_journals(past, journals)
        note(added)
    prior = _learned(past, bounds, workers)
    if limited:
        more = {
            name: read_history(
                history, task, name, minimize=False, defaults=defaults, space=past.space,
                extrapolate=extrapolate, delimiter=delimiter, sheet=sheet,
            )
            for name in others
        }  # fmt: skip
        known = learn_outputs({output: past, **more}, read_named_numbers(noise, "--noise"))
        prior = replace(prior, past=known)
    with writing(out):
        prior.save(out)
    if json:
        emit({"prior": str(out), **described(prior)})
        return
    say(str(past.report).partition("\n")[0])  # its notes are the prior's as well
    say("parameters")
    say(str(prior.space))
    say(str(prior))
    if prior.past is not None:
        say(str(prior.past))
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


def read_history(
    source: Sequence[str],
    task: str,
    output: str,
    *,
    minimize: bool | None,
    inputs: list[str] | None = None,
    exclude: list[str] | None = None,
    log: list[str] | None = None,
    defaults: list[str] | None = None,
    categories: list[str] | None = None,
    status: str | None = None,
    noise: str | None = None,
    space: Space | None = None,
    extrapolate: bool = False,
    delimiter: str | None = None,
    sheet: str | None = None,
) -> History:
    """The history in files or in an Optuna storage."""
    options: dict[str, Any] = {
        "inputs": inputs,
        "exclude": exclude or (),
        "log": log,
        "categories": categories or (),
        "status": status,
        "noise": noise,
        "extrapolate": extrapolate,
        "defaults": dict(_default(text) for text in defaults or ()),
    }
    if space is not None:
        options["space"] = space
    if is_storage(source[0]):
        return _read_storage(source[0], {k: v for k, v in options.items() if v})
    return _read_files(source, task, output, delimiter, sheet, {"minimize": minimize, **options})


def _ask_about(past: History) -> list[str]:
    """Columns that are parameters after all, by the person at the terminal, if there is one."""
    if past.report is None or not at_terminal():
        return []
    return [
        name
        for name, why in past.report.doubtful.items()
        if typer.confirm(f"{name} {why.rstrip(',')}. Is it a parameter?", err=True)
    ]


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


def _read_files(
    sources: Sequence[str],
    task: str,
    output: str,
    delimiter: str | None,
    sheet: str | None,
    options: dict[str, Any],
) -> History:
    several = [name for key in ("inputs", "exclude") for name in options[key] or () if "," in name]
    columns: dict[str, Any] = {}
    for source in sources if several or not (task and output) else ():
        columns |= table_columns(source, delimiter, sheet)
    if not task or not output:
        raise typer.BadParameter(_which(columns, task, output))
    if several:
        for key in ("inputs", "exclude"):
            if options[key]:
                options[key] = [name for text in options[key] for name in _names(text, columns)]
    found = [_read_file(source, task, output, delimiter, sheet) for source in sources]
    return History.from_source(found, **options)


def _read_file(
    source: str, task: str, output: str, delimiter: str | None, sheet: str | None
) -> Source:
    if is_workbook(source):
        _refuse_option("--delimiter", delimiter, source, "a workbook has none")
        return read_excel(source, task=task, output=output, sheet=sheet)
    _refuse_option("--sheet", sheet, source, "only workbooks (.xlsx) have sheets")
    if is_parquet(source):
        _refuse_option("--delimiter", delimiter, source, "Parquet has none")
        return read_parquet(source, task=task, output=output)
    return read_csv(source, task=task, output=output, delimiter=delimiter)


def _refuse_option(option: str, value: str | None, source: str, why: str) -> None:
    if value is not None:
        raise typer.BadParameter(f"{option} beside {source}: {why}")


def _names(text: str, columns: Collection[str]) -> list[str]:
    """The columns that ``a,b`` names, unless one has that very name."""
    return [text] if text in columns else [name.strip() for name in text.split(",")]


def _which(columns: Collection[str], task: str, output: str) -> str:
    options = {
        "--task COLUMN (which names the past task)": task,
        "--output COLUMN (which was measured)": output,
    }
    lacking = " and ".join(option for option, given in options.items() if not given)
    return f"say {lacking}; the columns are: {', '.join(columns)}"


def _read_space(path: Path) -> Space:
    try:
        return Space.from_toml(path)
    except InputError as error:
        raise error.at(str(path)) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {error}") from None


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
