"""Histories of many tasks in Parquet files, made piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import metakel as mk
from metakel.kernels import KernelDictionary

Array = NDArray[np.float64]
P, N_POINTS, ACTIVE, NOISE = 50, 50, (2, 5, 9, 17, 30), 0.1
PER_FILE = 2000


def base_kernels(p: int = P) -> KernelDictionary:
    """Legendre polynomials of unit second moment."""
    return mk.kernels.legendre(p, scaling="l2")


def tasks(first: int, count: int, *, n: int = N_POINTS, p: int = P) -> tuple[Array, Array]:
    """Inputs (count, n) and values (count, n) of tasks first, first + 1, ...; always the same."""
    rng = np.random.default_rng([first, count, n, p])
    x = rng.uniform(-1, 1, (count, n))
    active = np.array(ACTIVE) % p
    chosen = base_kernels(p).select(active.tolist())
    Phi = chosen.features(x.ravel()).reshape(count, n, active.size)
    coefficients = rng.standard_normal((count, active.size)) * np.linspace(1.0, 0.4, active.size)
    y = np.einsum("snd,sd->sn", Phi, coefficients) + NOISE * rng.standard_normal((count, n))
    return x, y


def write(folder: Path, m: int, *, first: int = 0, n: int = N_POINTS, p: int = P) -> None:
    """One file per `PER_FILE` tasks, with the columns task, x and y."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    for start in range(first, first + m, PER_FILE):
        count = min(PER_FILE, first + m - start)
        x, y = tasks(start, count, n=n, p=p)
        label = np.repeat(np.arange(start, start + count), n)
        table = pa.table({"task": label, "x": x.ravel(), "y": y.ravel()})
        pq.write_table(table, folder / f"part-{start:07d}.parquet")
