"""Shards on Dask workers: the same answer, also when a worker dies."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import resource
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.testing import assert_allclose
from sharded_histories import LEGENDRE, history, write

import metakel as mk
from metakel.scale import distribute
from metakel.scale.executors import DaskExecutor

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


def learn(scan):
    return mk.learn_kernel(scan, LEGENDRE, noise_std=0.1, tol=1e-12)


def test_a_client_is_used_as_it_is(rng, client):
    tasks = history(rng)
    expected = learn(tasks)
    found = learn(distribute(tasks, shards=3, client=client))
    assert_allclose(found.solution.eta, expected.solution.eta, rtol=0, atol=1e-10)
    assert client.status == "running"


def test_shards_read_their_own_files(rng, client, tmp_path):
    tasks = history(rng)
    write(tmp_path, tasks)
    found = learn(mk.History.scan(tmp_path, client=client))
    assert_allclose(found.solution.eta, learn(tasks).solution.eta, rtol=0, atol=1e-10)
    updated = found.update(history(rng, 3))
    assert updated.history.m == tasks.m + 3


@pytest.mark.parametrize("question", ["summarize", "evaluate", "certify"])
def test_a_worker_killed_by_its_process_id_changes_nothing(
    rng, client, caplog, monkeypatch, question
):
    client.wait_for_workers(2)
    tasks = history(rng)
    killed, submit = [], DaskExecutor._submit

    def kill(executor, part, method, args):
        future = submit(executor, part, method, args)
        if method == question and not killed:
            pids = client.run(os.getpid)
            killed.append(pids[executor._homes[part[0]]])
            os.kill(killed[0], signal.SIGKILL)
        return future

    monkeypatch.setattr(DaskExecutor, "_submit", kill)
    with caplog.at_level(logging.WARNING, "metakel"):
        found = learn(distribute(tasks, shards=4, client=client))
    assert killed
    assert_allclose(found.solution.eta, learn(tasks).solution.eta, rtol=0, atol=1e-10)
    assert "was lost with its worker; it is made again on" in caplog.text


def test_a_broken_file_does_not_lose_the_other_shards(rng, client, tmp_path):
    tasks = history(rng, 12)
    write(tmp_path, tasks)
    file = tmp_path / "part-1.parquet"
    good = file.read_bytes()
    scan = mk.History.scan(tmp_path, shards=3, client=client)
    file.write_bytes(good[:50])
    with pytest.raises(mk.InputError, match=r"part-1.parquet.*\n\(2 other shards"):
        learn(scan)
    file.write_bytes(good)
    assert_allclose(learn(scan).solution.eta, learn(tasks).solution.eta, rtol=0, atol=1e-10)


def test_without_a_client_a_local_cluster_is_started_with_a_note(rng, caplog):
    tasks = history(rng, 6)
    with caplog.at_level(logging.INFO, "metakel"):
        scan = distribute(tasks, workers=1)
        found = learn(scan)
        scan.close()
    assert "starting 1 worker process" in caplog.text
    assert_allclose(found.solution.eta, learn(tasks).solution.eta, rtol=0, atol=1e-10)


def listening():
    """(process, address, port) of every socket on which we or our children listen."""
    this, found = psutil.Process(), set()
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            for socket in process.net_connections(kind="inet"):
                if socket.status == psutil.CONN_LISTEN:
                    found.add((process.pid, socket.laddr.ip, socket.laddr.port))
    return found


def test_a_local_cluster_listens_on_this_machine_only(rng):
    before = listening()
    scan = distribute(history(rng, 6), workers=2)
    learn(scan)
    opened = listening() - before
    scan.close()
    assert len({process for process, _, _ in opened}) >= 3  # the scheduler and both workers
    assert [where for where in opened if not ipaddress.ip_address(where[1]).is_loopback] == []


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_a_round_on_a_local_worker_reuses_its_memory(rng):
    # Each array of a round would otherwise be faulted in again, at the price of its arithmetic.
    tasks, base = history(rng, 400, sizes=(40, 40)), mk.legendre(40, scaling="l2")
    scan = distribute(tasks, shards=1, workers=1)
    problem = scan.as_problem(base)
    evaluator, active = problem.evaluator(), np.arange(base.p)
    evaluator.extend(active)
    faults = []
    for scale in (1.0, 1.1, 1.2, 1.3, 1.4):
        before = sum(problem.executor.client.run(page_faults).values())
        evaluator.at(active, scale / evaluator.curvature)
        faults.append(sum(problem.executor.client.run(page_faults).values()) - before)
    scan.close()
    features = tasks.total * base.dim * 8
    assert min(faults[1:]) < features / resource.getpagesize() / 2


def documented(name):
    """A function of docs/scale.md, as it is printed there."""
    page = Path(__file__).parents[2] / "docs" / "scale.md"
    code = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    names = {}
    exec("from distributed import Client, LocalCluster, Security", names)
    exec(next(block for block in code if f"def {name}(" in block), names)
    return names[name]


def test_a_cluster_with_tls_is_used_as_the_documentation_says(rng, tmp_path, monkeypatch):
    pytest.importorskip("cryptography")
    monkeypatch.chdir(tmp_path)
    tasks = history(rng, 6)
    with documented("private_cluster")(1) as cluster:
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        security = cluster.security
        Path("ca.pem").write_text(security.tls_ca_file)
        Path("client.pem").write_text(security.tls_client_cert)
        Path("client-key.pem").write_text(security.tls_client_key)
        for client in (
            distributed.Client(cluster),
            documented("connect")(cluster.scheduler_address),
        ):
            with client:
                found = learn(distribute(tasks, shards=2, client=client))
            assert_allclose(found.solution.eta, learn(tasks).solution.eta, rtol=0, atol=1e-10)


def test_closing_forgets_the_shards_on_the_workers(rng, client):
    scan = distribute(history(rng, 6), shards=2, client=client)
    executor = scan.as_problem(LEGENDRE).executor
    assert isinstance(executor, DaskExecutor)
    learn(scan)

    def names():
        from metakel.scale.executors import _shards

        return list(_shards)

    held = [name for found in client.run(names).values() for name in found]
    assert any(name.startswith(executor._prefix) for name in held)
    scan.close()
    held = [name for found in client.run(names).values() for name in found]
    assert not any(name.startswith(executor._prefix) for name in held)
