"""Learn from 10^5 tasks on disk, in this process and on two Dask workers: the same answer.

``python examples/scale.py [number of tasks]``; needs ``pip install metakel[dask]``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

import metakel as mk
from metakel.scale import scan

BASE = mk.kernels.legendre(50, scaling="l2")


def write_history(folder: Path, m: int, n: int = 50, per_file: int = 2000) -> None:
    """Rows (task, x, y) in many files; every task is a mixture of three of the base kernels."""
    rng = np.random.default_rng(0)
    for first in range(0, m, per_file):
        x = rng.uniform(-1, 1, (min(per_file, m - first), n))
        features = BASE.select([2, 9, 30]).features(x.ravel()).reshape(*x.shape, 3)
        y = np.einsum("snd,sd->sn", features, rng.standard_normal((len(x), 3)))
        columns = {"task": np.repeat(np.arange(first, first + len(x)), n), "x": x.ravel()}
        table = pa.table({**columns, "y": y.ravel() + 0.1 * rng.standard_normal(y.size)})
        pq.write_table(table, folder / f"part-{first:07d}.parquet")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        write_history(Path(name), int(sys.argv[1]) if sys.argv[1:] else 100_000)
        here = mk.learn_kernel(scan(name, BASE), noise_std=0.1)
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
            there = mk.learn_kernel(scan(name, BASE, client=client), noise_std=0.1)
        print(here)
        print("largest difference on Dask:", max(abs(here.solution.eta - there.solution.eta)))
