"""``metakel show``: what was learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metakel.cli.console import Json, emit, say
from metakel.library import as_prior
from metakel.priors import Prior

PriorPath = Annotated[
    Path, typer.Argument(help="The file that `metakel learn` wrote, or library:NAME[:METRIC].")
]


def show(prior: PriorPath, json: Json = False) -> None:
    """Show what was learned, and how far it can be trusted.

    With --json: output, minimize, tasks, runs, used (whether the history helps), held_out_gain,
    held_out_tasks, better_than_cold, outliers, notes, parameters, and shares of variance as common
    and differences.
    """
    known = as_prior(prior)
    if json:
        emit(described(known))
        return
    say(str(known))
    say("parameters")
    say(str(known.space))
    if known.task_gp is not None:
        say("shares of variance")
        say(str(known.explain()))


def described(prior: Prior) -> dict[str, Any]:
    """A prior as JSON."""
    held = prior.heldout
    explained = None if prior.task_gp is None else prior.explain()
    return {
        "output": prior.info.output,
        "minimize": prior.info.minimize,
        "tasks": list(prior.info.tasks),
        "runs": prior.info.runs,
        "used": prior.helps,
        "held_out_gain": held.log_score,
        "held_out_tasks": int(held.tasks.size),
        "better_than_cold": held.better_than_cold,
        "outliers": list(prior.outliers),
        "notes": list(prior.info.notes),
        "parameters": [p.to_dict() for p in prior.space.parameters],
        "sums": list(map(str, prior.space.sums)),
        "common": None if explained is None else explained.common,
        "differences": None if explained is None else explained.differences,
    }
