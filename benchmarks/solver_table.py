"""What is asked of the solver, and the table that says what came out."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import isnan
from pathlib import Path

TARGET_GAP = 1e-10
COLUMNS = [
    "problem", "against", "ours", "theirs", "measured", "floor", "stretch", "verdict",
    "our gap", "their gap",
]  # fmt: skip


@dataclass(frozen=True)
class Goal:
    """A number to reach: at least the floor, or with ``at_most`` not above it.

    With ``tighter``, our gap must also be no larger than the rival's.
    """

    problem: str
    against: str
    floor: float | None = None
    stretch: float | None = None
    at_most: bool = False
    unit: str = "x"
    tighter: bool = False

    def verdict(self, value: float) -> str:
        if self.floor is None or isnan(value):
            return "-"
        sign = -1 if self.at_most else 1
        if self.stretch is not None and sign * value >= sign * self.stretch:
            return "stretch"
        return "met" if sign * value >= sign * self.floor else "MISSED"

    def bound(self, number: float | None) -> str:
        return "-" if number is None else f"{'<= ' if self.at_most else ''}{number:g}{self.unit}"


RACES = [
    Goal("paper", "celer", 25, 150),
    Goal("paper", "skglm", 10, 50),
    Goal("paper", "adelie", 2, 8),
    Goal("a", "skglm", 80, 150),
    Goal("a", "adelie", 80, 150),
    Goal("b", "skglm", 40, 80),
    Goal("b", "adelie"),
    Goal("c", "gram", 4, 2, at_most=True),
    Goal("d", "skglm", 80, 150),
    Goal("e", "skglm", 40, 200),
    # Lambdas are solved one by one; power series were seven times faster, on such problems alone.
    Goal("path-paper", "adelie", 1, 2, tighter=True),
    Goal("path-a", "adelie", 10, 20, tighter=True),
]
CONVERGES = [Goal(name, "-", at_most=True) for name in ("b-low", "c-low")]
MEMORY = Goal("d", "features", 3, at_most=True)
IMPORT = Goal("import metakel", "CPU time", 0.35, at_most=True, unit=" s")
FIRST_CALL = Goal("first learn_kernel", "process start", 1.0, at_most=True, unit=" s")


@dataclass(frozen=True)
class Row:
    """One measured goal; gaps are relative to the mean square of y."""

    goal: Goal
    value: float
    ours: str
    theirs: str = "-"
    our_gap: float | None = None
    their_gap: float | None = None
    lower_bound: bool = False

    @property
    def verdict(self) -> str:
        asked = TARGET_GAP
        if self.goal.tighter and self.their_gap is not None:
            asked = min(asked, self.their_gap)
        if self.our_gap is not None and not self.our_gap <= asked:
            return "MISSED: our gap"
        if self.goal in CONVERGES:
            return "converged"
        return self.goal.verdict(self.value)

    def cells(self) -> list[str]:
        # A rival that stopped at a looser gap than ours had less to do: the ratio flatters it.
        flattered = self.their_gap is not None and self.their_gap > TARGET_GAP
        measured = (
            "-"
            if isnan(self.value)
            else f"{'> ' if self.lower_bound else ''}{self.value:.3g}{self.goal.unit}"
        )
        return [
            self.goal.problem,
            self.goal.against,
            self.ours,
            self.theirs,
            measured,
            self.goal.bound(self.goal.floor),
            self.goal.bound(self.goal.stretch),
            self.verdict,
            _gap(self.our_gap),
            _gap(self.their_gap) + (" (flattered)" if flattered else ""),
        ]


def _gap(gap: float | None) -> str:
    return "-" if gap is None else f"{gap:.0e}"


def milliseconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def as_markdown(rows: list[Row]) -> str:
    """The table with aligned columns, which reads as text and as Markdown."""
    cells = [COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    )


def machine() -> str:
    """One line about where the numbers come from."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*: (.*)", info.read_text())):
        cpu = found[1]
    packages = []
    for package in ("numpy", "scipy", "celer", "skglm"):
        try:
            packages.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            packages.append(f"no {package}")
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{cpu}, {os.cpu_count()} cores{load}, one BLAS thread; {platform.system()}, "
        f"Python {platform.python_version()}, {', '.join(packages)}"
    )
