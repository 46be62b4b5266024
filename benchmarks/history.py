"""What every benchmark run measured: a line in history.jsonl, a page, and a warning where it fell.

``python -m benchmarks.history [--from-git]``

A section of the docs that a benchmark writes has tables with the columns "measured" and "floor".
Their numbers are appended here with the commit and the class of the machine; `draw_page` draws
them over time. ``--from-git`` collects the runs of earlier commits of the documentation.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from statistics import median

from benchmarks.docs import markdown
from benchmarks.solver_table import machine

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "benchmarks" / "history.jsonl"
PAGE, PICTURE = ROOT / "docs" / "performance.md", ROOT / "docs" / "img" / "performance.png"
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s?(ms\b)?")
MACHINE = re.compile(r"([A-Z][^,;|\n]{1,60}, \d+ cores)")
# At least so much is taken for noise: a choice, not a measurement.
USUAL_NOISE = 0.15
SHOWN = (0.3, 30.0)
FEWEST_RUNS = 2  # before a fall can be told from noise
HEAD = """\
# Performance over time

Every benchmark run of `make bench` adds a line to `benchmarks/history.jsonl`: date, commit, class
of the machine, and every number that has a floor. This page is drawn from that file by
`python -m benchmarks.history`. A run warns when a number is worse than the median of earlier runs
on the same class of machine by more than their noise, which is their largest deviation so far and
at least 15 %.

![Measured over floor](img/performance.png)

From 1 on a floor is met. Each line is a number of a table below. *Worst* and *best*
are over all runs; "over floor" is how far the latest run is on the right side of its floor. Runs
before 2026-11-17 were collected from committed tables: date and commit are those of the page,
the code measured may be slightly older, and runs that were not committed are missing.

Two floors were restated. The path of the paper's problem is asked to be as fast as adelie, not 10
times faster: lambdas are solved one by one since, as power series (read 11x) paid on such problems
alone. `import metakel` may take 0.35 s of CPU instead of
0.5 s: it loads its modules when they are used since and takes 0.03 s, and `from metakel import *`,
which loads all of them, 0.46 to 0.63 s ([how this is
measured](benchmarks/speed.md#the-time-to-start)).
"""


@dataclass(frozen=True)
class Measurement:
    """One number with a floor; ``lower`` says that smaller is better."""

    value: float
    floor: float
    lower: bool

    @property
    def over_floor(self) -> float:
        """From 1 on the floor is met; of a limit on a number that is 0, infinitely often."""
        if not self.lower:
            return self.value / self.floor
        return self.floor / self.value if self.value else inf


@dataclass(frozen=True)
class Run:
    """What one benchmark measured at one time."""

    date: str
    commit: str
    machine: str
    section: str
    measured: dict[str, Measurement]


def measurements(section: str) -> dict[str, Measurement]:
    """The numbers with a floor in the tables of a section, by the words that name their row."""
    found = {}
    for table in re.findall(r"(?:^\|.*\|\n?)+", section, re.M):
        head, _, *body = [
            [cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()
        ]
        if not {"measured", "floor"} <= set(head):
            continue
        words = 2 if head[0] == "problem" else 1
        for row in body:
            value, floor = _number(row[head.index("measured")]), row[head.index("floor")]
            limit = _number(floor)
            if value is not None and limit:
                # "25x" is a ratio to reach; a plain number, as "<= 5 ms", is a limit.
                lower = not floor.startswith(">") and (floor.startswith("<") or floor[-1] != "x")
                found[" ".join(row[:words])] = Measurement(value, limit, lower)
    return found


def _number(cell: str) -> float | None:
    """The first number of a cell; milliseconds are given in seconds."""
    found = NUMBER.search(cell)
    return None if found is None else float(found[1]) * (1e-3 if found[2] else 1)


def record(section: str, text: str) -> list[str]:
    """Append a run to the history and draw the page; gives a warning for every fall."""
    measured = measurements(text)
    if not measured:
        return []
    run = Run(
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M"), commit(),
        _machine(text) or _machine(machine()), section, measured,
    )  # fmt: skip
    warnings = falls(read(), run)
    with RUNS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(run)) + "\n")
    draw_page()
    return warnings


def commit() -> str:
    """The commit of the working tree, in short."""
    return _git("rev-parse", "--short", "HEAD")


def read() -> list[Run]:
    """All runs, oldest first."""
    if not RUNS.exists():
        return []
    lines = map(json.loads, RUNS.read_text(encoding="utf-8").splitlines())
    return [
        Run(**{**line, "measured": {n: Measurement(**m) for n, m in line["measured"].items()}})
        for line in lines
    ]


def falls(past: Iterable[Run], run: Run) -> list[str]:
    """Numbers that are worse than those of earlier runs on such a machine by more than noise."""
    like = [p for p in past if (p.section, p.machine) == (run.section, run.machine)]
    found = []
    for name, now in run.measured.items():
        before = [p.measured[name].value for p in like if name in p.measured]
        if len(before) < FEWEST_RUNS or now.value <= 0 or min(before) <= 0:
            continue
        middle = median(before)
        noise = max(USUAL_NOISE, *(abs(value / middle - 1) for value in before))
        worse = now.value / middle - 1 if now.lower else middle / now.value - 1
        if worse > noise:
            found.append(
                f"{run.section}: {name} is {now.value:g}, the median of {len(before)} runs on "
                f"{run.machine} is {middle:g}; worse by {worse:.0%}, noise is {noise:.0%}"
            )
    return found


def draw_page() -> None:
    """docs/performance.md and its picture, from all runs."""
    runs = read()
    sections = list(dict.fromkeys(run.section for run in runs))
    parts = [HEAD]
    for section in sections:
        mine = [run for run in runs if run.section == section]
        parts += [f"## {section}\n", _table(mine), ""]
    PAGE.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    _draw(runs, sections)


def _table(runs: list[Run]) -> str:
    rows = []
    for name, latest in runs[-1].measured.items():
        values = [run.measured[name].value for run in runs if name in run.measured]
        best, worst = (min, max) if latest.lower else (max, min)
        sign = "<=" if latest.lower else ">="
        rows.append(
            [
                name, f"{latest.value:g}", f"{sign} {latest.floor:g}", f"{latest.over_floor:.2f}",
                f"{worst(values):g}", f"{best(values):g}", str(len(values)),
            ]
        )  # fmt: skip
    where = f"Latest: {runs[-1].date[:10]}, commit {runs[-1].commit}, {runs[-1].machine}."
    head = ["what", "latest", "floor", "over floor", "worst", "best", "runs"]
    return f"{where}\n\n{markdown(head, rows)}"


def _draw(runs: list[Run], sections: list[str]) -> None:
    """A panel per benchmark, with a line for every number over the runs."""
    from matplotlib.figure import Figure

    columns = 4
    rows = -(-len(sections) // columns)
    figure = Figure(figsize=(10, 2.4 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for panel, section in zip(panels, sections, strict=False):
        mine = [run for run in runs if run.section == section]
        for name in dict.fromkeys(n for run in mine for n in run.measured):
            points = [(i, run.measured[name].over_floor)
                      for i, run in enumerate(mine, start=1) if name in run.measured]  # fmt: skip
            panel.plot(*zip(*points, strict=True), "o-", ms=3, lw=0.9)
        panel.axhspan(1e-3, 1, color="0.92", lw=0)
        panel.set(
            title=section, yscale="log", ylim=SHOWN, xlim=(0.5, len(mine) + 0.5), xlabel="run"
        )
        panel.set_xticks(range(1, len(mine) + 1))
        panel.tick_params(labelsize=8)
    for panel in panels[len(sections) :]:
        panel.set_visible(False)
    figure.supylabel("over the floor (grey: missed)", fontsize=9)
    figure.savefig(PICTURE, dpi=110)


def _machine(text: str) -> str:
    found = MACHINE.search(text)
    return found[1].rpartition("on ")[2] if found else ""


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def from_git(pages: Sequence[str] = ("docs/benchmarks.md", "docs/benchmarks")) -> Iterator[Run]:
    """Runs whose sections were committed, oldest first; a section may move to another page."""
    seen: dict[str, dict[str, Measurement]] = {}
    for line in _git("log", "--reverse", "--format=%h %cI", "--", *pages).splitlines():
        commit, date = line.split(" ")
        files = _git("ls-tree", "-r", "--name-only", commit, *pages).splitlines()
        text = "\n".join(_git("show", f"{commit}:{file}") for file in files)
        for name, section in re.findall(r"<!-- (\w+):begin -->\n(.*?)<!-- \w+:end -->", text, re.S):
            measured = measurements(section)
            if measured and measured != seen.get(name):
                yield Run(date[:16], commit, _machine(section) or "unknown", name, measured)
            seen[name] = measured


def main() -> None:
    """Draw the page again, after collecting earlier runs if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from-git", action="store_true", help="begin with committed tables")
    if parser.parse_args().from_git:
        lines = [json.dumps(asdict(run)) for run in from_git()]
        RUNS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw_page()


if __name__ == "__main__":
    main()
