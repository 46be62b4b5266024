"""What every benchmark run measured: a line in history.jsonl, and a warning where it fell.

``python -m benchmarks.history [--from-git]``

A section of the docs that a benchmark writes has tables with the columns "measured" and "floor".
Their numbers are appended with the commit and the class of the machine. ``--from-git`` collects the
runs of earlier commits of the documentation.
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

from benchmarks.solver_table import machine

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "benchmarks" / "history.jsonl"
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s?(ms\b)?")
MACHINE = re.compile(r"([A-Z][^,;|\n]{1,60}, \d+ cores)")
# At least so much is taken for noise: a choice, not a measurement.
USUAL_NOISE = 0.15
SHOWN = (0.3, 30.0)
FEWEST_RUNS = 2  # before a fall can be told from noise


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


def _machine(text: str) -> str:
    found = MACHINE.search(text)
    return found[1].rpartition("on ")[2] if found else ""


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def from_git(pages: Sequence[str] = ("docs/benchmarks", "benchmarks/TABLES.md")) -> Iterator[Run]:
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
    """Collect earlier runs if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from-git", action="store_true", help="begin with committed tables")
    if parser.parse_args().from_git:
        lines = [json.dumps(asdict(run)) for run in from_git()]
        RUNS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
