"""What three storages keep of their promises when processes are killed, restarted or many.

``python -m benchmarks.storage_promises`` does the same to a journal of metakel, to Optuna's journal
file and to its SQLite database, with real processes and ``kill -9``.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

from benchmarks.docs import markdown
from benchmarks.long_runs import measure
from benchmarks.storages import PRIOR
from metakel.tuner import Journal, Tuner

FORK = multiprocessing.get_context("fork")
PROCESSES, EACH = 4, 5


@dataclass(frozen=True)
class Run:
    """One storage behind one interface: ``ask`` gives a trial, ``tell`` its value."""

    ask: Callable[[], Any]
    tell: Callable[[Any, float], object]
    numbers: Callable[[], list[int]]  # of trials with a value
    asked: Callable[[Any], tuple[int, Any]]  # number and configuration of a trial


def ours(path: Path) -> Run:
    """A journal of metakel."""
    tuner = Tuner(PRIOR, path)
    return Run(
        lambda: tuner.ask_trials(1)[0],
        lambda trial, value: tuner.tell(trial.point, value),
        lambda: [trial.number for trial in tuner.trials.observed],
        lambda trial: (trial.number, tuple(trial.point.values())),
    )


def _optuna(storage: Any) -> Run:
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=2)
    study = optuna.create_study(
        storage=storage, study_name="s", load_if_exists=True, sampler=sampler
    )
    space: dict[str, optuna.distributions.BaseDistribution] = {
        "x": optuna.distributions.FloatDistribution(0.1, 0.9)
    }
    done = optuna.trial.TrialState.COMPLETE
    return Run(
        lambda: study.ask(space),
        study.tell,
        lambda: [t.number for t in study.get_trials(deepcopy=False, states=(done,))],
        lambda trial: (trial.number, tuple(trial.params.values())),
    )


def journal_file(path: Path) -> Run:
    """Optuna's journal file."""
    return _optuna(JournalStorage(JournalFileBackend(str(path))))


def sqlite(path: Path) -> Run:
    """Optuna's SQLite storage."""
    return _optuna(f"sqlite:///{path}")


Open = Callable[[Path], Run]


def value_of(trial: Any) -> float:
    """Any number."""
    configuration = getattr(trial, "configuration", None)
    return measure(configuration) if configuration else float(trial.params["x"])


def child(work: Callable[[Connection], None]) -> tuple[Any, Connection]:
    """A process that says when it has come somewhere."""
    here, there = FORK.Pipe()
    process = FORK.Process(target=work, args=(there,))
    process.start()
    return process, here


def kill(process: Any) -> None:
    """As a cluster or a power switch does."""
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def survives(open_run: Open, path: Path) -> str:
    """Values that were confirmed before a kill."""

    def work(confirm: Connection) -> None:
        run = open_run(path)
        while True:
            trial = run.ask()
            run.tell(trial, value_of(trial))
            confirm.send(run.asked(trial)[0])

    kept = confirmed = 0
    for _ in range(3):
        process, here = child(work)
        said = [here.recv() for _ in range(2)]
        kill(process)
        with suppress(EOFError):  # after all that it said before it was killed
            while True:
                said.append(here.recv())
        confirmed += len(said)
        kept += len(set(said) & set(open_run(path).numbers()))
    return f"{kept} of {confirmed} values are there"


def orphan(open_run: Open, path: Path) -> str:
    """An evaluation whose process was killed."""

    def work(confirm: Connection) -> None:
        run = open_run(path)
        confirm.send(run.asked(run.ask()))
        time.sleep(600)

    process, here = child(work)
    number, configuration = here.recv()
    kill(process)
    run = open_run(path)
    found = run.asked(run.ask())
    if found == (number, configuration):
        return "asked again, with its number and configuration"
    return f"trial {number} stays as it is; trial {found[0]} is asked for"


def continued(open_run: Open, path: Path) -> str:
    """Whether a run that was stopped asks for what it would have asked for."""

    def trials(run: Run, n: int) -> list[Any]:
        found = []
        for _ in range(n):
            trial = run.ask()
            found.append(run.asked(trial)[1])
            run.tell(trial, value_of(trial))
        return found

    whole = trials(open_run(path.with_suffix(".whole")), 8)
    parts = [*trials(open_run(path), 4), *trials(open_run(path), 4)]
    same = sum(a == b for a, b in zip(whole[4:], parts[4:], strict=True))
    return f"{same} of 4 configurations after the restart are the same"


def lock(open_run: Open, path: Path) -> str:
    """How long others wait for a process that was killed while it held the lock."""
    open_run(path)

    def work(confirm: Connection) -> None:
        if open_run is ours:

            def turn() -> None:
                confirm.send("")
                time.sleep(600)

            Journal(path).exclusively(turn)
        elif open_run is journal_file:
            JournalFileSymlinkLock(str(path)).acquire()
            confirm.send("")
            time.sleep(600)
        else:
            import sqlite3

            sqlite3.connect(path).execute("BEGIN EXCLUSIVE")
            confirm.send("")
            time.sleep(600)

    process, here = child(work)
    here.recv()
    kill(process)
    start = time.monotonic()
    run = open_run(path)
    run.tell(run.ask(), 0.5)
    waited = time.monotonic() - start
    return f"others wait {waited:.0f} s" if waited > 15 else "others go on at once"


def together(open_run: Open, path: Path) -> str:
    """Several processes at once."""
    open_run(path)

    def work(confirm: Connection) -> None:
        run = open_run(path)
        for _ in range(EACH):
            trial = run.ask()
            run.tell(trial, value_of(trial))
        confirm.send("")

    started = [child(work) for _ in range(PROCESSES)]
    for process, _ in started:
        process.join()
    numbers = open_run(path).numbers()
    return f"{len(numbers)} of {PROCESSES * EACH} values, {len(set(numbers))} numbers"


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    storages = {
        "metakel journal": ours,
        "Optuna journal file": journal_file,
        "Optuna SQLite": sqlite,
    }
    promises = {
        "values confirmed before `kill -9`": survives,
        "an evaluation whose process was killed": orphan,
        "a seeded run that was stopped and continued": continued,
        "a process killed while it held the lock": lock,
        f"{PROCESSES} processes with {EACH} values each": together,
    }
    rows = []
    for what, promise in promises.items():
        row = [what]
        for open_run in storages.values():
            with TemporaryDirectory() as folder:
                try:
                    row.append(promise(open_run, Path(folder) / "run.db"))
                except Exception as error:
                    row.append(f"fails: {type(error).__name__}")
        rows.append(row)
        print(row, flush=True)
    print(f"Optuna {optuna.__version__}\n")
    print(markdown(["what", *storages], rows))


if __name__ == "__main__":
    main()
