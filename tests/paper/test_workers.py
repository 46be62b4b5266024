"""Who works: processes, threads or a Dask cluster, with the same numbers."""

from __future__ import annotations

import logging
import socket
import sys
from dataclasses import replace

import pytest
from threadpoolctl import threadpool_info
from typer.testing import CliRunner

from metakel.errors import InputError
from reproduction import runner
from reproduction.commands import app
from reproduction.figure import load_figure
from reproduction.runner import read_jobs, run

distributed = pytest.importorskip("distributed")
# Sockets of a cluster that is closing are collected late.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
SMALL = replace(load_figure("fig3").configured(), runs=5, test=20, m=10, n=25)


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, dashboard_address=":0", silence_logs=logging.CRITICAL
    ) as cluster:
        yield cluster


def address(cluster) -> str:
    return "dask://" + cluster.scheduler_address.removeprefix("tcp://")


def test_a_cluster_gives_the_numbers_of_one_process(tmp_path, cluster):
    one = run("fig3", SMALL, seed=7, out=tmp_path / "one", jobs=1)
    before = cluster.scheduler.transition_counter
    there = run("fig3", SMALL, seed=7, out=tmp_path / "there", jobs=address(cluster))
    assert cluster.scheduler.transition_counter >= before + 5  # it did run there
    tables = [(store.folder / "results.csv.gz").read_bytes() for store in (one, there)]
    assert tables[0] == tables[1]


def test_command_takes_the_address(tmp_path, cluster):
    command = ["fig8", "--quick", "--jobs", address(cluster), "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "quick" / "fig8" / "resolved" / "figure.png").exists()
    assert "dask://" in CliRunner().invoke(app, ["fig8", "--help"]).output


def test_nobody_at_the_address(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "PATIENCE", "1s")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InputError, match=rf"no Dask scheduler answers at tcp://127.0.0.1:{port}"):
        run("fig3", SMALL, seed=7, out=tmp_path, jobs=f"dask://127.0.0.1:{port}")


def test_results_are_not_discarded_for_nobody(tmp_path):
    store = run("fig3", SMALL, seed=7, out=tmp_path, jobs=1)
    with pytest.raises(InputError, match="jobs is 'many'"):
        run("fig3", SMALL, seed=7, out=tmp_path, jobs="many", fresh=True)
    assert store.complete


def test_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install metakel\[dask\]"):
        run("fig3", SMALL, seed=7, out=tmp_path, jobs="dask://127.0.0.1:8786")


class FakeClient:
    """A client whose worker says these versions."""

    def __init__(self, cores, found):
        self.cores, self.found = cores, found

    def ncores(self):
        return self.cores

    def run(self, function, *args):
        return {worker: function(*args) | self.found for worker in self.cores}


def test_workers_of_other_versions_are_refused():
    runner._check_workers(FakeClient({"a": 2}, {}), "tcp://x")
    with pytest.raises(InputError, match=r"reproduction missing.*on PYTHONPATH"):
        runner._check_workers(FakeClient({"a": 2}, {"reproduction": None}), "tcp://x")
    with pytest.raises(InputError, match=r"worker a has .*metakel missing"):
        runner._check_workers(FakeClient({"a": 2}, {"metakel": None}), "tcp://x")
    with pytest.raises(InputError, match=r"numpy 1\.0.*expected"):
        runner._check_workers(FakeClient({"a": 2}, {"numpy": "1.0"}), "tcp://x")
    with pytest.raises(InputError, match="no workers; start some"):
        runner._check_workers(FakeClient({}, {}), "tcp://x")


@pytest.mark.parametrize("given", ["0", "many", "dask://", "host:8786", "1.5"])
def test_other_jobs_are_refused(given):
    with pytest.raises(InputError, match=r"jobs is .*dask://host:8786"):
        read_jobs(given)


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info()}
