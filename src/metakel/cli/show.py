"""Commands that show: what was learned, as text or as a page; the demo; figures of the paper."""

from __future__ import annotations

import importlib
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

import metakel
from metakel._files import writing
from metakel.cli.console import Json, emit, refuse_overwriting, say
from metakel.cli.learn import described, in_short
from metakel.cli.options import CandidatesPath, JournalPath, PriorPath, Seed
from metakel.errors import InputError
from metakel.library import as_prior


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
    from metakel.cli.safe import source_of_journal
    from metakel.cli.suggest import prior_of, read_candidates
    from metakel.report import replay_journal, write_report
    from metakel.tuner import Store

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
