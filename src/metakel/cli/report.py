"""``metakel report``: one HTML page."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from metakel._files import writing
from metakel.cli.console import Json, emit, note, refuse_overwriting, say
from metakel.cli.history import HistoryOptions, TaskColumn, is_storage
from metakel.cli.show import PriorPath
from metakel.cli.suggest import CandidatesPath, JournalPath, Seed, read_candidates
from metakel.priors import Prior
from metakel.report import replay_journal, validate_history, write_report


def report(
    prior: PriorPath,
    journal: JournalPath = None,
    candidates: CandidatesPath = None,
    history: Annotated[
        list[str] | None,
        typer.Option(help="The past runs again, to try the prior on held-out tasks."),
    ] = None,
    task: TaskColumn = "",
    out: Annotated[Path, typer.Option("-o", "--out", help="The page.")] = Path("report.html"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Write one HTML page: what was learned, how far to trust it, and how a run went.

    With --json: report (the path of the page) and bytes (its size).
    """
    storage = next((source for source in history or () if is_storage(source)), None)
    if task and storage:
        raise typer.BadParameter(f"--task beside {storage}: every study is a task")
    refuse_overwriting(out, prior, journal, candidates, *(history or ()))
    known = Prior.load(prior)
    listed = read_candidates(candidates, known.space)
    run = None if journal is None else replay_journal(known, journal, listed)
    validation = None
    if history:
        note("trying the prior on held-out tasks ...")
        options = HistoryOptions(
            history, task, known.info.output, minimize=known.info.minimize, space=known.space
        )
        validation = validate_history(options.read(), np.random.default_rng(seed))
    files = {"prior": prior, "journal": journal, "history": ", ".join(history or ()) or None}
    sources = {name: str(path) for name, path in files.items() if path is not None}
    sources["written"] = f"{datetime.now():%Y-%m-%d %H:%M}"
    with writing(out):
        page = write_report(known, out, validation=validation, run=run, sources=sources)
    size = page.stat().st_size
    if json:
        emit({"report": str(page), "bytes": size})
    else:
        say(f"{page} ({size // 1000} kB, works offline)")
