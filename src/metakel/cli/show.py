"""``metakel show``: what was learned."""

from __future__ import annotations

import re
from math import exp
from pathlib import Path
from typing import Annotated, Any

import typer

from metakel.cli.console import Json, emit, say
from metakel.library import as_prior
from metakel.priors import Prior
from metakel.priors.summary import trust

SHOWN, NOTES = 8, 3  # parameters and notes in a short summary
QUESTION = re.compile(r"\?$|[:;] if ")  # notes that somebody has to answer
MOST = 9  # of a log score that is shown as a factor
WIDTH = 80  # of the choices of one parameter in it
PriorPath = Annotated[
    Path, typer.Argument(help="The file that `metakel learn` wrote, or library:NAME[:METRIC].")
]


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


def in_short(prior: Prior) -> list[str]:
    """What a practitioner acts on, in at most nine lines; the rest is in `show -v`."""
    space = prior.space
    when = {c.name: f", only {c.describe()}" for c in space.conditions}
    shown = [f"{n} ({_briefly(space[n].describe())}{when.get(n, '')})" for n in space.free[:SHOWN]]
    more = f" and {len(space.free) - SHOWN} more" if len(space.free) > SHOWN else ""
    lines = [f"parameters: {', '.join(shown)}{more}"]
    lines += [f"always {total}" for total in space.sums[:2]]
    _, better, used = ("", "", *trust(prior))[-3:]
    lines += [text for text in (used, better and f"{better} {_how_much(prior)}") if text]
    if prior.task_gp is not None:
        lines.append(f"tried first: {space.show(prior.optimizer().ask())}")
    notes = sorted(
        prior.info.notes,
        key=lambda text: (not QUESTION.search(text), not text.startswith("left out")),
    )
    lines += [f"note: {text}" for text in notes[:NOTES]]
    hidden = len(notes) - NOTES
    if hidden > 0:
        lines.append(f"{hidden} more note{'s' * (hidden > 1)} and all numbers: metakel show -v")
    return lines


def _how_much(prior: Prior) -> str:
    """What the history is worth, on the task in the middle of those that were held out."""
    times = exp(min(prior.heldout.log_score, MOST))
    return f"Held-out values are typically {times:.2g} times as likely as without what was learned."


def _briefly(choices: str) -> str:
    """The first of many choices."""
    return choices if len(choices) <= WIDTH else choices[:WIDTH].rpartition(", ")[0] + ", ..."


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
