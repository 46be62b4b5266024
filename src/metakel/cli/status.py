"""``metakel status``: what a journal says, without the report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from metakel.cli.console import emit, grid, say, short
from metakel.cli.learn import Json
from metakel.tuner import JournalTrial
from metakel.tuner.journal_reader import JournalReader


def status(
    journal: Annotated[Path, typer.Argument(help="The journal of `metakel suggest` or `tune`.")],
    json: Json = False,
) -> None:
    """List the trials of a journal: pending, told and failed, with their numbers."""
    record = JournalReader(journal)
    trials, best, alarm = record.trials, record.best, record.trials.alarm
    if json:
        emit(
            {
                "complete": len(trials.complete),
                "failed": len(trials.failed),
                "pending": [trial.number for trial in trials.pending],
                "best": None if best is None else best.number,
                "alarm": None if alarm is None else asdict(alarm),
                "trials": [_described(trial) for trial in trials.all],
            }
        )
        return
    names = record.space.names
    if trials.all:
        header = ["number", *names, str(record.header["output"])]
        cells = [[short(t.configuration.get(name, "")) for name in names] for t in trials.all]
        grid(
            header,
            [
                [str(trial.number), *row, _result(trial, best)]
                for trial, row in zip(trials.all, cells, strict=True)
            ],
        )
    counts = (
        f"{len(trials.complete)} values, {len(trials.failed)} failed, {len(trials.pending)} pending"
    )
    say(counts + ("" if best is None else f"; best {short(best.value)}, number {best.number}"))
    if alarm is not None:
        say(f"ALARM after {alarm.time} values: {alarm.reason}")


def _result(trial: JournalTrial, best: JournalTrial | None) -> str:
    if trial.state != "complete":
        return trial.state + (f": {trial.reason}" if trial.reason else "")
    return short(trial.value) + " *" * (best is not None and trial.number == best.number)


def _described(trial: JournalTrial) -> dict[str, object]:
    names = ("number", "configuration", "state", "value", "reason")
    return {name: getattr(trial, name) for name in names}
