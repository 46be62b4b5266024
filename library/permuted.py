"""Curves of another kind: LightGBM on permuted labels, ``python -m library.permuted``.

No configuration can learn anything, so that losses rise where they usually fall. They are no part
of the library: ``benchmarks/curves.py`` asks how often the best run is stopped on such tasks.
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np

from library.datasets import data_sets
from library.models import MODELS
from library.run import attempt, configurations

PATH = Path(__file__).with_name("permuted.csv.gz")
DATA_SETS, CONFIGURATIONS, SEED = 24, 40, 0


def read_permuted() -> list[dict[str, str]]:
    """Rows as those of the runs, with data set, configuration and curve."""
    with gzip.open(PATH, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    known = [data for data in data_sets() if data.kind == "classification"]
    known.sort(key=lambda data: data.arrays()[0].size)
    rows, model = [], MODELS["lightgbm"]
    for data in known[:DATA_SETS]:
        X, y = data.arrays()
        labels = np.random.default_rng(SEED).permutation(y)
        for k, parameters in enumerate(configurations(model, data)[:CONFIGURATIONS]):
            curve = attempt(model, data, parameters, (X, labels)).get("curve", {})
            short = {step: float(f"{value:.5g}") for step, value in curve.items()}
            rows.append([data.name, k, json.dumps(short)])
    text = "\n".join(
        [
            "dataset,configuration,curve",
            *(f'{name},{k},"{curve.replace(chr(34), chr(34) * 2)}"' for name, k, curve in rows),
        ]
    )
    PATH.write_bytes(gzip.compress(f"{text}\n".encode(), mtime=0))


if __name__ == "__main__":
    main()
