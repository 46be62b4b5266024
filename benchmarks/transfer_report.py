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
FLOORS = {"glmnet": (3.1, 6.5), "xgboost": (27.0, 35.0)}
# They were set on other random splits of the same tables. What methods need there that we have
# too: the ratio to those is the part of a floor that does not depend on the splits.
THERE = {
    "glmnet": {COLD: (6.7, 11.6), "history GP + mean": (4.1, 9.3)},
    "xgboost": {COLD: (32.0, 39.6), "history GP + mean": (24.3, 32.5)},
}
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

The floors in evaluations were set with this protocol on other random splits, which we do not have,
and splits of the xgboost table differ a lot: in 14 of 48 tasks a single row of 1000 lies within
0.05. Methods without history need there what they need here (random search 45.5 / 48.6, cold GP
with EI 34.1 / 42.6), methods with history fewer: the GP with hyper-parameters and mean from the
history 24.3 / 32.5 with a first choice at .42, RGPE 26.1 / 34.3 with .40. So those splits look
kinder to what is learned, by five to seven evaluations to 0.05 for two methods of both studies; the
rows "over history GP + mean" take that out, as far as our version of it is theirs. The rows "over
cold GP, UCB" flatter us: ours needs more evaluations than theirs, 32.0 / 39.6. The intervals of the
leading methods overlap: read parity with RGPE and the GP fitted on the history on xgboost, not
victory. The method was developed on other splits of these same tables; fresh ones are on
the next page. A price of the guard below 1 is noise, not a gain."""


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
                parts += [head, methods_table(related)]
    parts += ["\n### Floors\n", markdown(("what", "measured", "floor", "met"), _floors(runs))]
    more = [run for run in runs if run.kind == "more splits"]
    if more:
        parts += ["\n### metakel on other splits\n", _scatter(more), SCATTER]
    return "\n".join([*parts, NOTE])


def evaluations(run: Run, level: float) -> int:
    """Evaluations to a regret, censored at the horizon."""
    reached = np.flatnonzero(np.array(run.regret) <= level)
    return int(reached[0]) + 1 if reached.size else len(run.regret)


def by_task(runs: Sequence[Run], level: float) -> np.ndarray:
    """Mean evaluations of every test task."""
    tasks = sorted({run.task for run in runs})
    return np.array([np.mean([evaluations(r, level) for r in runs if r.task == t]) for t in tasks])


def _interval(values: np.ndarray) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def methods_table(runs: Sequence[Run]) -> str:
    """Every method on one table, the fastest to 0.05 first."""
    methods = list(dict.fromkeys(run.method for run in runs))
    curves = np.array([[r.regret for r in runs if r.method == method] for method in methods])
    ranks = mean_ranks(curves)
    rows = []
    for method, rank in zip(methods, ranks, strict=True):
        own = [r for r in runs if r.method == method]
        regret = np.mean([r.regret for r in own], axis=0)
        cells = [f"{regret[t - 1]:.3f}" for t in TIMES]
        for level in LEVELS:
            low, high = _interval(by_task(own, level))
            cells.append(f"{mean_evaluations(own, level):.1f} ({low:.1f}-{high:.1f})")
        reached = np.mean([min(r.regret) <= LEVELS[0] for r in own])
        cost = f"{np.median([r.fit for r in own]):.2f} + {np.median([r.search for r in own]):.3f}"
        rows.append(
            (mean_evaluations(own, 0.05), [method, *cells, f"{reached:.0%}", f"{rank:.1f}", cost])
        )
    rows.sort(key=lambda row: row[0])
    head = ("method", *(f"r{t}" for t in TIMES), "ev05", "ev01", "reached", "rank", "CPU s")
    return markdown(head, [cells for _, cells in rows])


def mean_evaluations(runs: Sequence[Run], level: float) -> float:
    """Mean evaluations to a regret."""
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
        cold = pick(table, COLD)
        for i, (level, floor) in enumerate(zip(LEVELS, FLOORS[table], strict=True)):
            value = mean_evaluations(pick(table, OURS), level)
            what = f"evaluations to {level}, {table}"
            lines.append(_line(what, value, floor))
            for rival, needs in THERE[table].items():
                share = value / mean_evaluations(pick(table, rival), level)
                lines.append(_line(f"{what}, over {rival}", share, floor / needs[i]))
        for kind in ("shuffled", "mirrored"):
            ratio = mean_evaluations(pick(table, OURS, kind), 0.05) / mean_evaluations(cold, 0.05)
            lines.append(_line(f"{kind} history over {COLD}, {table}", ratio, 1.15))
    if tables:
        lines += _joint_floors(tables, pick)
    return lines


def _scatter(runs: Sequence[Run]) -> str:
    """How much the splits matter, from many of them."""
    lines = []
    for table in dict.fromkeys(run.table for run in runs):
        own = [run for run in runs if run.table == table]
        splits = sorted({run.split for run in own})
        for level, floor in zip(LEVELS, FLOORS[table], strict=True):
            means = np.array(
                [mean_evaluations([r for r in own if r.split == s], level) for s in splits]
            )
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
            np.log(
                mean_evaluations(pick(t, method), level) / mean_evaluations(pick(t, other), level)
            )
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
