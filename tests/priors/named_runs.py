"""Simulated runs with named parameters, and a search on one more task."""

from __future__ import annotations

import numpy as np


def table(rng, m=10, n=30):
    rows = {"task": [], "rate": [], "depth": [], "kind": [], "loss": []}
    for s in range(m):
        shift = rng.normal(0, 0.3)
        for _ in range(n):
            rate, depth = 10 ** rng.uniform(-4, 0), int(rng.integers(1, 9))
            kind = str(rng.choice(["u", "v"]))
            rows["task"].append(s)
            rows["rate"].append(float(rate))
            rows["depth"].append(depth)
            rows["kind"].append(kind)
            rows["loss"].append(loss(rate, depth, kind, shift))
    return rows


def loss(rate, depth, kind, shift=0.0):
    return (np.log10(rate) + 2 + shift) ** 2 + 0.05 * (depth - 5) ** 2 + 0.5 * (kind == "u")


def run(optimizer, steps=12):
    for _ in range(steps):
        row = optimizer.ask()
        optimizer.tell(row, loss(**row))
    return optimizer
