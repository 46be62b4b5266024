"""Factors and rounds on Dask workers: the same answer."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from stored_histories import LEGENDRE, history, write

import metakel as mk
from metakel.scale import scan

distributed = pytest.importorskip("distributed")
# Sockets of a cluster that is closing are collected late.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_workers_learn_what_one_process_does(rng, client, tmp_path):
    tasks = history(rng)
    write(tmp_path, tasks)
    options = {"noise_std": 0.1, "tol": 1e-12}
    here = mk.learn_kernel(scan(tmp_path, LEGENDRE), **options)
    there = mk.learn_kernel(scan(tmp_path, LEGENDRE, client=client), **options)
    assert_allclose(there.solution.eta, here.solution.eta, rtol=0, atol=1e-9)
    assert_array_equal(there.active, here.active)
    memory = mk.learn_kernel(tasks, LEGENDRE, **options)
    assert_allclose(there.solution.eta, memory.solution.eta, rtol=0, atol=1e-9)
    assert client.status == "running"


def test_an_error_on_a_worker_is_the_error_here(rng, client, tmp_path):
    write(tmp_path, history(rng, 6))
    broken = tmp_path / "part-1.parquet"
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(broken)
    y = np.full(len(table), np.nan)
    pq.write_table(table.set_column(2, "y", pa.array(y)), broken)
    with pytest.raises(mk.InputError, match=r"part-1.parquet, row 0: column 'y' holds nan"):
        scan(tmp_path, LEGENDRE, client=client)
