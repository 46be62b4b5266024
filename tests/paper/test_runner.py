from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from joblib import parallel_config

from metakel.errors import InputError
from reproduction import runner
from reproduction.figure import load_figure
from reproduction.runner import run
from reproduction.store import Store

ROOT = Path(__file__).parents[2]
SMALL = replace(load_figure("fig3").configured(), runs=4, test=20, m=10, n=25)


def table_of(store: Store) -> bytes:
    return (store.folder / "results.csv.gz").read_bytes()


def test_one_and_two_jobs_give_identical_results(tmp_path):
    one = run("fig3", SMALL, seed=7, out=tmp_path / "one", jobs=1)
    two = run("fig3", SMALL, seed=7, out=tmp_path / "two", jobs=2)
    assert table_of(one) == table_of(two)
    other = run("fig3", SMALL, seed=8, out=tmp_path / "other", jobs=1)
    assert table_of(one) != table_of(other)


SCRIPT = """
import sys
from dataclasses import replace
from reproduction.figure import load_figure
from reproduction.runner import run
settings = replace(load_figure("fig3").configured(), runs=40, test=20, m=10, n=25)
run("fig3", settings, seed=7, out=sys.argv[1], jobs=int(sys.argv[2]))
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_half_way_and_resumed_is_identical(tmp_path, monkeypatch, jobs):
    out = tmp_path / "killed"
    # A session of its own, so that the workers of the process can be killed with it.
    command = [sys.executable, "-c", SCRIPT, str(out), str(jobs)]
    process = subprocess.Popen(command, start_new_session=True, cwd=ROOT)
    parts = out / "fig3" / "resolved" / "parts"
    give_up = time.monotonic() + 60
    while len(list(parts.glob("*.csv"))) < 3 and time.monotonic() < give_up:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    store = Store(out / "fig3" / "resolved")
    done = store.done()
    assert 3 <= len(done) < 40
    assert not store.complete
    repeated = []
    original = runner._one
    monkeypatch.setattr(
        runner, "_one", lambda *args: (repeated.append(args[3]), original(*args))[1]
    )
    settings = replace(SMALL, runs=40)
    resumed = run("fig3", settings, seed=7, out=out, jobs=1)
    assert done.isdisjoint(repeated)
    assert len(repeated) == 40 - len(done)
    whole = run("fig3", settings, seed=7, out=tmp_path / "whole", jobs=1)
    assert table_of(resumed) == table_of(whole)


def test_more_runs_continue_and_fewer_are_a_part(tmp_path):
    few = run("fig3", SMALL, seed=7, out=tmp_path, jobs=1).table(SMALL)
    many = replace(SMALL, runs=6)
    table = run("fig3", many, seed=7, out=tmp_path, jobs=1).table(many)
    assert set(table["run"]) == set(range(6))
    assert table[table["run"] < 4].equals(few)
    again = run("fig3", SMALL, seed=7, out=tmp_path, jobs=1).table(SMALL)
    assert again.equals(few)


def test_results_of_another_experiment_are_not_mixed_in(tmp_path):
    run("fig3", SMALL, seed=7, out=tmp_path, jobs=1)
    with pytest.raises(InputError, match=r"seed is 7 there, 8 now.*--fresh"):
        run("fig3", SMALL, seed=8, out=tmp_path, jobs=1)
    with pytest.raises(InputError, match=r"lam is 0.03 there, 0.1 now"):
        run("fig3", replace(SMALL, lam=0.1), seed=7, out=tmp_path, jobs=1)
    store = run("fig3", SMALL, seed=8, out=tmp_path, jobs=1, fresh=True)
    assert store.description()["seed"] == 8


def test_settings_seed_and_versions_are_recorded_and_read_back(tmp_path):
    store = run("fig3", SMALL, seed=7, out=tmp_path, jobs=1)
    content = json.loads((store.folder / "settings.json").read_text())
    assert content["seed"] == 7
    assert content["settings"]["reading"]["scaling"] == "l2"
    assert {"metakel", "numpy", "scipy", "python"} <= content["versions"].keys()
    assert content["seconds"] > 0
    if Path("/proc/self/statm").exists():
        assert 2e7 < content["memory"] < 1e11  # Python and NumPy alone take more than 20 MB
    assert store.settings(type(SMALL)) == SMALL


def test_the_backend_of_the_caller_is_used(tmp_path, monkeypatch):
    threads = []
    original = runner._one

    def watched(*args):
        threads.append(threading.current_thread() is threading.main_thread())
        return original(*args)

    monkeypatch.setattr(runner, "_one", watched)
    with parallel_config(backend="threading", n_jobs=2):
        run("fig3", SMALL, seed=7, out=tmp_path)
    assert len(threads) == 4
    assert not any(threads)


def test_nothing_saved_yet(tmp_path):
    with pytest.raises(InputError, match="run the figure first"):
        Store(tmp_path).table(SMALL)
    with pytest.raises(InputError, match="run the figure first"):
        Store(tmp_path).description()
