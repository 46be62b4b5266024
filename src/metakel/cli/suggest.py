"""``metakel suggest``: the next configurations to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Annotated, Any

import typer

from metakel.cli.console import Json, emit, grid, note
from metakel.cli.history import is_workbook, table_columns
from metakel.cli.options import (
    AcceptAlarm,
    CandidatesPath,
    Delta,
    Exclude,
    Extrapolate,
    Fix,
    JournalPath,
    Observed,
    PriorPath,
    Range,
    SameTask,
    Seed,
    Sheet,
    Sums,
    TablePath,
    TaskName,
    assignments,
    read_space,
    why_stopped,
)
from metakel.cli.safe import Limits, Start, with_limits
from metakel.confidence import Alarm
from metakel.errors import Hint, InputError, first_of
from metakel.io.cleaning import normalized
from metakel.io.excel import read_sheet
from metakel.io.words import LEFT_OUT, MISSING, NOT_DONE, UNFINISHED
from metakel.library import as_prior, spelled
from metakel.optimize import Reasons, Trial
from metakel.optimize.model import NothingToAsk
from metakel.priors import Prior
from metakel.priors.summary import promise
from metakel.space import Float, Space
from metakel.space.configurations import quantity
from metakel.tuner import NextRows, Source, Store, Tuner, suggest_rows
from metakel.tuner.source import RunTask
from metakel.tuner.table import COUNTS_TWICE, columns_of, matched, task_column

# What stands in place of a result.
NO_NUMBER = MISSING | NOT_DONE | UNFINISHED | LEFT_OUT


def suggest(
    prior: PriorPath,
    journal: JournalPath = None,
    table: TablePath = None,
    sheet: Sheet = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Results in tables far beyond their range are right.")
    ] = False,
    observed: Observed = None,
    candidates: CandidatesPath = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many.")] = 1,
    fix: Fix = None,
    narrowed: Range = None,
    exclude: Exclude = None,
    sums: Sums = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--given", help="name=value that is given this time, not chosen."),
    ] = None,
    extrapolate: Extrapolate = False,
    limit: Limits = None,
    start: Start = None,
    accept_alarm: AcceptAlarm = False,
    delta: Delta = None,
    task: TaskName = "",
    same_task: SameTask = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Suggest the next configurations to try.

    With --journal they are recorded as pending.

    With --table a file that people fill in is all that has to be kept: fill in results, and call
    it again. A run that failed has the word failed, a value that was changed is what was done.

    --fix, --range, --exclude and --sum say what is possible for these suggestions. --given says
    what today is like, as the weather: suggestions are then compared with others for the same.

    Below the table it says why: what is expected against what is typical, the nearest runs of past
    tasks, and a safer choice. The range is one standard deviation, within the range of the output.

    With --json: a list with number, configuration, mean, sd, low, high and why; mean and sd are
    what the model that chose it expects to be measured.
    """
    known = prior_of(prior, journal)
    held = assignments(known.space, given) if given else None
    source = with_limits(known, limit, start)
    options: dict[str, Any] = {
        "space": read_space(known.space, narrowed, exclude, sums),
        "seed": seed, "delta": delta, "extrapolate": extrapolate,
        "candidates": read_candidates(candidates, known.space, sheet if table is None else None),
    }  # fmt: skip
    if table is not None:
        _refuse_beside_table(journal, observed, same_task, accept_alarm)
        fixed = assignments(known.space, fix or ())
        found = suggest_rows(
            source,
            table,
            count,
            sheet=sheet,
            task=task,
            given=held,
            confirmed=confirm,
            fixed=fixed,
            **options,
        )
        _show_rows(known, table, found, as_json=json, brief=count > 1)
        return
    if sheet is not None and not any(is_workbook(p) for p in (observed, candidates) if p):
        raise typer.BadParameter("--sheet without --table: there is no workbook to read")
    tuner = open_tuner(
        source, journal, fix=fix, task=task, same_task=same_task, observed=observed, sheet=sheet,
        accept_alarm=accept_alarm, confirm=confirm, adopt_after="never", **options,
    )  # fmt: skip
    try:
        asked = tuner.ask_trials(count, held)
    except (Alarm, NothingToAsk) as error:
        raise InputError(why_stopped(tuner, error)) from error
    # By the model that chose: later suggestions of the batch take the earlier ones into account.
    reasons = [tuner.explain(trial.point, held) for trial in asked]
    if json:
        emit([_as_json(trial, why) for trial, why in zip(asked, reasons, strict=True)])
        return
    _show(tuner, known, list(zip(asked, reasons, strict=True)), brief=count > 1)
    if journal is not None:
        others = tuner.source.others
        also = "".join(f" --output {name}=VALUE" for name in others)
        note(f"then: metakel tell {journal} VALUE --number {asked[0].number}{also}")


def _show(
    tuner: Tuner, known: Prior, asked: Sequence[tuple[Trial, Reasons]], *, brief: bool
) -> None:
    """The suggestions as a table, and why each is one."""
    names = known.space.names
    grid(
        ["number", *names, f"{known.info.output} expected"],
        [[str(t.number), *known.space.cells(t.point), str(why.expected)] for t, why in asked],
    )
    for trial, why in asked:
        note(f"why {trial.number}: {why.sentence if brief else why}")
    _show_run(tuner, known)
    waiting = [t.number for t in tuner.trials.pending if t.number < asked[0][0].number]
    if waiting:
        note(f"still without a result: {', '.join(map(str, waiting))}")


def _show_run(tuner: Tuner, known: Prior) -> None:
    """What is known of the task so far."""
    rounded = [
        p.name for p in known.space.parameters if isinstance(p, Float) and p.digits is not None
    ]
    if rounded:
        verb = "is" if len(rounded) == 1 else "are"
        note(f"{', '.join(rounded)} {verb} rounded to the precision of the past runs")
    if tuner.trials.observed:
        note(f"best so far {tuner.best.value:.6g}. {promise(known, tuner.certificate)}")
    if tuner.alarm is not None:
        note(f"ALARM after {tuner.alarm.time} values: {tuner.alarm.reason}")


def _refuse_beside_table(
    journal: Path | None, observed: Path | None, same_task: bool, accept_alarm: bool
) -> None:
    """The table holds all runs of the task, and nothing else is kept."""
    said = {
        "--journal": journal, "--observed": observed, "--same-task": same_task,
        "--accept-alarm": accept_alarm,
    }  # fmt: skip
    given = [option for option, value in said.items() if value]
    if given:
        raise typer.BadParameter(
            f"{given[0]} beside --table: the table is the record; write all runs into it"
        )


def _show_rows(known: Prior, table: Path, found: NextRows, *, as_json: bool, brief: bool) -> None:
    """What was added to a table."""
    for text in found.notes:
        note(text)
    if as_json:
        emit([{"place": row.place, **_as_json(row.trial, row.why)} for row in found.rows])
        return
    grid(
        ["in", *known.space.names, f"{known.info.output} expected"],
        [
            [row.place, *known.space.cells(row.trial.point), str(row.why.expected)]
            for row in found.rows
        ],
    )
    for row in found.rows:
        note(f"why {row.place}: {row.why.sentence if brief else row.why}")
    _show_run(found.tuner, known)
    if found.open:
        note(f"still without a result: {', '.join(found.open)}")
    note(
        f"added to {table}: fill in {known.info.output} (the word failed where there is none), "
        "change what was done otherwise, and call this again"
    )


def _as_json(trial: Trial, why: Reasons) -> dict[str, Any]:
    expected = why.expected
    return {
        "number": trial.number,
        "configuration": trial.point,
        "mean": expected.value,
        "sd": nan if trial.note.expected is None else trial.note.expected[1],
        "low": expected.low,
        "high": expected.high,
        "why": str(why),
    }


def prior_of(path: Path, journal: Path | None) -> Prior:
    """A prior; one of the library spells its parameters as the journal does."""
    known = as_prior(path)
    if journal is None or not journal.exists():
        return known
    begun = Store.open(journal).header.get("space") or {}
    return spelled(known, tuple(found["name"] for found in begun.get("parameters", ())))


def open_tuner(
    source: Source,
    journal: Path | None,
    *,
    fix: list[str] | None,
    task: str,
    command: Sequence[str] = (),
    same_task: bool,
    observed: Path | None,
    sheet: str | None = None,
    accept_alarm: bool,
    confirm: bool | None = None,
    **options: Any,
) -> Tuner:
    """A tuner by the options that `suggest` and `tune` share; the others are those of `Tuner`."""
    identity = RunTask(task, tuple(command))
    if same_task and journal is not None and journal.exists():
        begun = RunTask.of_journal(Store.open(journal).header)
        identity = RunTask(begun.name or task, begun.command or tuple(command))
    tuner = Tuner(
        source, journal, fixed=assignments(source.space, fix or ()), task=identity, **options,
    )  # fmt: skip
    if observed is not None:
        _add_observed(tuner, observed, sheet, confirm)
    if promise := source.promise(tuner.options.delta):
        note(promise)
    if accept_alarm:
        tuner.accept_alarm()
    return tuner


def _add_observed(tuner: Tuner, path: Path, sheet: str | None, confirm: bool | None) -> None:
    """Tell the runs of a table, and say how many were added and why others were not.

    Values far beyond their range are refused unless confirmed; a note where nobody can confirm.
    """
    output, others = tuner.output, tuner.source.others
    names = columns_of(tuner)
    if is_workbook(path):
        sheet = read_sheet(path, sheet, having=names).sheet
        if sheet in tuner.source.tasks:
            note(COUNTS_TWICE.format(f"the sheet {sheet!r} of {path.name}"))
    signed = () if tuner.source.scale.usual is None else (output,)
    found = table_columns(path, sheet=sheet, having=names, signed=signed)
    found = _of_this_task(found, tuner, path)
    called = matched(found, names, tuner.space.names, path.name)
    columns = {name: found[column] for name, column in called.items()}
    values = _numbers(columns[output], f"{path.name}: output column {output!r}")
    also = {n: _numbers(columns[n], f"{path.name}: output column {n!r}") for n in others}
    rows, measured, outputs = [], [], []
    unusable = {"without a finite value": 0, "with a missing input": 0}
    for i, value in enumerate(values):
        row = tuner.space.parse_row({name: cells[i] for name, cells in columns.items()})
        if value is None:
            unusable["without a finite value"] += 1
        elif tuner.space.missing(row):
            unusable["with a missing input"] += 1
        else:
            rows.append(row)
            measured.append(_on_scale(tuner, value, columns[output][i], path, confirm))
            outputs.append({name: also[name][i] for name in others})
    if not rows:
        why = _counted(unusable)
        raise InputError(f"{path.name}: none of the {len(values)} rows can be used: {why}")
    new = tuner.observe(rows, measured, outputs)
    left_out = _counted({"known already": len(rows) - new, **unusable})
    note(f"{new} runs of {path.name} added" + (f"; left out: {left_out}" if left_out else ""))


def _on_scale(tuner: Tuner, number: float, cell: Any, path: Path, confirm: bool | None) -> float:
    """The value that a cell means on the scale of past tasks."""
    scale = tuner.source.scale
    value = scale.read(number, cell, confirmed=True)
    if value != number:
        note(f"{path.name}: {scale.as_read(cell, value)}")
    try:
        scale.read(number, cell, confirmed=bool(confirm))
    except InputError as error:
        if confirm is False:
            raise error.at(path.name) from None
        note(f"{path.name}: {error.message}: is this right?")
    return value


def read_candidates(
    path: Path | None, space: Space, sheet: str | None = None
) -> list[dict[str, Any]] | None:
    """The configurations that a table lists; None without a file."""
    if path is None:
        return None
    found = table_columns(path, sheet=sheet, having=space.free)
    called = matched(found, space.free, space.names, path.name)
    columns = {name: found[column] for name, column in called.items()}
    cells = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    rows = [row for row in map(space.parse_row, cells) if not space.missing(row)]
    if not rows:
        raise InputError(f"{path.name} lists no configuration with all of {', '.join(space.free)}")
    left_out = len(columns[space.free[0]]) - len(rows)
    if left_out:
        note(f"{len(rows)} candidates in {path.name}; left out: {left_out} with a missing input")
    return rows


def _of_this_task(columns: dict[str, list[Any]], tuner: Tuner, path: Path) -> dict[str, list[Any]]:
    """The rows of this task, where a column names several."""
    column = task_column(columns, tuner.source.tasks)
    names = [] if column is None else sorted({str(v) for v in columns[column] if v is not None})
    if column is None or len(names) < 2:
        return columns
    task = tuner.options.task.name
    if task not in names:
        raise InputError(
            f"{path.name} holds runs of {len(names)} tasks ({column}: {first_of(names, 3)}); "
            "expected runs of this task only",
            Hint("name the task to take", "task=NAME", "--task NAME"),
        )
    kept = [i for i, name in enumerate(columns[column]) if str(name) == task]
    note(f"{path.name}: {len(kept)} rows are of {task}, the others of other tasks")
    if task in tuner.source.tasks:
        note(COUNTS_TWICE.format(task))
    return {name: [cells[i] for i in kept] for name, cells in columns.items()}


def _numbers(cells: Sequence[Any], where: str) -> list[float | None]:
    """Finite numbers as people write them; None for missing ones and words of failures."""
    found: list[float | None] = []
    for cell in cells:
        none = isinstance(cell, str) and normalized(cell) in NO_NUMBER
        number = None if none or cell is None else quantity(cell)
        if number is None and not none and cell is not None:
            raise InputError(f"{where} holds {cell!r}; expected numbers, or nothing")
        found.append(number if number is not None and isfinite(number) else None)
    return found


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
