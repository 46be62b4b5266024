"""``metakel report`` and ``metakel demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from metakel._files import writing
from metakel.cli.console import emit, note, say
from metakel.cli.exit_codes import refuse_overwriting
from metakel.cli.histories import is_storage, read_history
from metakel.cli.learn import Json, PriorPath, Task
from metakel.cli.suggest import JournalPath, Seed
from metakel.priors import Prior
from metakel.report import replay_journal, validate_history, write_report


def report(
    prior: PriorPath,
    journal: JournalPath = None,
    history: Annotated[
        str | None, typer.Option(help="The past runs again, to leave tasks out and try them.")
    ] = None,
    task: Task = "",
    out: Annotated[Path, typer.Option("-o", "--out", help="The page.")] = Path("report.html"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Write one HTML page: what was learned, how far to trust it, and how a run went."""
    if task and history is not None and is_storage(history):
        raise typer.BadParameter(f"--task beside {history}: every study is a task")
    refuse_overwriting(out, prior, journal, history)
    known = Prior.load(prior)
    run = None if journal is None else replay_journal(known, journal)
    validation = None
    if history is not None:
        note("leaving tasks out, a moment ...")
        past = read_history(
            history, task, known.info.output, minimize=known.info.minimize, space=known.space
        )
        validation = validate_history(past, np.random.default_rng(seed))
    with writing(out):
        page = write_report(known, out, validation=validation, run=run)
    if json:
        emit({"report": str(page), "bytes": page.stat().st_size})
    else:
        say(f"{page} ({page.stat().st_size // 1000} kB, works offline)")


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Where results go.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Learn from the bundled history, tune tasks unseen, and show what it was worth."""
    from metakel.demo import main

    with writing(out):  # it reads nothing but what the package brings along
        main(["--out", str(out), "--seed", str(seed)])
