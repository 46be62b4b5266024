"""Workers on one storage: what they share, what they ignore, and how often they ask it."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState
from optuna_helpers import learned, past_studies
from optuna_worker import smooth
from sqlalchemy import event

from metakel.integrations.optuna import MetaKelSampler, record, sources

UNIT = FloatDistribution(-1.0, 1.0)
SPACE = {"x": UNIT, "y": UNIT}
# All of it, where METAKEL_FULL is set; a part of it in everyday's tests.
PROCESSES, TRIALS = (8, 25) if os.environ.get("METAKEL_FULL") else (3, 6)


@pytest.fixture(scope="module")
def two():
    return learned(("x", UNIT), ("y", UNIT))


# Dead workers


def finished(seconds: float, **options):
    """A trial that took so long."""
    start = datetime.now() - timedelta(days=2)
    trial = optuna.create_trial(
        params={"x": 0.5, "y": 0.5}, distributions=SPACE, value=1.5, **options
    )
    trial.datetime_start, trial.datetime_complete = start, start + timedelta(seconds=seconds)
    return trial


def running(hours: float):
    """A trial at the optimum, begun so long ago."""
    trial = optuna.create_trial(
        state=TrialState.RUNNING, params={"x": -0.4, "y": -0.4}, distributions=SPACE
    )
    trial.datetime_start = datetime.now() - timedelta(hours=hours)
    return trial


@pytest.mark.parametrize(
    ("count", "seconds", "hours", "ignored"),
    [
        (6, 600, 2, True),
        (6, 600, 0.5, False),  # not five times as long as the slowest
        (4, 600, 30, False),  # too few have finished
        (6, 0, 30, False),  # they were added, and say nothing
        (6, 0.01, 0.01, False),  # less than a minute
    ],
)
def test_trials_of_dead_workers_are_ignored_and_named_once(
    two, caplog, count, seconds, hours, ignored
):
    study = optuna.create_study(study_name="s", sampler=MetaKelSampler(prior=two, seed=0))
    study.add_trials([finished(seconds) for _ in range(count)])
    alone = pickle.loads(pickle.dumps(study))
    study.add_trials([running(hours) for _ in range(3)])
    for _ in range(3):
        smooth(study.ask())
        smooth(alone.ask())
    asked, without = ([t.params for t in s.trials[-3:]] for s in (study, alone))
    assert (asked == without) == ignored
    warned = [r.getMessage() for r in caplog.records if "seem to be dead" in r.getMessage()]
    assert len(warned) == ignored
    assert all("slowest" in text and f"{count}, {count + 1}" in text for text in warned)


def test_a_trial_of_a_clock_behind_is_not_dead():
    """It began after those that were created before it."""
    late = running(hours=9)
    trials = [*(finished(60) for _ in range(6)), running(hours=0), late]
    for number, trial in enumerate(trials):
        trial.number = number
    assert record.abandoned(trials, datetime.now()) == set()
    assert record.abandoned([*trials[:6], late], datetime.now()) == {7}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.filterwarnings("ignore:Heartbeat of storage is supposed")
def test_heartbeats_decide_where_there_are_any(two, tmp_path, caplog):
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/s.db", heartbeat_interval=1)
    study = optuna.create_study(storage=storage, sampler=MetaKelSampler(prior=two, seed=0))
    study.add_trials([finished(600) for _ in range(6)])
    slow, lost = study.ask(), study.ask()
    for trial in (slow, lost):
        smooth(trial)
        storage.record_heartbeat(trial._trial_id)
    with storage.engine.begin() as connection:  # its worker died an hour ago
        connection.exec_driver_sql(
            "UPDATE trial_heartbeats SET heartbeat = datetime('now', '-1 hour') "
            f"WHERE trial_id = {lost._trial_id}"
        )
    smooth(study.ask())
    (warned,) = (r.getMessage() for r in caplog.records if "seem to be dead" in r.getMessage())
    assert f"trials {lost.number} are ignored" in warned
    assert "without a heartbeat" in warned


# What workers share


def sqlite(folder):
    return optuna.storages.RDBStorage(f"sqlite:///{folder}/study.db")


@pytest.fixture
def lessons(monkeypatch):
    """How often something was learned; it is worth to be shared, however fast that was."""
    found, learn = [], sources.learn_prior

    def counted(history, **options):
        found.append(history)
        return learn(history, **options)

    monkeypatch.setattr(sources, "learn_prior", counted)
    monkeypatch.setattr(sources, "WORTH", 0.0)
    return found


def worker(storage, past):
    """A study as another process has it."""
    sampler = MetaKelSampler(past, seed=0)
    return optuna.create_study(
        study_name="new", storage=storage, sampler=sampler, load_if_exists=True
    )


def test_one_worker_learns_for_all(tmp_path, lessons):
    past, storage = past_studies(SPACE, m=6, n=20), sqlite(tmp_path)
    first, second = worker(storage, past), worker(storage, past)
    first.optimize(smooth, n_trials=4)
    second.optimize(smooth, n_trials=4)
    assert len(lessons) == 1
    alone = worker(optuna.storages.InMemoryStorage(), past)
    alone.optimize(smooth, n_trials=8)
    assert [t.params for t in first.trials] == [t.params for t in alone.trials]
    longest = max(len(str(v)) for v in storage.get_study_system_attrs(first._study_id).values())
    assert longest <= record.CHUNK  # what every storage can hold


@pytest.mark.parametrize("how", ["damaged", "other past", "too large", "fast"])
def test_a_worker_learns_by_itself_where_nothing_fits(tmp_path, lessons, monkeypatch, how):
    past, storage = past_studies(SPACE, m=6, n=20), sqlite(tmp_path)
    if how == "too large":
        monkeypatch.setattr(sources, "MOST_PARTS", 1)
    if how == "fast":
        monkeypatch.setattr(sources, "WORTH", 1e9)
    first = worker(storage, past)
    smooth(first.ask())
    if how == "damaged":
        storage.set_study_system_attr(first._study_id, f"{sources.KEY}:0", "x")
    second = worker(storage, past[:-1] if how == "other past" else past)
    smooth(second.ask())
    assert len(lessons) == 2
    assert len(second.sampler.prior.info.tasks) == len(past) - (how == "other past")


def test_a_worker_waits_for_the_one_that_learns_but_not_for_ever(tmp_path, lessons, monkeypatch):
    past, storage = past_studies(SPACE, m=6, n=20), sqlite(tmp_path)
    # A worker of the first trial that has not learned yet, and never will.
    optuna.create_study(study_name="new", storage=storage).ask()
    study, looked = worker(storage, past), []

    def sleep(seconds):
        looked.append(seconds)
        if len(looked) == 3:
            monkeypatch.setattr(record, "UNANNOUNCED", timedelta(0))

    monkeypatch.setattr(sources.time, "sleep", sleep)
    smooth(study.ask())
    assert len(looked) == 3
    assert len(lessons) == 1


# How often they ask the storage


def statements(storage, sampler, beside=0) -> int:
    """SQL statements of one trial of two parameters, while others run."""
    study = optuna.create_study(storage=storage, sampler=sampler)
    study.add_trials([finished(1) for _ in range(12)])
    study.optimize(smooth, n_trials=2)
    for _ in range(beside):
        smooth(study.ask())
    seen = []
    event.listen(storage.engine, "before_cursor_execute", lambda *given: seen.append(given))
    study.optimize(smooth, n_trials=1)
    return len(seen)


def test_a_trial_takes_fewer_statements_than_with_tpe_and_two_more_beside_others(two, tmp_path):
    for beside, more in ((0, -1), (2, 2)):
        folder = tmp_path / str(beside)
        folder.mkdir()
        ours = statements(sqlite(folder), MetaKelSampler(prior=two, seed=0), beside)
        (folder / "tpe").mkdir()
        tpe = statements(sqlite(folder / "tpe"), optuna.samplers.TPESampler(seed=0), beside)
        assert ours <= tpe + more


# A database server


def as_somebody(folder: Path) -> list[str]:
    """The start of commands that are not run as root, which the server refuses."""
    if os.name != "posix" or os.geteuid():
        return []
    shutil.chown(folder, "postgres")
    return ["runuser", "-u", "postgres", "--"]


@contextmanager
def server():
    """The URL of a PostgreSQL server of its own; skipped where there is none to be had."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    found = [shutil.which("initdb"), *sorted(Path("/").glob("usr/lib/postgresql/*/bin/initdb"))]
    if not any(found):
        pytest.skip("PostgreSQL is not installed: no initdb")
    programs = Path(next(filter(None, reversed(found)))).parent
    folder = Path(tempfile.mkdtemp(prefix="metakel-postgresql-"))
    try:
        run, data = as_somebody(folder), str(folder / "data")
    except (LookupError, PermissionError) as error:
        pytest.skip(f"root cannot become another user: {error}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["-A", "trust", "-U", "metakel", "--no-sync", "-E", "UTF8", "-D", data]
    subprocess.run([*run, programs / "initdb", *options], check=True, capture_output=True)
    listen = ["-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
    process = subprocess.Popen(
        [*run, programs / "postgres", "-D", data, *listen], stderr=subprocess.DEVNULL
    )
    address = f"//metakel@127.0.0.1:{port}/postgres"
    try:
        for _ in range(1200):  # its port is open before it takes connections
            with suppress(psycopg.OperationalError), psycopg.connect(f"postgresql:{address}"):
                break
            assert process.poll() is None, "the server ended"
            time.sleep(0.1)
        yield f"postgresql+psycopg:{address}"
    finally:
        # runuser passes the signal on; SIGINT ends the connections, too.
        subprocess.run(
            [*run, programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], capture_output=True
        )
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def test_processes_on_a_database_server_lose_nothing_and_repeat_nothing():
    with server() as url:
        storage = optuna.storages.RDBStorage(
            url, engine_kwargs={"connect_args": {"connect_timeout": 60}}
        )
        for source in past_studies(SPACE, m=6, n=20):
            optuna.copy_study(
                from_study_name=source.study_name, from_storage=source._storage, to_storage=storage
            )
        study = optuna.create_study(study_name="shared", storage=storage)
        program = [sys.executable, str(Path(__file__).parent / "optuna_worker.py"), url, url]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers = [subprocess.Popen([*program, str(TRIALS)], **pipes) for _ in range(PROCESSES)]
        for each in workers:
            assert each.stdout.readline() == "ready\n"
        told = []
        for each in workers:
            each.stdin.write("go\n")
            each.stdin.flush()
        for each in workers:
            told += each.communicate(timeout=300)[0].splitlines()
            assert each.returncode == 0
        trials = study.get_trials()
        assert [t.number for t in trials] == list(range(PROCESSES * TRIALS))
        assert {t.state for t in trials} == {TrialState.COMPLETE}
        points = Counter((t.params["x"], t.params["y"]) for t in trials)
        assert max(points.values()) == 1
        assert study.best_value < 0.05
        # All have the same prior, whoever has learned it.
        assert len(set(told)) == 1
        storage.engine.dispose()
