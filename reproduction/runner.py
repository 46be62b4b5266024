"""Runs a figure: in parallel, resumable, with the same numbers whatever the number of jobs.

The work is done by processes of this machine or by a Dask cluster, both through joblib.
"""

from __future__ import annotations

import importlib
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from metakel.errors import InputError
from reproduction.figure import Rows, load_figure
from reproduction.settings import ExperimentSettings, Streams
from reproduction.store import Key, Store

Jobs: TypeAlias = int | str | None
Versions: TypeAlias = dict[str, str | None]

SCHEME = "dask://"
EXAMPLE = f"{SCHEME}host:8786"
PATIENCE = "10s"  # to reach the scheduler
PACKAGES = ("metakel", "numpy", "scipy")
Done: TypeAlias = tuple[Key, Rows, tuple[str, int]]  # and the memory of the process that did it


def run(
    name: str,
    settings: ExperimentSettings,
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


def _results(name: str, settings: ExperimentSettings, seed: int, keys: list[Key]) -> Iterator[Done]:
    if not keys:
        return
    tasks = (delayed(_one)(name, settings, seed, key) for key in keys)
    # The results come back here to be saved, so that workers need no common disk.
    yield from Parallel(return_as="generator_unordered")(tasks)


def _one(name: str, settings: ExperimentSettings, seed: int, key: Key) -> Done:
    draw, run = key
    with one_thread:
        rows = load_figure(name).run_once(settings, Streams(seed, draw, run, settings.fresh))
    return key, rows, resident_memory()


@contextmanager
def workers(jobs: Jobs) -> Iterator[None]:
    """Inside, `joblib.Parallel` has ``jobs`` processes, or the Dask workers of an address.

    Parameters
    ----------
    jobs : int, str, or None
        Number of processes, -1 for one per core; ``dask://host:port`` of a scheduler (or, say,
        ``dask://tls://host:port``); None keeps the `joblib.parallel_config` of the caller.
    """
    chosen = read_jobs(jobs)
    if chosen is None:
        yield
    elif isinstance(chosen, int):
        with parallel_config(n_jobs=chosen):
            yield
    else:
        with _connected(chosen) as client, parallel_config(backend="dask", client=client):
            yield


def new_workers() -> None:
    """Let joblib's own processes go, with the memory they hold; the next call starts others."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


def resident_memory() -> tuple[str, int]:
    """This process, and the memory it holds now in bytes (0 where the system does not tell)."""
    name = f"{platform.node()} {os.getpid()}"
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:  # not Linux
        return name, 0
    return name, pages * os.sysconf("SC_PAGE_SIZE")


def read_jobs(jobs: Jobs) -> Jobs:
    """A number of processes, or the address of a scheduler as Dask writes it; None stays None."""
    if jobs is None:
        return None
    text = str(jobs)
    if text.startswith(SCHEME):
        address = text.removeprefix(SCHEME)
        if address:
            return address if "://" in address else f"tcp://{address}"
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count == 0:
        raise InputError(
            f"jobs is {text!r}; expected a number of processes (-1 for one per core) or {EXAMPLE}"
        )
    return count


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """A client of the scheduler there, whose workers compute with the versions of this process."""
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise ImportError(f"{SCHEME}{address} needs Dask: pip install metakel[dask]") from error
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address} ({error}); expected {EXAMPLE} with the "
            "address that `dask scheduler` prints"
        ) from error
    with client:
        _check_workers(client, address)
        yield client


def _check_workers(client: Any, address: str) -> None:
    """Other versions, other last digits: refuse them, like results of other versions on disk."""
    if not client.ncores():
        raise InputError(
            f"the scheduler at {address} has no workers; start some with `dask worker {address}`"
        )
    look = _looker()
    here = look(PACKAGES)
    for worker, found in client.run(look, PACKAGES).items():
        if found != here:
            raise InputError(
                f"the Dask worker {worker} has {_listed(found)}; expected {_listed(here)} as here "
                "(a clone of the repository, installed with its extra paper and on PYTHONPATH)"
            )


def _looker() -> Callable[[tuple[str, ...]], Versions]:
    """A function that tells versions; a nested one goes to workers that have no metakel, too."""

    def look(packages: tuple[str, ...]) -> Versions:
        from importlib.metadata import PackageNotFoundError, version
        from importlib.util import find_spec

        found: Versions = {"reproduction": "found" if find_spec("reproduction") else None}
        for name in packages:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = None
        return found

    return look


def _listed(found: Versions) -> str:
    return ", ".join(f"{name} {number or 'missing'}" for name, number in found.items())


class OneThread:
    """One BLAS thread while anybody is inside, also if several threads enter and leave.

    More would sum in another order: the last digits would depend on the machine. The limit is one
    of the process, so that the first to leave must not lift it for the others.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit.enter_context(threadpool_limits(limits=1))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.close()


one_thread = OneThread()
