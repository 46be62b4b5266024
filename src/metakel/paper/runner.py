"""Runs a figure: in parallel, resumable, with the same numbers whatever the number of jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import matplotlib
import matplotlib.figure
from joblib import Parallel, delayed
from tqdm import tqdm

from metakel.paper.drawing import FONTS
from metakel.paper.figure import Figure, Rows, Table, load_figure
from metakel.paper.settings import Settings
from metakel.paper.store import Key, Store
from metakel.paper.streams import Streams
from metakel.paper.workers import Jobs, one_thread, resident_memory, workers

DPI = 110
Done: TypeAlias = tuple[Key, Rows, tuple[str, int]]  # and the memory of the process that did it


def run(
    name: str,
    settings: Settings,
    *,
    seed: int,
    out: str | Path,
    jobs: Jobs = None,
    fresh: bool = False,
    progress: bool = False,
) -> Store:
    """Run what is missing of a figure, and keep it under ``out/name/reading``.

    Parameters
    ----------
    jobs : int or str, optional
        Processes; -1 for one per core; "dask://host:port" for the workers of a Dask scheduler.
        None leaves it to the `joblib.parallel_config` of the caller, whose backend (loky by
        default; Dask, Ray) a number of processes keeps.
    fresh : bool
        Whether to discard what the folder holds.
    progress : bool
        Whether to show a bar with the time left.
    """
    store = Store(Path(out) / name / settings.reading.name)
    with workers(jobs):  # before anything is discarded
        store.open(name, settings, seed, fresh=fresh)
        # Run by run: neighbours share a split of the tasks (GLMNET), which a process then keeps.
        keys = [(draw, run) for run in range(settings.runs) for draw in range(settings.draws)]
        done = store.done()
        missing = [key for key in keys if key not in done]
        started = time.perf_counter()
        with tqdm(
            total=len(keys),
            initial=len(keys) - len(missing),
            desc=f"{name} ({settings.reading.name})",
            unit="run",
            disable=not progress,
        ) as bar:
            memory: dict[str, int] = {}
            for key, rows, at_work in _results(name, settings, seed, missing):
                store.save(key, rows)
                for process, size in (at_work, resident_memory()):
                    memory[process] = max(size, memory.get(process, 0))
                bar.update()
    store.finish(time.perf_counter() - started, sum(memory.values()))
    return store


def draw(figure: Figure, table: Table, settings: Settings, path: str | Path) -> None:
    """Draw saved results into a file."""
    canvas = matplotlib.figure.Figure(figsize=figure.size, layout="constrained")
    with matplotlib.rc_context(FONTS):
        figure.draw(table, settings, canvas)
    canvas.savefig(
        path, dpi=DPI, metadata={"Software": None} if str(path).endswith("png") else None
    )


def _results(name: str, settings: Settings, seed: int, keys: list[Key]) -> Iterator[Done]:
    if not keys:
        return
    tasks = (delayed(_one)(name, settings, seed, key) for key in keys)
    # The results come back here to be saved, so that workers need no common disk.
    yield from Parallel(return_as="generator_unordered")(tasks)


def _one(name: str, settings: Settings, seed: int, key: Key) -> Done:
    draw, run = key
    with one_thread:
        rows = load_figure(name).run_once(settings, Streams(seed, draw, run, settings.fresh))
    return key, rows, resident_memory()
