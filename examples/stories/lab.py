"""A laboratory with a sheet of Suzuki couplings plans the next batch in Excel.

Real data: 247 couplings that ship with the package olymp (pip install olymp==0.0.1b0). A batch is
one temperature and one loading of palladium; the amounts of boronic ester and base are chosen.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
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


def do_experiment(folder: Path, measured: list[Coupling]) -> list[str]:
    """Run the suggestion that waits, with the nearest weighed portions; what to tell of it."""
    command = [sys.executable, "-m", "metakel", "status", "new.jsonl", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (trial,) = (t for t in json.loads(done.stdout)["trials"] if t["state"] == "pending")
    x = trial["configuration"]
    near = min(measured, key=lambda m: abs(m[3] - x["arbpin"]) + abs(m[4] - x["k3po4"]))
    used = ["--set", f"arbpin={near[3]}", "--set", f"k3po4={near[4]}"]
    return [f"{near[5]} %".replace(".", ","), "--number", str(trial["number"]), *used]


def story(folder: Path, rounds: int, batches: int) -> None:
    """Learn from the sheet; then suggest, weigh, and tell, round by round."""
    rows, sheet = couplings(), folder / "suzuki.xlsx"
    new = [row for row in rows if row[0] == NEW]
    names = list(dict.fromkeys(row[0] for row in rows if row[0] != NEW))[:batches]
    write_sheet(sheet, [row for row in rows if row[0] in names])
    metakel(folder, "learn", sheet.name, "--task", "batch", "--output", "yield", "-v")
    for _ in range(rounds):
        metakel(folder, "suggest", "prior.json", "--journal", "new.jsonl", "--task", NEW)
        metakel(folder, "tell", "new.jsonl", *do_experiment(folder, new))
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
