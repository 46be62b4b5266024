"""Commands that show: what was learned, what a journal says, and both as a page; the demo."""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

import metakel
from metakel._files import writing
from metakel.cli.console import Json, emit, grid, refuse_overwriting, say, short
from metakel.cli.learn import described, in_short
from metakel.cli.options import (
    CandidatesPath,
    JournalArgument,
    JournalPath,
    PriorPath,
    Seed,
    source_of_journal,
)
from metakel.cli.suggest import prior_of, read_candidates, trial_as_json
from metakel.errors import InputError
from metakel.library import as_prior
from metakel.optimize import Trial
from metakel.tuner import Run, Store
from metakel.tuner.fold import age
from metakel.tuner.lock import is_alive
from metakel.tuner.salvage import RESULTS, salvaged, write


def show(
    prior: PriorPath,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="All that was found, with every note.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what was learned, and how far it can be trusted.

    With --json: output, minimize, tasks, runs, used (whether the history helps), held_out_gain,
    held_out_tasks, better_than_cold, outliers, notes, parameters, and shares of variance as common
    and differences.
    """
    known = as_prior(prior)
    if json:
        emit(described(known))
        return
    if not verbose:
        for line in (str(known).partition("\n")[0], *in_short(known)):
            say(line)
        return
    say(str(known))
    say("parameters")
    say(str(known.space))
    if known.task_gp is not None:
        say("shares of variance")
        say(str(known.explain()))


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
                "trials": [trial_as_json(trial) for trial in trials],
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


def report(
    prior: PriorPath,
    journal: JournalPath = None,
    candidates: CandidatesPath = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="The page.")] = Path("report.html"),
    json: Json = False,
) -> None:
    """Write one HTML page: what was learned, and how a run went.

    With --json: report (the path of the page) and bytes (its size).
    """
    from metakel.report import replay_journal, write_report

    refuse_overwriting(out, prior, journal, candidates)
    known, run = prior_of(prior, journal), None
    listed = read_candidates(candidates, known.space)
    if journal is not None:
        source = source_of_journal(known, Store.open(journal).header)
        run = replay_journal(source, journal, listed)
    files = {"prior": prior, "journal": journal}
    sources = {name: str(path) for name, path in files.items() if path is not None}
    sources["written"] = f"{datetime.now():%Y-%m-%d %H:%M}"
    with writing(out):
        page = write_report(known, out, run=run, sources=sources)
    size = page.stat().st_size
    if json:
        emit({"report": str(page), "bytes": size})
    else:
        say(f"{page} ({size // 1000} kB, works offline)")


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the results.")] = (
        Path("demo")
    ),
    seed: Seed = 0,
) -> None:
    """Learn from the bundled history, and tune unseen tasks."""
    from metakel.demo import main

    with writing(out):  # it reads nothing but what the package brings along
        main(["--out", str(out), "--seed", str(seed)])


HOW = (
    "the figures of the paper are in the source repository of metakel, not in the installed "
    'package: git clone the repository, and in that folder run pip install -e ".[paper]" and '
    "metakel paper all"
)


def paper_commands() -> typer.Typer:
    """The commands of `reproduction.commands`, from the clone that is installed or worked in."""
    for folder in (Path(metakel.__file__).parents[2], Path.cwd()):
        if (folder / "reproduction" / "commands.py").is_file():
            if str(folder) not in sys.path:  # worker processes inherit this path
                sys.path.insert(0, str(folder))
            app: typer.Typer = importlib.import_module("reproduction.commands").app
            return app
    raise InputError(HOW)
