"""Runs that metakel itself has tuned, as further tasks of a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from metakel.data import History, Task
from metakel.errors import InputError
from metakel.tuner import JournalReader

ENDINGS = (".jsonl", ".journal")


def with_journals(past: History, paths: Sequence[Path]) -> tuple[History, str]:
    """The history with one task more for every journal that has values, and what was added."""
    files = [file for path in paths for file in _files(path)]
    found = [(file, _task(file, past)) for file in files]
    new = tuple(task for _, task in found if task is not None)
    known = {task.name for task in past}
    for task in new:
        if task.name in known:
            raise InputError(
                f"there are two tasks named {task.name!r}; expected another name in the table, or "
                "another name of the journal"
            )
        known.add(task.name)
    runs = sum(task.n for task in new)
    empty = [file.name for file, task in found if task is None]
    said = f"{len(new)} tasks with {runs} runs added from journals"
    return (
        replace(past, tasks=(*past.tasks, *new)),
        f"{said}; without a value: {', '.join(empty)}" if empty else said,
    )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in ENDINGS)
    if not files:
        raise InputError(f"{path} holds no journal; expected files *{', *'.join(ENDINGS)}")
    return files


def _task(file: Path, past: History) -> Task | None:
    """The finished runs of a journal in the units of a history; None where there are none."""
    journal = JournalReader(file)
    assert past.space is not None  # a table has named parameters
    assert past.report is not None
    output, minimize = str(journal.header["output"]), bool(journal.header["minimize"])
    if (output, minimize) != (past.report.output, past.report.minimize):
        raise InputError(
            f"{file} {_aim(output, minimize)}, but the table "
            f"{_aim(past.report.output, past.report.minimize)}"
        )
    if set(journal.space.names) != set(past.space.names):
        raise InputError(
            f"{file} has the parameters {', '.join(journal.space.names)}; expected those of the "
            f"table, {', '.join(past.space.names)}"
        )
    done = [trial for trial in journal.trials.complete if trial.value is not None]
    if not done:
        return None
    X = past.space.encode([trial.configuration for trial in done], extrapolate=True)
    y = np.array([trial.value for trial in done], dtype=np.float64)
    name = str(journal.header.get("task") or file.stem)
    return Task(X, -y if minimize else y, name=name)


def _aim(output: str, minimize: bool) -> str:
    return f"{'minimises' if minimize else 'maximises'} {output!r}"
