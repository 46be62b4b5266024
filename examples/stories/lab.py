"""A laboratory with a sheet of Suzuki couplings plans the next batch in Excel.

Real data: 247 couplings that ship with the package olymp (pip install olymp==0.0.1b0). A batch is
one temperature and one loading of palladium; the amounts of boronic ester and base are chosen.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from importlib.util import find_spec
from pathlib import Path

import openpyxl
from shell import metakel

HEADER = ("batch", "temperature", "pd_mol", "arbpin", "k3po4", "yield", "day")
NEW = "85 °C, 2.0 % Pd"
Coupling = tuple[str, float, float, float, float, float]


def couplings() -> list[Coupling]:
    """Rows of the data set, with the name of their batch."""
    found = find_spec("olympus")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the couplings are in the package olymp: pip install olymp==0.0.1b0")
    path = Path(found.submodule_search_locations[0], "datasets", "dataset_suzuki", "data.csv")
    with path.open() as file:
        rows = [tuple(map(float, row)) for row in csv.reader(file)]
    return [(f"{t:g} °C, {pd} % Pd", t, pd, ester, base, y) for t, pd, ester, base, y in rows]


def write_sheet(path: Path, rows: list[Coupling]) -> None:
    """The workbook of the laboratory: a sheet with runs, and another one."""
    book = openpyxl.Workbook()
    page = book.active
    page.title = "runs"
    page.append(HEADER)
    for i, row in enumerate(rows):
        page.append([*row, f"2023-05-{1 + i % 28:02d}"])
    book.create_sheet("stock").append(["bottle", "lot"])
    book.save(path)


def do_experiments(path: Path, measured: list[Coupling]) -> None:
    """Type yields into the empty cells; the amounts are those of the nearest weighed portion."""
    book = openpyxl.load_workbook(path)
    page = book["runs"]
    places = {cell.value: cell.column for cell in page[1]}
    for row in range(2, page.max_row + 1):
        cells = {name: page.cell(row, column) for name, column in places.items()}
        if cells["yield"].value is None:
            wanted = cells["arbpin"].value, cells["k3po4"].value
            near = min(measured, key=lambda m: abs(m[3] - wanted[0]) + abs(m[4] - wanted[1]))
            cells["arbpin"].value, cells["k3po4"].value = near[3], near[4]
            cells["yield"].value = f"{near[5]} %".replace(".", ",")
    book.save(path)


def story(folder: Path, rounds: int, batches: int) -> None:
    """Learn from the sheet; then suggest into it, fill in, and read back, round by round."""
    rows, sheet = couplings(), folder / "suzuki.xlsx"
    new = [row for row in rows if row[0] == NEW]
    names = list(dict.fromkeys(row[0] for row in rows if row[0] != NEW))[:batches]
    write_sheet(sheet, [row for row in rows if row[0] in names])
    metakel(folder, "learn", sheet.name, "--task", "batch", "--output", "yield")
    for _ in range(rounds):
        table = ("--append", sheet.name, "--task", NEW)
        metakel(folder, "suggest", "prior.json", "--journal", "new.jsonl", *table)
        do_experiments(sheet, new)
        metakel(folder, "tell", "new.jsonl", "--from", sheet.name)
    metakel(folder, "status", "new.jsonl")
    best = max(row[5] for row in new)
    print(f"the best of all {len(new)} couplings of this batch has a yield of {best} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory() as folder:
        story(Path(folder), *((1, 8) if small else (3, 99)))


if __name__ == "__main__":
    main()
