"""``metakel report``: one HTML page."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from metakel._files import writing
from metakel.cli.console import Json, emit, refuse_overwriting, say
from metakel.cli.safe import source_of_journal
from metakel.cli.show import PriorPath
from metakel.cli.suggest import CandidatesPath, JournalPath, prior_of, read_candidates
from metakel.report import replay_journal, write_report
from metakel.tuner import Store


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
    refuse_overwriting(out, prior, journal, candidates)
    known = prior_of(prior, journal)
    listed = read_candidates(candidates, known.space)
    run = (
        None
        if journal is None
        else replay_journal(source_of_journal(known, Store.open(journal).header), journal, listed)
    )
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
