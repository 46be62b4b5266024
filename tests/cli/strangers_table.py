"""A stranger's table: names with spaces and signs, missing cells, a value that attacks."""

from __future__ import annotations

import random
from functools import cache
from math import log10

HEADER = "Data Set (v2),learning rate,n=layers,opt imizer,machine,büild,acc %"
TASK, OUTPUT = "Data Set (v2)", "acc %"
KINDS = ("adam", "sgd", "$(touch owned); rm -rf {learning rate}")


@cache
def awkward_table(tasks: int = 12, runs: int = 16) -> str:
    """Names with spaces and signs, missing cells, constant columns, an integer, a category."""
    rng = random.Random(1)
    lines = [HEADER]
    for s in range(tasks):
        shift = rng.gauss(0, 0.3)
        for _ in range(runs):
            rate, layers, kind = 10 ** rng.uniform(-4, 0), rng.randint(1, 8), rng.choice(KINDS)
            value = 90 - 10 * (log10(rate) + 2 - shift) ** 2 - (layers - 4) ** 2
            value += rng.gauss(0, 0.2) - 3 * (kind != "adam")
            cells = ["" if rng.random() < 0.03 else str(c) for c in (rate, layers, kind, 7)]
            last = rng.choice(["NaN", "", "inf"]) if rng.random() < 0.03 else str(value)
            lines.append(",".join([f'"task, {s}"', *cells, f"v{s % 3}", last]))
    return "\r\n".join(lines)
