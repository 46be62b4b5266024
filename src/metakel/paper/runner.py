"""Runs a figure: in parallel, resumable, with the same numbers whatever the number of jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import matplotlib.figure
from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from metakel.paper.figure import Figure, Rows, Table, load_figure
from metakel.paper.settings import Settings
from metakel.paper.store import Key, Store
from metakel.paper.streams import Streams

DPI = 110


def run(
    name: str,
    settings: Settings,
    *,
    seed: int,
    out: str | Path,
    jobs: int | None = None,
    fresh: bool = False,
    progress: bool = False,
) -> Store:
    """Run what is missing of a figure, and keep it under ``out/name/reading``.

    Parameters
    ----------
    jobs : int, optional
        Processes; -1 for one per core. None leaves it to the `joblib.parallel_config` of the
        caller, whose backend (loky by default; Dask, Ray) is used in any case.
    fresh : bool
        Whether to discard what the folder holds.
    progress : bool
        Whether to show a bar with the time left.
    """
    store = Store(Path(out) / name / settings.reading.name)
    store.open(name, settings, seed, fresh=fresh)
    # Run by run: neighbours share a split of the tasks (GLMNET), which a process then keeps.
    keys = [(draw, run) for run in range(settings.runs) for draw in range(settings.draws)]
    done = store.done()
    missing = [key for key in keys if key not in done]
    started = time.perf_counter()
    results = _results(name, settings, seed, missing, jobs)
    label = f"{name} ({settings.reading.name})"
    with tqdm(
        total=len(keys),
        initial=len(keys) - len(missing),
        desc=label,
        unit="run",
        disable=not progress,
    ) as bar:
        for key, rows in results:
            store.save(key, rows)
            bar.update()
    store.finish(time.perf_counter() - started)
    return store


def draw(figure: Figure, table: Table, settings: Settings, path: str | Path) -> None:
    """Draw saved results into a file."""
    canvas = matplotlib.figure.Figure(figsize=figure.size, layout="constrained")
    figure.draw(table, settings, canvas)
    canvas.savefig(
        path, dpi=DPI, metadata={"Software": None} if str(path).endswith("png") else None
    )


def _results(
    name: str, settings: Settings, seed: int, keys: list[Key], jobs: int | None
) -> Iterator[tuple[Key, Rows]]:
    if not keys:
        return
    tasks = (delayed(_one)(name, settings, seed, key) for key in keys)
    with parallel_config(n_jobs=jobs) if jobs is not None else parallel_config():
        # The results come back here to be saved, so that workers need no common disk.
        yield from Parallel(return_as="generator_unordered")(tasks)


def _one(name: str, settings: Settings, seed: int, key: Key) -> tuple[Key, Rows]:
    draw, run = key
    # More threads would sum in another order: the last digits would depend on the machine.
    with threadpool_limits(limits=1):
        rows = load_figure(name).run_once(settings, Streams(seed, draw, run, settings.fresh))
    return key, rows
