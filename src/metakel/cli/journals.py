"""``metakel status`` and ``metakel tell``: what a journal says, and a result for it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from metakel.cli.console import Json, emit, grid, note, say, short
from metakel.cli.options import JournalArgument, assignments, read_named_numbers
from metakel.errors import InputError
from metakel.optimize import Trial
from metakel.space.configurations import quantity
from metakel.tuner import Run, Store
from metakel.tuner.fold import age
from metakel.tuner.lock import is_alive
from metakel.tuner.salvage import RESULTS, salvaged, write
from metakel.tuner.store import Scale

# A number of other characters is written with a comma or a unit.
PLAIN = frozenset("0123456789+-.eE")


def status(
    journal: JournalArgument,
    salvage: Annotated[
        Path | None,
        typer.Option(
            help="Write what is whole in a damaged journal to this new file, and list the rest."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the trials of a journal with their numbers and results.

    With --json: complete, failed and stopped early (how many), saved (steps, by stopping), pending
    (their numbers), best (its number, or null), alarm (time and reason, or null), and trials, each
    with number, configuration, state, value, outputs, reason, curve (where there is one), since
    (when it was given to its process) and owner (that process).
    With --salvage too: events (how many were written), values, and damaged, each with line and
    what.
    """
    if salvage is not None:
        _salvage(journal, salvage, json)
        return
    record = Store.open(journal)
    trials, best, alarm = record.run.record, record.run.best, record.run.alarm
    if json:
        emit(
            {
                "complete": len(trials.observed),
                "failed": len(trials.failed),
                "stopped": len(trials.stopped),
                "saved": trials.saved,
                "pending": [trial.number for trial in trials.pending],
                "best": None if best is None else best.number,
                "alarm": None if alarm is None else asdict(alarm),
                "trials": [described(trial) for trial in trials],
            }
        )
        return
    names, others = record.space.names, record.other_outputs
    if len(trials):
        grid(
            ["number", *names, *others, str(record.header["output"])],
            [
                [
                    str(trial.number),
                    *record.space.cells(trial.point),
                    *(short(trial.outputs.get(name, "")) for name in others),
                    _result(trial, best),
                ]
                for trial in trials
            ],
        )
    found = "" if best is None else f"; best {short(best.value)}, number {best.number}"
    say(trials.counts + found)
    if rules := record.header.get("rules"):
        say(f"with {rules['text']}")
    if alarm is not None:
        say(f"ALARM after {alarm.time} values: {alarm.reason}")


def _salvage(journal: Path, out: Path, json: bool) -> None:
    found = salvaged(journal)
    if not found.events:
        for event in found.whole:
            if event["event"] in RESULTS:
                of = "" if event.get("number") is None else f"trial {event['number']}, "
                say(f"{of}{event['configuration']}: {event.get('value', event['event'])}")
        raise InputError(
            f"{journal}: its first line is damaged, which holds the parameters and options, so "
            f"{out} was not written; the results that are whole are listed. Begin a new journal "
            "with the same prior, and record them with `metakel tell NEW VALUE --set name=value`"
        )
    write(out, found.events)
    values = len(Run().after(found.events).record.observed)
    if json:
        damaged = [asdict(damage) for damage in found.damaged]
        emit({"events": len(found.events), "values": values, "damaged": damaged})
        return
    say(f"{out}: {len(found.events)} events with {values} values")
    for damage in found.damaged:
        say(str(damage))
    if not found.damaged:
        say("every line is whole")


def described(trial: Trial) -> dict[str, Any]:
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


def _result(trial: Trial, best: Trial | None) -> str:
    if trial.state == "pending":
        return "pending" + _for_how_long(trial) + _with_whom(trial)
    if trial.value is None:
        return trial.state + (f": {trial.note.reason}" if trial.note.reason else "")
    mark = " *" * (best is not None and trial.number == best.number)
    remarks = "infeasible" * (trial.state == "infeasible"), trial.note.reason
    return ", ".join((short(trial.value) + mark, *filter(None, remarks)))


def _for_how_long(trial: Trial) -> str:
    seconds = age(trial)
    return "" if seconds is None else f" for {duration(seconds)}"


def _with_whom(trial: Trial) -> str:
    owner = trial.note.owner
    if owner is None or trial.note.released:
        return ""
    dead = ", which has ended" if is_alive(owner) is False else ""
    return f", process {owner['pid']} on {owner.get('host', 'this machine')}{dead}"


def duration(seconds: float) -> str:
    """Time in the unit that suits it."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


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
        measured = None if failed else _number(value, record.scale, confirmed=confirm)
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
        emit({**described(trial), "complete": count})
        return
    say(f"recorded {record.space.show(trial.point)}: {_in_words(trial)}; {count} values")
    if own and record.run.record.pending:
        waiting = ", ".join(str(trial.number) for trial in record.run.record.pending)
        note(f"this is a run of its own; still pending: {waiting}. If it was one of them, use")
        note("--number with --set")


def _in_words(trial: Trial) -> str:
    why = f" ({trial.note.reason})" if trial.note.reason else ""
    return f"{trial.state}{why}" if trial.value is None else short(trial.value)


def _number(text: str, scale: Scale, *, confirmed: bool) -> float:
    number = quantity(text)
    if number is None:
        raise InputError(f"the value is {text!r}; expected a number")
    number = scale.read(number, text, confirmed=confirmed)
    if not set(text) <= PLAIN:
        note(f"read {text!r} as {short(number)}")
    return number
