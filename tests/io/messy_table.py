"""A table as teams keep it: three libraries, free text, ids, dates, failures, a second metric."""

from __future__ import annotations

import random
from math import log10

HEADER = (
    "run_id;started;host;data set;model;learning_rate;max_depth;subsample;num_leaves;gamma;"
    "min_samples_leaf;seed;n_jobs;fit_seconds;val_accuracy;val_auc;status;comment"
)
SETTINGS = ("model", "learning_rate", "max_depth", "subsample", "num_leaves", "gamma",
            "min_samples_leaf", "n_jobs")  # fmt: skip
LIBRARIES = ("lightgbm", "sklearn", "xgboost")


def messy_table(tasks: int = 9, runs: int = 30, *, clogged: bool = False) -> str:
    """Semicolons, decimal commas and settings that one library has and another lacks."""
    rng = random.Random(5)
    lines = [HEADER]
    for s in range(tasks):
        shift = rng.gauss(0, 0.3)
        for i in range(runs):
            model = LIBRARIES[(i + s) % 3]
            rate, depth = round(10 ** rng.uniform(-3, 0), 4), rng.randint(2, 12)
            share = rng.choice([0.5, 0.6, 0.8, 1.0])
            auc = 0.9 - 0.05 * (log10(rate) + 1.5 - shift) ** 2 - 0.002 * (depth - 6) ** 2
            auc += rng.gauss(0, 0.004) + 0.01 * (model == "lightgbm")
            failed = rng.random() < 0.05
            cells = [
                f"{rng.getrandbits(64):016x}",
                f"{1 + i % 28:02d}.0{1 + s % 9}.2024 14:{i:02d}",
                rng.choice(["node-a", "node-b", "gpu7"]),
                f"customer {s}",
                model,
                f"{rate}",
                f"{depth}",
                f"{share}",
                str(rng.choice([15, 31, 63])) if model == "lightgbm" else "",
                f"{rng.choice([0.0, 0.1, 1.0])}" if model == "xgboost" else "",
                str(rng.randint(1, 20)) if model == "sklearn" else "",
                str(rng.randrange(2**31)),
                "8",
                f"{rng.uniform(2, 90):.1f}",
                "" if failed else f"{auc - 0.05 + rng.gauss(0, 0.002):.4f}",
                "" if failed else f"{auc:.4f}",
                "timeout" if failed else "ok",
                rng.choice(["", "", f"Müller: try again, {i} of {s}"]),
            ]
            lines.append(";".join(cell.replace(".", ",", 1) if k in (5, 7, 9, 13, 14, 15) else cell
                                  for k, cell in enumerate(cells)))  # fmt: skip
    if clogged:
        cells = lines[25].split(";")
        cells[7] = "clogged"
        lines[25] = ";".join(cells)
    return "\n".join(lines) + "\n"
