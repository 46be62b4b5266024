"""The tables of `benchmarks.transfer`: methods, misled histories, floors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.docs import markdown
from benchmarks.transfer_rivals import mean_ranks

if TYPE_CHECKING:
    from benchmarks.transfer import Run

TIMES = (1, 3, 5, 10, 20, 50)
LEVELS = (0.05, 0.01)
DRAWS = 2000
SHOWN = 5  # splits in the tables of methods
OURS, COLD = "metakel", "cold GP, UCB"
# Floors were set on other random splits of the same tables, where cold GP-UCB needs 6.7 / 11.6
# (glmnet) and 32.0 / 39.6 (xgboost) evaluations; hence also the ratio to cold GP-UCB.
FLOORS = {"glmnet": (3.1, 6.5, 6.7, 11.6), "xgboost": (27.0, 35.0, 32.0, 39.6)}
LEGEND = """\
r_t is normalised simple regret after t evaluations; ev05 and ev01 are mean evaluations to 0.05 and
0.01, censored at 50, with 95 % bootstrap intervals over test tasks; rank is the mean over times and
runs; CPU seconds are medians, one thread, learning + 50 asks and tells. "hand-set Matern" is our
own cold start: level and scale from the history, shape from nowhere. RGPE and "history GP + mean"
are compact versions of our own (`benchmarks/transfer_rivals.py`), not the authors' code."""

SCATTER = """
Five splits are few. On these others, which no table above uses, our method alone was run: the mean
with its standard error over splits, the range of single splits, and how averages of five of them
scatter (2000 draws). Variants of the method were compared on them, and none was kept."""

NOTE = """\

The floors in evaluations were set with this protocol on other random splits, which we do not have.
There random search needs 45.5 / 48.6 evaluations on xgboost and a cold GP with EI 34.1 to 0.05, as
here; cold GP-UCB needs 32.0 / 39.6, fewer than ours, and the first choice of a learned mean has a
regret of .42, lower than in any of six sets of three other splits that we drew (.49 to .65). So
those splits look kinder to learned means, and our cold GP-UCB is probably a weaker rival than
theirs, which would make the rows "over cold GP-UCB" flatter us. Splits of the xgboost table differ
a lot, since in 14 of 48 tasks a single row of 1000 lies within 0.05. The intervals of the leading
methods overlap: read parity with RGPE and the GP fitted on the history on xgboost, not victory. The
method was developed on other splits of these same tables, so fresh tables will be somewhat less
kind. A price of the guard below 1 is noise, not a gain."""


def report(runs: Sequence[Run]) -> str:
    """Markdown of everything that was measured."""
    parts = ["Command: `make bench-transfer` (`python -m benchmarks.transfer --update-docs`).\n"]
    parts.append(LEGEND)
    for table in dict.fromkeys(run.table for run in runs):
        for rows in sorted({run.rows for run in runs}, reverse=True):
            chosen = [r for r in runs if r.table == table and r.rows == rows]
            related = [r for r in chosen if r.kind == "related"]
            if related:
                head = f"\n### {table}, {rows} recorded rows per past task\n"
                parts += [head, _methods(related)]
    parts += ["\n### Floors\n", markdown(("what", "measured", "floor", "met"), _floors(runs))]
    more = [run for run in runs if run.kind == "more splits"]
    if more:
        parts += ["\n### metakel on other splits\n", _scatter(more), SCATTER]
    return "\n".join([*parts, NOTE])


def evaluations(run: Run, level: float) -> int:
    """Evaluations to a regret, censored at the horizon."""
    reached = np.flatnonzero(np.array(run.regret) <= level)
    return int(reached[0]) + 1 if reached.size else len(run.regret)


def _by_task(runs: Sequence[Run], level: float) -> np.ndarray:
    """Mean evaluations of every test task."""
    tasks = sorted({run.task for run in runs})
    return np.array([np.mean([evaluations(r, level) for r in runs if r.task == t]) for t in tasks])


def _interval(values: np.ndarray) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _methods(runs: Sequence[Run]) -> str:
    methods = list(dict.fromkeys(run.method for run in runs))
    curves = np.array([[r.regret for r in runs if r.method == method] for method in methods])
    ranks = mean_ranks(curves)
    rows = []
    for method, rank in zip(methods, ranks, strict=True):
        own = [r for r in runs if r.method == method]
        regret = np.mean([r.regret for r in own], axis=0)
        cells = [f"{regret[t - 1]:.3f}" for t in TIMES]
        for level in LEVELS:
            low, high = _interval(_by_task(own, level))
            cells.append(f"{_mean(own, level):.1f} ({low:.1f}-{high:.1f})")
        reached = np.mean([min(r.regret) <= LEVELS[0] for r in own])
        cost = f"{np.median([r.fit for r in own]):.2f} + {np.median([r.search for r in own]):.3f}"
        rows.append((_mean(own, 0.05), [method, *cells, f"{reached:.0%}", f"{rank:.1f}", cost]))
    rows.sort(key=lambda row: row[0])
    head = ("method", *(f"r{t}" for t in TIMES), "ev05", "ev01", "reached", "rank", "CPU s")
    return markdown(head, [cells for _, cells in rows])


def _mean(runs: Sequence[Run], level: float) -> float:
    return float(np.mean([evaluations(run, level) for run in runs]))


def _floors(runs: Sequence[Run]) -> list[list[str]]:
    rows = max(run.rows for run in runs)
    tables = [t for t in dict.fromkeys(run.table for run in runs) if t in FLOORS]

    def pick(table: str, method: str, kind: str = "related") -> list[Run]:
        return [
            r for r in runs if (r.table, r.method, r.kind, r.rows) == (table, method, kind, rows)
        ]

    lines: list[list[str]] = []
    for table in tables:
        *floors, cold05, cold01 = FLOORS[table]
        ours, cold = pick(table, OURS), pick(table, COLD)
        for level, floor, reference in zip(LEVELS, floors, (cold05, cold01), strict=True):
            value, against = _mean(ours, level), _mean(ours, level) / _mean(cold, level)
            goal = floor / reference
            what = f"evaluations to {level}, {table}"
            lines.append(_line(what, value, floor))
            lines.append(_line(f"{what}, over cold GP-UCB", against, goal))
        for kind in ("shuffled", "mirrored"):
            ratio = _mean(pick(table, OURS, kind), 0.05) / _mean(cold, 0.05)
            lines.append(_line(f"{kind} history over cold GP-UCB, {table}", ratio, 1.15))
    if tables:
        lines += _joint_floors(tables, pick)
    return lines


def _scatter(runs: Sequence[Run]) -> str:
    """How much the splits matter, from many of them."""
    lines = []
    for table in dict.fromkeys(run.table for run in runs):
        own = [run for run in runs if run.table == table]
        splits = sorted({run.split for run in own})
        for level, floor in zip(LEVELS, FLOORS[table], strict=False):
            means = np.array([_mean([r for r in own if r.split == s], level) for s in splits])
            error = means.std(ddof=1) / np.sqrt(len(means))
            draws = np.random.default_rng(0).integers(len(means), size=(DRAWS, SHOWN))
            fives = means[draws].mean(axis=1)
            cells = (f"{means.mean():.1f} ± {error:.1f}", f"{means.min():.1f}-{means.max():.1f}")
            share = f"{np.mean(fives <= floor):.0%}"
            what = [f"evaluations to {level}, {table}", str(len(splits)), *cells]
            lines.append([*what, f"{fives.std():.1f}", f"{floor:g}", share])
    head = (
        "what",
        "splits",
        "mean ± se",
        "one split",
        "sd of 5 splits",
        "floor",
        "5 splits meet it",
    )
    return markdown(head, lines)


def _joint_floors(tables, pick) -> list[list[str]]:
    def ratio(method: str, other: str) -> float:
        logs = [
            np.log(_mean(pick(t, method), level) / _mean(pick(t, other), level))
            for t in tables
            for level in LEVELS
        ]
        return float(np.exp(np.mean(logs)))

    ours = [run for table in tables for run in pick(table, OURS)]
    return [
        _line("price of the guard", ratio(OURS, "metakel, no guard"), 1.05),
        _line(
            "kernel alone over hand-set Matern",
            ratio("metakel, zero mean (paper)", "hand-set Matern"),
            0.95,
        ),
        _line("learning, s (largest)", max(run.fit for run in ours), 0.5),
        _line("50 asks and tells, s (median)", float(np.median([r.search for r in ours])), 0.05),
    ]


def _line(what: str, value: float, floor: float) -> list[str]:
    return [what, f"{value:.3g}", f"{floor:.3g}", "yes" if value <= floor else "NO"]
