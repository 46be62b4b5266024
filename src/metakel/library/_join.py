"""A history of one's own in the terms of the library, so that both can teach one prior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.errors import InputError
from metakel.library._cards import MINIMIZED, card, list_cards
from metakel.library._entries import ENTRIES
from metakel.library._load import PREFIX, as_prior, load, spelled
from metakel.priors import Prior
from metakel.space import Fixed


def beside(library: Any, history: History) -> tuple[Prior, History]:
    """A prior of the library with the names of a history, and the history in its space.

    Parameters that the history lacks are at the defaults of the package. A parameter that the
    library lacks is refused, unless it never varied.
    """
    if history.space is None or history.report is None:
        raise InputError(
            "library= needs a history with named parameters; expected one of History.from_frame, "
            "from_csv or the like"
        )
    given = history.space
    output, minimize = history.report.output, bool(history.report.minimize)
    prior = spelled(_of_metric(library, output, minimize), given.names)
    entry = ENTRIES.get(prior.info.model)
    if entry is None or prior.info.minimize != minimize:
        aim = "minimised" if prior.info.minimize else "maximised"
        raise InputError(
            f"library is a prior of {prior.info.output!r}, which is {aim}; the history has "
            f"{output!r}, which is {'minimised' if minimize else 'maximised'}. Expected a prior of "
            "metakel.library of the same direction, such as 'lightgbm:auc'"
        )
    known, d0 = prior.space.names, prior.space.d0
    varying = [n for n in given.names if n not in known and not isinstance(given[n], Fixed)]
    if varying:
        raise InputError(
            f"the history has {', '.join(varying)}, which the library's prior of {entry.name} does "
            f"not know; it has {', '.join(known)}. Leave the column out, or learn "
            "without library="
        )
    missing = [name for name in known if name not in given.names]
    filled = {name: entry.defaults[entry.spelled(name)] for name in missing}

    def moved(X: Array | None) -> Array:
        rows = [] if X is None else given.decode(X)
        full = [{n: v for n, v in {**filled, **row}.items() if n in known} for row in rows]
        return prior.space.settled(prior.space.place(full)) if full else np.empty((0, d0))

    tasks = tuple(replace(t, X=moved(t.X), failed=moved(t.failed)) for t in history)
    note = f"{', '.join(missing)} at the defaults of {entry.title} in all past runs"
    notes = (*history.report.notes, note) if missing else history.report.notes
    return prior, History(tasks, prior.space, replace(history.report, notes=notes))


def _of_metric(library: Any, output: str, minimize: bool) -> Prior:
    """By its name and that of the output; else the first metric of the same direction."""
    if not isinstance(library, str):
        return as_prior(library)
    name, _, metric = library.removeprefix(PREFIX).partition(":")
    of_model = [found for found in list_cards() if found.name == card(name).name]
    known = [found.metric for found in of_model]
    fitting = [m for m in known if (m in MINIMIZED) == minimize]
    wanted = metric or next((m for m in (output, *fitting) if m in known), None)
    return load(name, wanted)
