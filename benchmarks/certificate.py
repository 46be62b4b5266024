"""Conformal regret certificates: coverage, size, time, and what stopping by them saves.

``python -m benchmarks.certificate [--quick] [--only stopping]``

Tables: three quarters of the tasks teach and calibrate (folds), the others are new and searched on
as many of their own rows, 40 steps, over random splits. Covered: the true regret is at most the
certificate at all 40 times. Spaces: 20 past tasks of functions whose maxima are known, new ones
searched over the whole space, 25 steps.
"""

from __future__ import annotations

import argparse
import logging
import time
from dataclasses import dataclass

import numpy as np

from benchmarks import certificate_stopping
from benchmarks.certificate_worlds import FAMILIES, GRID, maximum
from benchmarks.docs import PAGES, markdown, update_section
from benchmarks.transfer_data import Pairs, load_tables
from metakel import learn_prior
from metakel.data import History
from metakel.priors import Prior
from metakel.space import Float, Space

BUDGET, SPACE_BUDGET = 40, 25
DELTAS = (0.1, 0.2)
TOLERANCE = 0.05
SPLITS = {("glmnet", 50): 24, ("glmnet", 1000): 10, ("xgboost", 50): 17, ("xgboost", 1000): 10}
SETTINGS = ((15, 0.0), (30, 0.0), (60, 0.0), (30, 0.2))
REPEATS, TEACHING, NEW = 2, 20, 12


@dataclass(frozen=True, eq=False)
class Search:
    """True regrets (t,), certificates (t,) and the spread of a task, of one search."""

    delta: float
    regret: np.ndarray
    certificate: np.ndarray
    spread: float

    @property
    def covered(self) -> bool:
        """Whether no certificate was below the true regret."""
        return bool((self.regret <= self.certificate + 1e-9).all())

    @property
    def stop(self) -> int:
        """Evaluations until the certificate is at most 5 % of the spread, or all."""
        sure = np.flatnonzero(self.certificate <= TOLERANCE * self.spread)
        return int(sure[0]) + 1 if len(sure) else len(self.regret)

    @property
    def missed(self) -> bool:
        """Whether the regret at the stop exceeds the tolerance."""
        return bool(self.regret[self.stop - 1] > TOLERANCE * self.spread)


def table_searches(tasks: Pairs, rows: int, splits: int) -> tuple[list[Search], list[float]]:
    """Searches of new tasks, and CPU seconds that learning takes with its certificate."""
    d = tasks[0][0].shape[1]
    space = Space(tuple(Float(f"x{i}", -1.0, 1.0) for i in range(d)))
    found, seconds = [], []
    for split in range(splits):
        rng = np.random.default_rng([split, rows, 5])
        chosen = [rng.choice(len(y), min(rows, len(y)), replace=False) for _, y in tasks]
        part = [(X[i], y[i]) for (X, y), i in zip(tasks, chosen, strict=True)]
        order = rng.permutation(len(part))
        taught, new = order[: round(0.75 * len(part))], order[round(0.75 * len(part)) :]
        start = time.process_time()
        prior = learn_prior(History.from_pairs([part[s] for s in taught]), space)
        seconds.append(time.process_time() - start)
        for s in new:
            found += [_search_table(prior, *part[s], delta) for delta in DELTAS]
    return found, seconds


def _search_table(prior: Prior, X: np.ndarray, y: np.ndarray, delta: float) -> Search:
    optimizer = prior.optimizer(X, delta=delta)
    values = {tuple(x): value for x, value in zip(X.tolist(), y.tolist(), strict=True)}
    regret, bounds = [], []
    for _ in range(min(BUDGET, len(values))):
        x = optimizer.ask()
        optimizer.tell(x, values[tuple(x.values())])
        regret.append(max(values.values()) - optimizer.y.max())
        bounds.append(optimizer.certificate.regret)
    return Search(delta, np.array(regret), np.array(bounds), prior.certificate.spread)


def space_searches(family: str, rows: int, noise: float, repeats: int) -> list[Search]:
    """Searches of new functions over the whole space."""
    space, found = Space((Float("a", -1.0, 1.0), Float("b", -1.0, 1.0))), []
    for repeat in range(repeats):
        rng = np.random.default_rng([repeat, rows, 6])
        pairs = []
        for _ in range(TEACHING):
            f, X = FAMILIES[family](rng), rng.uniform(-1, 1, (rows, 2))
            pairs.append((X, f(X) + noise * f(GRID).std() * rng.standard_normal(rows)))
        prior = learn_prior(History.from_pairs(pairs), space)
        for _ in range(NEW):
            f = FAMILIES[family](rng)
            found += [_search_space(prior, f, noise, delta, rng) for delta in DELTAS]
    return found


def _search_space(prior: Prior, f, noise: float, delta: float, rng) -> Search:
    optimizer, best, spread = prior.optimizer(delta=delta), maximum(f), float(np.ptp(f(GRID)))
    size = noise * f(GRID).std()
    true, regret, bounds = [], [], []
    for _ in range(SPACE_BUDGET):
        x = optimizer.ask()
        true.append(float(f(np.array([list(x.values())]))[0]))
        optimizer.tell(x, true[-1] + size * rng.standard_normal())
        regret.append(max(best - true[int(np.argmax(optimizer.y))], 0.0))
        bounds.append(optimizer.certificate.regret)
    return Search(delta, np.array(regret), np.array(bounds), spread)


def table_row(name: str, rows: int, delta: float, searches: list[Search], seconds) -> list[str]:
    """One line of the first table."""
    mine = [s for s in searches if s.delta == delta]
    shown = []
    for t in (10, 30):
        bounds = np.median([s.certificate[t - 1] for s in mine])
        regret = np.quantile([s.regret[t - 1] for s in mine], 0.9)
        shown += [f"{bounds:.4f} ({bounds / mine[0].spread:.1%})", f"{regret:.4f}"]
    return [
        name,
        str(rows),
        f"{delta:g}",
        f"{np.mean([s.covered for s in mine]):.3f} of {len(mine)}",
        *shown,
        f"{np.mean([s.stop for s in mine]):.1f} / {np.mean([s.missed for s in mine]):.2f}",
        f"{np.median(seconds):.1f} s",
    ]


def space_row(family: str, rows: int, noise: float, searches: list[Search]) -> list[str]:
    """One line of the second table."""
    cells = [family, str(rows), f"{noise:g}"]
    for delta in DELTAS:
        mine = [s for s in searches if s.delta == delta]
        at = [np.median([s.certificate[t - 1] / s.spread for s in mine]) for t in (10, 25)]
        cells += [
            f"{np.mean([s.covered for s in mine]):.2f} of {len(mine)}",
            " / ".join(f"{share:.1%}" for share in at),
        ]
    at = [np.quantile([s.regret[t - 1] / s.spread for s in searches], 0.9) for t in (10, 25)]
    return [*cells, " / ".join(f"{share:.1%}" for share in at)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two splits, one repeat")
    parser.add_argument("--only", choices=["coverage", "stopping"])
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # alarms are part of what is measured
    tables = load_tables()
    if options.only != "coverage":
        write(
            "stopping", "When to stop", stopping(tables, quick=options.quick), options.update_docs
        )
    if options.only != "stopping":
        section = coverage(tables, quick=options.quick)
        write("certificate", "Certificates of the regret", section, options.update_docs)


def write(name: str, title: str, section: str, update_docs: bool) -> None:
    """Print a section, and put it into the page of benchmarks."""
    print(section)
    if update_docs:
        update_section(PAGES / "stopping.md", name, title, section)


def stopping(tables: dict[str, Pairs], *, quick: bool) -> str:
    """The section about stopping rules."""
    about = " ".join((certificate_stopping.__doc__ or "").partition("\n\n")[2].split())
    table = certificate_stopping.stopping_table(tables, quick=quick)
    return f"""`python -m benchmarks.certificate --only stopping`, which `make bench-certificate`
runs. {about}

{table}"""


def coverage(tables: dict[str, Pairs], *, quick: bool) -> str:
    """The section about coverage and size."""
    lines: list[list[str]] = []
    for (name, rows), splits in SPLITS.items():
        if name in tables:
            searches, seconds = table_searches(tables[name], rows, 2 if quick else splits)
            lines += [table_row(name, rows, delta, searches, seconds) for delta in DELTAS]
            print(*lines[-2:], sep="\n", flush=True)
    spaces = []
    for family in FAMILIES:
        for rows, noise in SETTINGS:
            searches = space_searches(family, rows, noise, 1 if quick else REPEATS)
            spaces.append(space_row(family, rows, noise, searches))
            print(spaces[-1], flush=True)
    return report(lines, spaces)


def report(lines: list[list[str]], spaces: list[list[str]]) -> str:
    """Both tables as Markdown."""
    head = ["table", "rows", "delta", "covered", "certificate, t = 10 (of the spread)", "true q90"]
    head += ["t = 30", "true q90", f"stop at {TOLERANCE:.0%}: evaluations / missed", "learning"]
    space_head = ["family", "rows", "noise"]
    for delta in DELTAS:
        space_head += [f"covered, delta {delta:g}", "certificate, t = 10 / 25"]
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    return f"""`make bench-certificate`. {about}

Tables, calibrated on recorded rows in folds. The spread is that of a usual task, the budget of a
search is {BUDGET}, and learning is CPU time with all replays:

{markdown(head, lines)}

Spaces, calibrated on emulated tasks, in shares of the spread:

{markdown([*space_head, "true q90, t = 10 / 25"], spaces)}"""


if __name__ == "__main__":
    main()
