"""A laboratory with one workbook: twelve experiments, one file and one command.

The yields are simulated, so that the story needs no data of others: three parts of a blend and a
temperature, in six past campaigns and a new one. The person reorders rows, changes a value that
was suggested, types ``67,1 %`` and notes a run that failed.

    python examples/stories/one_file.py [--small]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import openpyxl
from shell import metakel

PARTS = ("Water", "Oil", "Salt")


def yield_of(row: dict[str, float], level: float = 0.0) -> float:
    blend = (row["Water"] - 55) ** 2 / 60 + (row["Oil"] - 30) ** 2 / 40
    return max(0.0, 85 + level - blend - (row["Temperature"] - 72) ** 2 / 30)


def past(path: Path, runs: int) -> None:
    """Six campaigns in one sheet; the parts of every blend sum to 100 %."""
    rng, book = np.random.default_rng(0), openpyxl.Workbook()
    page = book.active
    page.append(["Campaign", *PARTS, "Temperature", "Yield (%)"])
    for k in range(6):
        level = rng.normal(0, 4)
        for _ in range(runs):
            water, oil = np.round(rng.dirichlet([4, 2, 1])[:2] * 100, 1).tolist()
            row = {"Water": water, "Oil": oil, "Salt": round(100 - water - oil, 1)}
            row["Temperature"] = round(float(rng.uniform(40, 100)), 1)
            noisy = yield_of(row, level) + rng.normal(0, 0.5)
            page.append([f"C{k}", *row.values(), round(max(0.0, float(noisy)), 1)])
    book.save(path)


def fill_in(path: Path, step: int) -> float:
    """What a person does with the open rows; the best yield so far."""
    book = openpyxl.load_workbook(path)
    page = book.active
    names = [cell.value for cell in page[1]]
    best = 0.0
    for i, cells in enumerate(page.iter_rows(min_row=2)):
        row = {name: cell.value for name, cell in zip(names, cells, strict=True)}
        if row["Yield (%)"] is None:
            if i == 1:
                cells[names.index("Temperature")].value = row["Temperature"] = 105  # really used
            value = round(yield_of(row, 2.0), 1)
            typed = f"{value} %".replace(".", ",") if i % 2 else value
            cells[-1].value = "failed" if (step, i % 4) == (1, 3) else typed
        if isinstance(cells[-1].value, float | int):
            best = max(best, cells[-1].value)
    book.save(path)
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        past(folder / "past.xlsx", 10 if small else 16)
        metakel(folder, "learn", "past.xlsx", "--task", "Campaign", "--output", "Yield (%)")
        for step in range(3):
            metakel(folder, "suggest", "prior.json", "--table", "runs.xlsx", "-n", "4")
            best = fill_in(folder / "runs.xlsx", step)
            print(f"best so far {best}")
        page = openpyxl.load_workbook(folder / "runs.xlsx").active
        rows = [[cell.value for cell in row] for row in page.iter_rows(min_row=2)]
        for row in rows:
            assert abs(sum(row[:3]) - 100) < 1e-6, row
        print(f"{len(rows)} experiments, every blend sums to 100")


if __name__ == "__main__":
    main()
