"""Learn from 10^5 tasks on disk, in this process and on a local Dask cluster: the same answer.

``python examples/scale.py [number of tasks]``; needs ``pip install metakel[dask]``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import metakel as mk

BASE = mk.legendre(50, scaling="l2")


def write_history(folder: Path, m: int, n: int = 50, per_file: int = 2000) -> None:
    """Rows (task, x, y) in many files; every task is a mixture of three of the base kernels."""
    rng = np.random.default_rng(0)
    for first in range(0, m, per_file):
        x = rng.uniform(-1, 1, (min(per_file, m - first), n))
        features = BASE.select([2, 9, 30]).features(x.ravel()).reshape(*x.shape, 3)
        y = np.einsum("snd,sd->sn", features, rng.standard_normal((len(x), 3)))
        y += 0.1 * rng.standard_normal(y.shape)
        task = np.repeat(np.arange(first, first + len(x)), n)
        table = pa.table({"task": task, "x": x.ravel(), "y": y.ravel()})
        pq.write_table(table, folder / f"part-{first:07d}.parquet")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        write_history(Path(name), int(sys.argv[1]) if sys.argv[1:] else 100_000)
        here = mk.learn_kernel(mk.History.scan(name, memory="500 MB"), BASE, noise_std=0.1)
        print(here)
        there = mk.learn_kernel(mk.History.scan(name, workers=2), BASE, noise_std=0.1)
        print(f"largest difference on Dask: {np.abs(here.solution.eta - there.solution.eta).max()}")
        there.history.close()
