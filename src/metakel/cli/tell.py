"""``metakel tell``: the result of an evaluation."""

from __future__ import annotations

from typing import Annotated

import typer

from metakel.cli.console import Json, emit, note, one_line, say, short
from metakel.cli.status import JournalArgument, described
from metakel.cli.values import assignments
from metakel.errors import InputError
from metakel.tuner import JournalReader, JournalTrial


def tell(
    journal: JournalArgument,
    value: Annotated[
        str, typer.Argument(help="The measured value; none with --failed or --drop.")
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
    failed: Annotated[bool, typer.Option("--failed", help="There is no value.")] = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="It will not be run, or its failure means nothing.")
    ] = False,
    correct: Annotated[
        bool, typer.Option("--correct", help="Replace the result that --number has.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why it failed.")] = "",
    json: Json = False,
) -> None:
    """Record the result of a configuration in a journal; it is on disk when this returns.

    With --json: number, configuration, state (complete, failed or dropped), value and reason of the
    trial, and complete, how many trials have a value now.
    """
    if [bool(value), failed, drop].count(True) != 1:
        raise typer.BadParameter("give a value, or --failed, or --drop")
    if number is None and (drop or correct):
        raise typer.BadParameter(f"{'--drop' if drop else '--correct'} needs --number")
    if drop and (assigned or correct):
        raise typer.BadParameter("--drop beside --set or --correct: nothing was run")
    record = JournalReader(journal)
    if drop:
        assert number is not None
        trial = record.drop(number)
    else:
        measured = None if failed else _number(value)
        trial = _record(record, measured, number, assigned or [], reason, correct=correct)
    count = len(record.trials.complete)
    if json:
        emit({**described(trial), "complete": count})
        return
    say(f"recorded {one_line(trial.configuration)}: {_result(trial)}; {count} values")
    if assigned and number is None and record.trials.pending:
        waiting = ", ".join(str(trial.number) for trial in record.trials.pending)
        note(f"this is a run of its own; still pending: {waiting}. If it was one of them, use")
        note("--number with --set")


def _record(
    record: JournalReader,
    value: float | None,
    number: int | None,
    assigned: list[str],
    reason: str,
    *,
    correct: bool,
) -> JournalTrial:
    """The result of a suggestion or of a run of its own, or a correction of one."""
    changed = assignments(record.space, assigned)
    if correct:
        assert number is not None
        wrong = record.trials.result_of(number)
        return record.correct(number, value, {**wrong.configuration, **changed}, reason)
    if assigned and number is None:
        return record.tell(changed, value, None, reason)
    suggested = record.pending(number)
    return record.tell({**suggested.configuration, **changed}, value, suggested.number, reason)


def _result(trial: JournalTrial) -> str:
    why = f" ({trial.reason})" if trial.reason else ""
    return short(trial.value) if trial.state == "complete" else f"{trial.state}{why}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"the value is {text!r}; expected a number") from None
