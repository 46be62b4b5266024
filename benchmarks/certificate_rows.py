"""README's example, and tables of other rows than past ones, for `benchmarks.certificate`.

README's example: the data sets of glmnet in six parts; each part is new to a prior of the others
and searched over the whole space, 30 steps. The value of a point is that of the nearest recorded
one. Rows: bowls with ripples on [-1, 1]^2, histories of 20 tasks, new tasks searched for 10 steps.
Near optima: the past rows are 20 of the best 40 of 400 points, the new ones are uniform.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from math import sqrt
from textwrap import fill
from typing import Any

import numpy as np

from benchmarks.certificate_worlds import Function
from benchmarks.docs import markdown
from benchmarks.seeds import Bench
from metakel import datasets, learn_prior
from metakel.data import History
from metakel.optimize import Optimizer
from metakel.space import Float, Space

PARTS, STEPS, ROW_STEPS, TASKS, NEW = 6, 30, 10, 20, 10
DELTAS = (0.1, 0.2)
TOLERANCE = "5%"
EVALUATIONS, TRUE = 25, 0.8  # floors; twice the binomial deviation is slack
HISTORIES = {"equal": 2, "near optima": 2, "twice as many": 2, "50, then 200": 2}
SIZES = {
    "equal": (20, 20),
    "near optima": (20, 20),
    "twice as many": (20, 40),
    "50, then 200": (50, 200),
}
SPACE = Space((Float("a", -1.0, 1.0), Float("b", -1.0, 1.0)))


def readme_part(part: int) -> dict[str, Any]:
    """Where the searches of one part stop, by delta, and their regret then over the tolerance."""
    logging.disable(logging.WARNING)
    history = datasets.load_glmnet()
    order = np.random.default_rng(7).permutation(len(history))
    new = set(order[part::PARTS].tolist())
    prior = learn_prior(
        replace(history, tasks=tuple(task for s, task in enumerate(history) if s not in new))
    )
    found = []
    for delta in DELTAS:
        for s in sorted(new):
            task, optimizer = history[s], prior.optimizer(delta=delta, stop_at=TOLERANCE)
            while optimizer.t < STEPS and not optimizer.done:
                x = optimizer.ask()
                apart = np.abs(task.X - prior.space.encode([x])).sum(axis=1)
                optimizer.tell(x, float(task.y[apart.argmin()]))
            regret = float(task.y.max() - optimizer.best().value)
            wrong = regret > 0.05 * prior.certificate.spread
            found.append([delta, bool(optimizer.done), bool(wrong), optimizer.t])
    return {"searches": found}


def ripples(rng: np.random.Generator) -> Function:
    """A bowl with ripples."""
    center, widths = rng.uniform(-0.5, 0.5, 2), np.exp(rng.normal(0, 0.3, 2))
    level, scale = rng.normal(), np.exp(rng.normal(0, 0.3))
    phase, waves = rng.uniform(0, 6), rng.uniform(4, 7, 2)
    return lambda X: (
        level
        + scale * (0.15 * np.sin(X @ waves + phase) - ((X - center) ** 2 * widths).sum(axis=1))
    )


def rows_history(setting: str, number: int) -> dict[str, Any]:
    """Searches of one history: were all certificates true, their last size, was it emulated."""
    logging.disable(logging.WARNING)
    rng, (past, rows) = np.random.default_rng([number, 12]), SIZES[setting]
    pairs = []
    for _ in range(TASKS):
        f, X = ripples(rng), rng.uniform(-1, 1, (past, 2))
        if setting == "near optima":
            X = rng.uniform(-1, 1, (400, 2))
            X = X[np.argsort(-f(X))[: 2 * past]][rng.permutation(2 * past)[:past]]
        pairs.append((X, f(X)))
    prior = learn_prior(History.from_pairs(pairs), SPACE)
    found = []
    for _ in range(NEW):
        f, X = ripples(rng), rng.uniform(-1, 1, (rows, 2))
        found.append(_search(prior.optimizer(X, delta=0.2), X, f(X)))
    return {"searches": found}


def _search(optimizer: Optimizer, X: np.ndarray, y: np.ndarray) -> list[Any]:
    true, sizes, emulated = True, [], False
    for _ in range(ROW_STEPS):
        x = optimizer.ask()
        row = int(np.argmin(np.abs(X - list(x.values())).sum(axis=1)))
        optimizer.tell(x, float(y[row]))
        certificate = optimizer.certificate()
        if not certificate.reason:
            true = true and y.max() - optimizer.best().value <= certificate.regret + 1e-9
            sizes.append(certificate.regret / float(np.ptp(y)))
            emulated = certificate.basis == "emulated"
    return [bool(true), sizes[-1] if sizes else None, emulated]


def rows_section(place: Bench, *, quick: bool) -> str:
    """Both tables, as Markdown."""
    about = fill(" ".join((__doc__ or "").partition("\n\n")[2].split()), 100)
    lines = []
    parts = place.measured("readme", readme_part, range(1 if quick else PARTS))
    for delta in DELTAS:
        found = [s for part in parts for s in part["searches"] if s[0] == delta]
        stopped = [s for s in found if s[1]]
        wrong = sum(s[2] for s in stopped)
        mean = np.mean([s[3] for s in stopped]) if stopped else STEPS
        met = bool(stopped) and mean <= EVALUATIONS and wrong <= delta * len(stopped)
        lines.append(
            [
                f"{delta:g}",
                f"{len(stopped)} of {len(found)}",
                f"{wrong} of {len(stopped)}",
                f"{mean:.1f}",
                f"{EVALUATIONS}, {delta:g} of the stops",
                "yes" if met else "NO",
            ]
        )
    head = ["delta", "stopped", "wrong among stops", "evaluations of these", "floor", "met"]
    tables = [markdown(head, lines)]
    lines = []
    for setting, histories in HISTORIES.items():
        once = partial(rows_history, setting)
        results = place.measured(f"rows-{setting}", once, range(1 if quick else histories))
        found = [s for result in results for s in result["searches"]]
        if found:
            sizes = [s[1] for s in found if s[1] is not None]
            true = sum(s[0] for s in found)
            emulated = sum(s[2] for s in found)
            share = true / len(found)
            met = share + 2 * sqrt(TRUE * (1 - TRUE) / len(found)) >= TRUE
            lines.append(
                [
                    f"true at delta 0.2, {setting}",
                    f"{share:.2f} of {len(found)}",
                    f"{np.median(sizes):.1%}",
                    str(emulated),
                    f"{TRUE:g}, with slack",
                    "yes" if met else "NO",
                ]
            )
    head = ["rows", "measured", "certificate at t = 10", "emulated", "floor", "met"]
    tables.append(markdown(head, lines))
    return f"`python -m benchmarks.certificate --only rows`.\n{about}\n\n" + "\n\n".join(tables)
