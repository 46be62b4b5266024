"""``metakel status``: what a journal says."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from metakel.cli.console import Json, emit, grid, say, short
from metakel.errors import InputError
from metakel.optimize import Trial
from metakel.tuner import Run, Store
from metakel.tuner.fold import age
from metakel.tuner.lock import is_alive
from metakel.tuner.salvage import RESULTS, salvaged, write

JournalArgument = Annotated[
    Path, typer.Argument(help="The journal of `metakel suggest` or `metakel tune`.")
]


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
