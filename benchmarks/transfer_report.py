"""The tables of `benchmarks.transfer`: all methods on all tables, unrelated histories, floors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.docs import markdown
from benchmarks.transfer_data import DEVELOPED, NEW, SOURCES, load_table
from benchmarks.transfer_runs import MISLED, SLOW, SLOW_SPLITS, SLOW_TESTS, Run

TIMES = (1, 3, 5, 10, 20, 50)
LEVELS = (0.05, 0.01)
DRAWS = 2000
OURS, COLD, EMPIRICAL = "metakel", "cold GP, UCB", "empirical mean + covariance"
COLD_GPS = (COLD, "cold GP, logEI")
LEGEND = f"""\
Two thirds of the tasks teach, 50 recorded rows each, and the others are searched; splits and seeds
were fixed in advance. Ratios are those of mean evaluations to within 5 % of the spread between best
and median row (ev05), censored at 50, on the same searches for both methods; means over tables are
geometric, with 95 % bootstrap intervals over test tasks. "Medians" compares the median search of
both methods. Methods marked with * take seconds or minutes per search and were run on
{SLOW_SPLITS} splits with {SLOW_TESTS} test tasks each. RGPE without "BoTorch", "history GP + mean",
"portfolio", the empirical mean and covariance and the cold GPs are compact versions of our own
(`benchmarks/transfer_rivals.py`); the others are their authors' code
(`benchmarks/transfer_peers.py`). Samplers of OptunaHub are not among them: they are downloaded when
they are used."""
PER_TABLE = """\
r_t is normalised simple regret after t evaluations; ev05 and ev01 are evaluations to 0.05 and 0.01:
the mean with its interval over test tasks, and the median. CPU seconds are medians, one thread,
learning + 50 asks and tells."""


def report(runs: Sequence[Run], *, seed: int = 0) -> str:
    """Markdown of everything that was measured."""
    names = list(dict.fromkeys(run.table for run in runs))
    command = "make bench-fresh" if seed else "make bench-transfer"
    options = f" --seed {seed}" if seed else ""
    parts = [
        f"Command: `{command}` (`python -m benchmarks.transfer{options} --update-docs`).",
        "",
        LEGEND,
        "",
        _tables(names, seed),
        "",
        summary(runs, names),
    ]
    floors = _floors(runs, names, seed)
    if floors:
        parts += ["\n### Floors\n", markdown(("what", "measured", "floor", "met"), floors)]
    parts += ["", PER_TABLE]
    for name in names:
        related = [run for run in runs if run.table == name and run.kind == "related"]
        parts += [f"\n### {name}\n", methods_table(related)]
    return "\n".join(parts)


def _tables(names: Sequence[str], seed: int) -> str:
    lines = []
    for name in names:
        tasks = load_table(name, seed)
        known = SOURCES.get(name)
        rows = sorted(len(y) for _, y in tasks)
        lines.append(
            [
                name,
                "a table of METAKEL_DATA" if known is None else known.about,
                str(len(tasks)),
                str(rows[len(rows) // 2]),
                str(tasks[0][0].shape[1]),
                NEW if known is None or seed else known.looked_at,
            ]
        )
    return markdown(("table", "what", "tasks", "rows", "columns", "looked at"), lines)


def evaluations(run: Run, level: float) -> int:
    """Evaluations to a regret, censored at the horizon."""
    reached = np.flatnonzero(np.array(run.regret) <= level)
    return int(reached[0]) + 1 if reached.size else len(run.regret)


def summary(runs: Sequence[Run], names: Sequence[str]) -> str:
    """Evaluations to 0.05 over those of cold GP-UCB and over ours, by method and table."""
    entries = [(m, "related") for m in dict.fromkeys(run.method for run in runs)]
    entries += [(OURS, kind) for kind in MISLED if any(run.kind == kind for run in runs)]
    lines = []
    for method, kind in entries:
        cold = Pairing(runs, names, method, kind, COLD)
        if not cold.tables:
            continue
        star = " *" if method in SLOW else ""
        title = f"{method}{star}" if kind == "related" else f"{method}, {kind} history"
        ours = Pairing(runs, names, method, kind, OURS)
        cells = [title, cold.shown(), ours.shown(), f"{cold.medians():.2f}"]
        each = [Pairing(runs, [t], method, kind, COLD) for t in names]
        lines.append(
            (cold.ratio(), [*cells, *(f"{p.ratio():.2f}" if p.tables else "-" for p in each)])
        )
    lines.sort(key=lambda line: line[0])
    head = ("ev05 over cold GP, UCB", "all tables", "over metakel", "medians", *names)
    return markdown(head, [cells for _, cells in lines])


class Pairing:
    """Evaluations to 0.05 of two methods in the same searches, by table and test task."""

    def __init__(
        self, runs: Sequence[Run], names: Sequence[str], method: str, kind: str, rival: str
    ) -> None:
        self.tables: dict[str, np.ndarray] = {}  # (tasks, 2) means over splits
        self.searches: dict[str, np.ndarray] = {}  # (searches, 2)
        for name in names:
            sides = []
            for who, how in ((method, kind), (rival, "related")):
                own = [r for r in runs if (r.table, r.method, r.kind) == (name, who, how)]
                sides.append({(r.split, r.task): evaluations(r, LEVELS[0]) for r in own})
            both = sorted(sides[0].keys() & sides[1].keys())
            if not both:
                continue
            pairs = np.array([[side[key] for side in sides] for key in both], dtype=float)
            tasks = np.array([task for _, task in both])
            self.searches[name] = pairs
            means = [pairs[tasks == task].mean(axis=0) for task in np.unique(tasks)]
            self.tables[name] = np.array(means)

    def ratio(self) -> float:
        """Geometric mean over tables of ratios of mean evaluations."""
        logs = [np.log(a[:, 0].mean() / a[:, 1].mean()) for a in self.searches.values()]
        return float(np.exp(np.mean(logs)))

    def medians(self) -> float:
        """Geometric mean over tables of ratios of the medians."""
        middle = [np.median(a, axis=0) for a in self.searches.values()]
        return float(np.exp(np.mean([np.log(a / b) for a, b in middle])))

    def shown(self) -> str:
        """With its interval: test tasks are drawn anew, the same for both methods."""
        if not self.tables:
            return "-"
        rng, draws = np.random.default_rng(0), np.zeros(DRAWS)
        for a in self.tables.values():
            chosen = a[rng.integers(len(a), size=(DRAWS, len(a)))].mean(axis=1)  # (DRAWS, 2)
            draws += np.log(chosen[:, 0] / chosen[:, 1]) / len(self.tables)
        low, high = np.exp(np.quantile(draws, [0.025, 0.975]))
        return f"{self.ratio():.2f} ({low:.2f}-{high:.2f})"


def methods_table(runs: Sequence[Run]) -> str:
    """Every method on one table, the fastest to 0.05 first."""
    rows = []
    for method in dict.fromkeys(run.method for run in runs):
        own = [r for r in runs if r.method == method]
        regret = np.mean([r.regret for r in own], axis=0)
        cells = [f"{regret[t - 1]:.3f}" for t in TIMES]
        for level in LEVELS:
            needed = [evaluations(run, level) for run in own]
            low, high = _interval(_by_task(own, level))
            middle = np.median(needed)
            cells.append(f"{np.mean(needed):.1f} ({low:.1f}-{high:.1f}), {middle:g}")
        reached = np.mean([min(r.regret) <= LEVELS[0] for r in own])
        cost = f"{np.median([r.fit for r in own]):.2f} + {np.median([r.search for r in own]):.3f}"
        mean = np.mean([evaluations(run, LEVELS[0]) for run in own])
        rows.append((mean, [method, str(len(own)), *cells, f"{reached:.0%}", cost]))
    rows.sort(key=lambda row: row[0])
    times = [f"r{t}" for t in TIMES]
    head = ("method", "searches", *times, "ev05: mean, median", "ev01", "reached", "CPU s")
    return markdown(head, [cells for _, cells in rows])


def _by_task(runs: Sequence[Run], level: float) -> np.ndarray:
    """Mean evaluations of every test task."""
    tasks = sorted({run.task for run in runs})
    return np.array([np.mean([evaluations(r, level) for r in runs if r.task == t]) for t in tasks])


def _interval(values: np.ndarray) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _floors(runs: Sequence[Run], names: Sequence[str], seed: int) -> list[list[str]]:
    own = [run for run in runs if run.method == OURS and run.kind == "related"]
    names = [n for n in names if Pairing(runs, [n], OURS, "related", COLD).tables]
    if not names:
        return []
    untouched = [n for n in names if seed or n not in SOURCES or SOURCES[n].looked_at != DEVELOPED]
    lines = []
    for what, some in (("all tables", names), ("tables not used in development", untouched)):
        cold = Pairing(runs, some, OURS, "related", COLD)
        if cold.tables:
            lines.append(_line(f"evaluations to 0.05 over {COLD}, {what}", cold.ratio(), 0.54))
            lines.append(_line(f"median search over {COLD}'s, {what}", cold.medians(), 0.40))
    over = Pairing(runs, names, OURS, "related", EMPIRICAL)
    if over.tables:
        lines.append(_line(f"over {EMPIRICAL}", over.ratio(), 0.92))
    for kind in MISLED:
        names = [n for n in names if Pairing(runs, [n], OURS, kind, COLD).tables]
        costs = {name: _over_best_cold(runs, name, kind) for name in names}
        if not costs:
            continue
        worst = max(costs, key=lambda name: costs[name])
        what = f"{kind} history over the best cold GP, worst table ({worst})"
        lines.append(_line(what, costs[worst], 1.15))
        lines += [
            _line(
                f"{kind} history over {COLD}, {name}",
                Pairing(runs, [name], OURS, kind, COLD).ratio(),
                1.15,
            )
            for name in names
        ]
    lines.append(_line("learning, s (largest)", max(run.fit for run in own), 0.5))
    asks = float(np.median([run.search for run in own]))
    lines.append(_line("50 asks and tells, s (median)", asks, 0.05))
    return lines


def _over_best_cold(runs: Sequence[Run], name: str, kind: str) -> float:
    found = [Pairing(runs, [name], OURS, kind, rival) for rival in COLD_GPS]
    return max(p.ratio() for p in found if p.tables)


def _line(what: str, value: float, floor: float) -> list[str]:
    return [what, f"{value:.3g}", f"{floor:.3g}", "yes" if value <= floor else "NO"]
