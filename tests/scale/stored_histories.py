"""Small histories, in memory and as Parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import metakel as mk

LEGENDRE = mk.kernels.legendre(10, scaling="l2")
PAIRS = mk.kernels.random_fourier(6, 1, lengthscales=0.4, rng=np.random.default_rng(1))


def history(rng: np.random.Generator, m: int = 23, *, sizes=(5, 30)):
    """Tasks of two Legendre polynomials and noise 0.1; sizes between the two given."""
    active = LEGENDRE.select([1, 4])
    pairs = []
    for _ in range(m):
        x = rng.uniform(-1, 1, rng.integers(sizes[0], sizes[1] + 1))
        signal = active.features(x) @ rng.standard_normal(2)
        pairs.append((x, signal + 0.1 * rng.standard_normal(x.size)))
    return mk.History.from_pairs(pairs)


def write(folder: Path, tasks: mk.History, *, files: int = 3, row_group: int = 40, first=0) -> None:
    """One row per observation, in several files."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, part in enumerate(np.array_split(np.arange(tasks.m), files)):
        label = np.repeat(first + part, tasks.sizes[part])
        X = np.concatenate([tasks[int(s)].X for s in part])
        columns = {"task": label, **{f"x{j}": X[:, j] for j in range(X.shape[1])}}
        columns["y"] = np.concatenate([tasks[int(s)].y for s in part])
        pq.write_table(pa.table(columns), folder / f"part-{i}.parquet", row_group_size=row_group)
