"""``metakel suggest``: the next configurations to try; ``metakel tell``: what they gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Annotated, Any

import typer

from metakel.cli.console import Json, emit, grid, note, say, short
from metakel.cli.history import table_columns
from metakel.cli.options import (
    CandidatesPath,
    JournalArgument,
    JournalPath,
    Limits,
    PriorPath,
    Seed,
    Start,
    assignments,
    read_named_numbers,
    read_space,
    why_stopped,
    with_limits,
)
from metakel.confidence import Alarm
from metakel.errors import InputError
from metakel.io.cleaning import normalized
from metakel.io.excel import read_sheet
from metakel.io.tables import kind_of
from metakel.io.words import LEFT_OUT, MISSING, NOT_DONE, UNFINISHED
from metakel.library import as_prior, spelled
from metakel.optimize import Reasons, Trial
from metakel.optimize.model import NothingToAsk
from metakel.priors import Prior
from metakel.priors.summary import promise
from metakel.space import Float, Space
from metakel.space.configurations import quantity
from metakel.tuner import Source, Store, Tuner, suggest_rows
from metakel.tuner.source import RunTask
from metakel.tuner.store import Scale
from metakel.tuner.table import COUNTS_TWICE, columns_of, matched, rows_of_task

# A number of other characters is written with a comma or a unit.
PLAIN = frozenset("0123456789+-.eE")
# What stands in place of a result.
NO_NUMBER = MISSING | NOT_DONE | UNFINISHED | LEFT_OUT


@dataclass(frozen=True)
class SearchOptions:
    """What `suggest` and `tune` are told of a task, and of what may be tried in it."""

    observed: Annotated[
        Path | None, typer.Option(help="Table with runs of this very task, to start from.")
    ] = None
    candidates: CandidatesPath = None
    fix: Annotated[list[str] | None, typer.Option(help="name=value to hold fixed.")] = None
    narrowed: Annotated[
        list[str] | None, typer.Option("--range", help="name=low..high, a narrower range.")
    ] = None
    exclude: Annotated[
        list[str] | None, typer.Option(help="name=value, a choice that cannot be tried.")
    ] = None
    sums: Annotated[
        list[str] | None,
        typer.Option(
            "--sum", help="What every suggestion keeps, as in 'A + B + C = 100' or '2 A + B <= 50'."
        ),
    ] = None
    extrapolate: Annotated[
        bool,
        typer.Option(
            "--extrapolate", help="Allow --fix and --candidates beyond the recorded ranges."
        ),
    ] = False
    limit: Limits = None
    start: Start = None
    accept_alarm: Annotated[
        bool, typer.Option("--accept-alarm", help="Go on after an alarm that has stopped the run.")
    ] = False
    delta: Annotated[
        float | None,
        typer.Option(
            help="Probability with which what is promised may fail, as the certificate. "
            "[default: 0.2, with --limit 0.1]"
        ),
    ] = None
    task: Annotated[
        str, typer.Option(help="Name of the task; a journal of another one is refused.")
    ] = ""
    same_task: Annotated[
        bool,
        typer.Option(
            "--same-task", help="Continue this journal although the name or the command differs."
        ),
    ] = False
    seed: Seed = 0

    def source(self, prior: Prior) -> Source:
        """The prior as a source of decisions."""
        return with_limits(prior, self.limit, self.start)

    def options(self, space: Space, sheet: str | None = None) -> dict[str, Any]:
        """Those of `Tuner`; the sheet is that of a workbook with candidates."""
        return {
            "fixed": assignments(space, self.fix or ()),
            "space": read_space(space, self.narrowed, self.exclude, self.sums),
            "candidates": read_candidates(self.candidates, space, sheet),
            "extrapolate": self.extrapolate,
            "delta": self.delta,
            "seed": self.seed,
        }

    def tuner(
        self,
        source: Source,
        journal: Path | None,
        *,
        command: Sequence[str] = (),
        sheet: str | None = None,
        confirm: bool | None = None,
        **options: Any,
    ) -> Tuner:
        """A tuner with the runs that were observed; other options are those of `Tuner`."""
        identity = RunTask(self.task, tuple(command))
        if self.same_task and journal is not None and journal.exists():
            begun = RunTask.of_journal(Store.open(journal).header)
            identity = RunTask(begun.name or identity.name, begun.command or identity.command)
        options |= self.options(source.space, sheet)
        tuner = Tuner(source, journal, task=identity, **options)
        if self.observed is not None:
            _add_observed(tuner, self.observed, sheet, confirm)
        if promise := source.promise(tuner.options.delta):
            note(promise)
        if self.accept_alarm:
            tuner.accept_alarm()
        return tuner


def suggest(
    prior: PriorPath,
    journal: JournalPath = None,
    table: Annotated[
        Path | None,
        typer.Option(
            help="Table that is the record, CSV or Excel: its results and open rows count, and the "
            "next rows to fill in are added to it.",
        ),
    ] = None,
    sheet: Annotated[
        str | None, typer.Option(help="Sheet of a workbook. [default: the first with a table]")
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Results in tables far beyond their range are right.")
    ] = False,
    *,
    search: SearchOptions,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many.")] = 1,
    given: Annotated[
        list[str] | None, typer.Option(help="name=value that is given this time, not chosen.")
    ] = None,
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
    source = search.source(known)
    if table is not None:
        _refuse_beside_table(journal, search)
        found = suggest_rows(
            source, table, count, sheet=sheet, task=search.task, given=held, confirmed=confirm,
            **search.options(known.space),
        )  # fmt: skip
        for text in found.notes:
            note(text)
        rows = [(row.place, row.trial, row.why) for row in found.rows]
        _show(found.tuner, rows, found.open, where="in", known=known, json=json)
        if not json:
            note(
                f"added to {table}: fill in {known.info.output} (the word failed where there is "
                "none), change what was done otherwise, and call this again"
            )
        return
    read = (search.observed, search.candidates)
    if sheet is not None and not any(kind_of(p) == "workbook" for p in read if p):
        raise typer.BadParameter("--sheet without --table: there is no workbook to read")
    tuner = search.tuner(source, journal, sheet=sheet, confirm=confirm, adopt_after="never")
    try:
        asked = tuner.ask_trials(count, held)
    except (Alarm, NothingToAsk) as error:
        raise InputError(why_stopped(tuner, error)) from error
    # By the model that chose: later suggestions of the batch take the earlier ones into account.
    rows = [(str(trial.number), trial, tuner.explain(trial.point, held)) for trial in asked]
    waiting = [str(t.number) for t in tuner.trials.pending if t.number < asked[0].number]
    _show(tuner, rows, waiting, where="number", known=known, json=json)
    if journal is not None and not json:
        also = "".join(f" --output {name}=VALUE" for name in source.others)
        note(f"then: metakel tell {journal} VALUE --number {asked[0].number}{also}")


def _show(
    tuner: Tuner,
    rows: Sequence[tuple[str, Trial, Reasons]],
    waiting: Sequence[str],
    *,
    where: str,
    known: Prior,
    json: bool,
) -> None:
    """The suggestions as a table, why each is one, and what is known of the task so far."""
    if json:
        emit([({"place": at} if where == "in" else {}) | _as_json(t, why) for at, t, why in rows])
        return
    space = known.space
    grid(
        [where, *space.names, f"{known.info.output} expected"],
        [[at, *space.cells(trial.point), str(why.expected)] for at, trial, why in rows],
    )
    for at, _, why in rows:
        note(f"why {at}: {why if len(rows) == 1 else why.sentence}")
    rounded = [p.name for p in space.parameters if isinstance(p, Float) and p.digits is not None]
    if rounded:
        verb = "is" if len(rounded) == 1 else "are"
        note(f"{', '.join(rounded)} {verb} rounded to the precision of the past runs")
    if tuner.trials.observed:
        note(f"best so far {tuner.best.value:.6g}. {promise(known, tuner.certificate)}")
    if tuner.alarm is not None:
        note(f"ALARM after {tuner.alarm.time} values: {tuner.alarm.reason}")
    if waiting:
        note(f"still without a result: {', '.join(waiting)}")


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


def _refuse_beside_table(journal: Path | None, search: SearchOptions) -> None:
    """The table holds all runs of the task, and nothing else is kept."""
    said = {
        "--journal": journal, "--observed": search.observed, "--same-task": search.same_task,
        "--accept-alarm": search.accept_alarm,
    }  # fmt: skip
    given = [option for option, value in said.items() if value]
    if given:
        raise typer.BadParameter(
            f"{given[0]} beside --table: the table is the record; write all runs into it"
        )


def prior_of(path: Path, journal: Path | None) -> Prior:
    """A prior; one of the library spells its parameters as the journal does."""
    known = as_prior(path)
    if journal is None or not journal.exists():
        return known
    begun = Store.open(journal).header.get("space") or {}
    return spelled(known, tuple(found["name"] for found in begun.get("parameters", ())))


def _add_observed(tuner: Tuner, path: Path, sheet: str | None, confirm: bool | None) -> None:
    """Tell the runs of a table, and say how many were added and why others were not.

    Values far beyond their range are refused unless confirmed; a note where nobody can confirm.
    """
    output, others, past = tuner.output, tuner.source.others, tuner.source.tasks
    needed = columns_of(tuner)
    if kind_of(path) == "workbook":
        sheet = read_sheet(path, sheet, having=needed).sheet
        if sheet in past:
            note(COUNTS_TWICE.format(f"the sheet {sheet!r} of {path.name}"))
    signed = () if tuner.source.scale.usual is None else (output,)
    found = table_columns(path, sheet=sheet, having=needed, signed=signed)
    _, task, places = rows_of_task(found, tuner, path.name)
    count = len(next(iter(found.values()), ()))
    if len(places) < count:
        note(f"{path.name}: {len(places)} rows are of {task}, the others of other tasks")
    if task in past:
        note(COUNTS_TWICE.format(task))
    columns = {
        name: [found[column][i] for i in places]
        for name, column in matched(found, needed, tuner.space.names, path.name).items()
    }
    numbers = {
        name: _numbers(columns[name], f"{path.name}: output column {name!r}")
        for name in (output, *others)
    }
    rows, measured, outputs = [], [], []
    unusable = {"without a finite value": 0, "with a missing input": 0}
    for i, value in enumerate(numbers[output]):
        row = tuner.space.parse_row({name: cells[i] for name, cells in columns.items()})
        if value is None:
            unusable["without a finite value"] += 1
        elif tuner.space.missing(row):
            unusable["with a missing input"] += 1
        else:
            rows.append(row)
            measured.append(_on_scale(tuner, value, columns[output][i], path, confirm))
            outputs.append({name: numbers[name][i] for name in others})
    if not rows:
        why = _counted(unusable) or f"{count} of other tasks"
        raise InputError(f"{path.name}: none of the {count} rows can be used: {why}")
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


def tell(
    journal: JournalArgument,
    value: Annotated[
        str,
        typer.Argument(help="The measured value, as in 0.93 or '87,5 %'; not with --failed, ..."),
    ] = "",
    number: Annotated[int | None, typer.Option(help="Which suggestion.")] = None,
    assigned: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="name=value that was used: with --number instead of what was suggested, "
            "without it in a run of your own.",
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", help="name=value that was measured beside the value."),
    ] = None,
    constraints: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint", help="name=value of a constraint, which holds where it is not above 0."
        ),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="There is no value.")] = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="It will not be run, or its failure means nothing.")
    ] = False,
    correct: Annotated[
        bool, typer.Option("--correct", help="Replace the result that --number has.")
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="The value is right, though far beyond its range.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why it failed.")] = "",
    json: Json = False,
) -> None:
    """Record the result of a configuration in a journal.

    It is on disk when this returns.

    With --json: number, configuration, state (complete, failed or dropped), value, outputs and
    reason of the trial, and complete, how many trials have a value now.
    """
    if [bool(value), failed, drop].count(True) != 1:
        raise typer.BadParameter("give a value, or --failed, or --drop")
    if number is None and (drop or correct):
        raise typer.BadParameter(f"{'--drop' if drop else '--correct'} needs --number")
    if drop and (assigned or correct):
        raise typer.BadParameter("--drop beside --set or --correct: nothing was run")
    record, own = Store.open(journal), bool(assigned) and number is None
    if drop:
        assert number is not None
        trial = record.drop(number)
    else:
        measured = None if failed else _value(value, record.scale, confirmed=confirm)
        also = read_named_numbers(outputs, "--output")
        bounds = read_named_numbers(constraints, "--constraint")
        changed = assignments(record.space, assigned or [])
        if correct:
            assert number is not None
            wrong = record.run.result_of(number)
            trial = record.correct(
                number, measured, {**wrong.point, **changed}, reason, also, confirmed=confirm
            )
        else:
            if number is not None or not changed:  # a suggestion, and not a run of its own
                suggested = record.run.pending_one(number)
                number, changed = suggested.number, {**suggested.point, **changed}
            trial = record.tell(changed, measured, number, reason, also, bounds, confirmed=confirm)
    for text in [] if drop else record.space.unlike(trial.point):
        note(f"{text}: recorded as it was done")
    count = len(record.run.record.observed)
    if json:
        emit({**trial_as_json(trial), "complete": count})
        return
    say(f"recorded {record.space.show(trial.point)}: {_in_words(trial)}; {count} values")
    if own and record.run.record.pending:
        waiting = ", ".join(str(trial.number) for trial in record.run.record.pending)
        note(f"this is a run of its own; still pending: {waiting}. If it was one of them, use")
        note("--number with --set")


def _in_words(trial: Trial) -> str:
    why = f" ({trial.note.reason})" if trial.note.reason else ""
    return f"{trial.state}{why}" if trial.value is None else short(trial.value)


def _value(text: str, scale: Scale, *, confirmed: bool) -> float:
    number = quantity(text)
    if number is None:
        raise InputError(f"the value is {text!r}; expected a number")
    number = scale.read(number, text, confirmed=confirmed)
    if not set(text) <= PLAIN:
        note(f"read {text!r} as {short(number)}")
    return number


def trial_as_json(trial: Trial) -> dict[str, Any]:
    """A trial as JSON."""
    note = trial.note
    return {
        "number": trial.number,
        "configuration": trial.point,
        "state": trial.state,
        "value": trial.value,
        "outputs": trial.outputs,
        "reason": note.reason,
        **({"curve": note.curve} if note.curve else {}),
        "since": note.since,
        "owner": note.owner,
    }
