"""``metakel suggest`` and ``metakel tell``: tuning by hand."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Annotated

import typer

from metakel.cli.console import emit, grid, note, one_line, say, short
from metakel.cli.learn import Json, PriorPath
from metakel.cli.observed import take_in
from metakel.cli.values import assignments
from metakel.errors import InputError
from metakel.priors import Prior
from metakel.tuner import JournalTrial, Tuner
from metakel.tuner.journal_reader import JournalReader
from metakel.tuner.normalise import key

Observed = Annotated[
    Path | None, typer.Option(help="CSV of runs of this very task, to start from.")
]
Fix = Annotated[list[str] | None, typer.Option("--fix", help="name=value to hold fixed.")]
Outside = Annotated[
    bool, typer.Option("--extrapolate", help="Allow values beyond the recorded ranges.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
JournalPath = Annotated[Path | None, typer.Option(help="Journal to go on with, or to begin.")]


def suggest(
    prior: PriorPath,
    journal: JournalPath = None,
    observed: Observed = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many.")] = 1,
    fix: Fix = None,
    extrapolate: Outside = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Give the next configurations to try; with --journal they are noted as pending."""
    known = Prior.load(prior)
    fixed = assignments(known.space, fix or ())
    tuner = Tuner(known, journal, seed=seed, fixed=fixed, extrapolate=extrapolate, manual=True)
    if observed is not None:
        take_in(tuner, observed)
    chosen = tuner.ask_batch(count)
    # Others may have asked meanwhile, so numbers are looked up and not counted.
    waiting = {key(trial.configuration): trial for trial in tuner.trials.pending}
    asked = [waiting[key(x)] for x in chosen]
    numbers = [trial.number for trial in asked]
    # By the model that chose: later suggestions of the batch take the earlier ones into account.
    means, sds = zip(*(trial.expected or (nan, nan) for trial in asked), strict=True)
    if json:
        emit(
            [
                {"number": number, "configuration": x, "mean": float(m), "sd": float(s)}
                for number, x, m, s in zip(numbers, chosen, means, sds, strict=True)
            ]
        )
        return
    header = ["number", *known.space.names, f"{known.info.output} expected"]
    grid(
        header,
        [
            [str(number), *(short(x[name]) for name in known.space.names), f"{m:.4g} ± {s:.2g}"]
            for number, x, m, s in zip(numbers, chosen, means, sds, strict=True)
        ],
    )
    if tuner.alarm is not None:
        note(f"ALARM after {tuner.alarm.time} values: {tuner.alarm.reason}")
    if journal is not None:
        note(f"then: metakel tell {journal} VALUE --number {numbers[0]}")


def tell(
    journal: Annotated[Path, typer.Argument(help="The journal of `metakel suggest` or `tune`.")],
    value: Annotated[
        str, typer.Argument(help="What was measured; nothing with --failed or --drop.")
    ] = "",
    number: Annotated[int | None, typer.Option(help="Which suggestion.")] = None,
    assigned: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="name=value: with --number, what was set instead; else of a run of your own.",
        ),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="There is no value.")] = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="It will not be done, or its failure says nothing.")
    ] = False,
    correct: Annotated[
        bool, typer.Option("--correct", help="What was told of --number was wrong.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why it failed.")] = "",
    json: Json = False,
) -> None:
    """Note the value of a configuration in a journal; safe on disk when this returns."""
    if [bool(value), failed, drop].count(True) != 1:
        raise typer.BadParameter("give a value, or --failed, or --drop")
    if number is None and (drop or correct):
        raise typer.BadParameter(f"{'--drop' if drop else '--correct'} needs --number")
    if drop and (assigned or correct):
        raise typer.BadParameter("--drop beside --set or --correct: nothing was run")
    record = JournalReader(journal)
    if drop:
        assert number is not None
        noted = record.drop(number)
    else:
        measured = None if failed else _number(value)
        noted = _note(record, measured, number, assigned or [], reason, correct=correct)
    count, without = len(record.trials.complete), noted.state == "failed"
    if json:
        emit({"configuration": noted.configuration, "complete": count, "failed": without})
        return
    say(f"noted {one_line(noted.configuration)}: {_what(noted)}; {count} values")
    if assigned and number is None and record.trials.pending:
        waiting = ", ".join(str(trial.number) for trial in record.trials.pending)
        note(f"a run of its own; pending stays {waiting}: --number with --set says what was done")


def _note(
    record: JournalReader,
    value: float | None,
    number: int | None,
    assigned: list[str],
    reason: str,
    *,
    correct: bool,
) -> JournalTrial:
    """A result, or another in place of a wrong one; of a suggestion, or of a run of its own."""
    changed = assignments(record.space, assigned)
    if correct:
        assert number is not None
        wrong = record.trials.result_of(number)
        return record.correct(number, value, {**wrong.configuration, **changed}, reason)
    if assigned and number is None:
        return record.tell(changed, value, None, reason)
    suggested = record.pending(number)
    return record.tell({**suggested.configuration, **changed}, value, suggested.number, reason)


def _what(noted: JournalTrial) -> str:
    why = f" ({noted.reason})" if noted.reason else ""
    return short(noted.value) if noted.state == "complete" else f"{noted.state}{why}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"the value is {text!r}; expected a number") from None
