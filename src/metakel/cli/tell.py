"""``metakel tell``: the result of an evaluation."""

from __future__ import annotations

from typing import Annotated

import typer

from metakel.cli.console import Json, emit, note, say, short
from metakel.cli.outputs import assignments, read_named_numbers
from metakel.cli.status import JournalArgument, described
from metakel.errors import InputError
from metakel.optimize import Trial
from metakel.space.text import quantity
from metakel.tuner import Store
from metakel.tuner.scale import Scale

# A number of other characters is written with a comma or a unit.
PLAIN = frozenset("0123456789+-.eE")


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
        typer.Option(
            "--output",
            help="name=value that was measured beside the value.",
        ),
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
        also = _outputs(record, outputs, failed=failed)
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
    say(f"recorded {record.space.show(trial.point)}: {_result(trial)}; {count} values")
    if own and record.run.record.pending:
        waiting = ", ".join(str(trial.number) for trial in record.run.record.pending)
        note(f"this is a run of its own; still pending: {waiting}. If it was one of them, use")
        note("--number with --set")


def _outputs(record: Store, texts: list[str] | None, *, failed: bool) -> dict[str, float]:
    found = read_named_numbers(texts, "--output")
    lacking = [name for name in record.other_outputs if name not in found]
    if lacking and not failed:
        raise InputError(
            f"no value of {', '.join(lacking)}, which has to be measured; expected --output "
            f"{lacking[0]}=VALUE"
        )
    return found


def _result(trial: Trial) -> str:
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
