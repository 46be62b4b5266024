"""Experiments that are repeated for many seeds: in parallel, resumable, bounded in time.

What a seed gave is a line of a file below ``build/``. A run that was stopped goes on where it was;
one of other sources begins anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.coverage import one_thread_each

ROOT = Path(__file__).resolve().parents[1]
Result = dict[str, Any]
Once = Callable[[int], Result]


@dataclass(frozen=True)
class Bench:
    """Repeats experiments, in the processes of a pool.

    Parameters
    ----------
    pool : ProcessPoolExecutor
    folder : Path
        Where results are kept.
    deadline : float
        `time.time()` after which no further seed is begun.
    """

    pool: ProcessPoolExecutor
    folder: Path
    deadline: float

    def measured(self, name: str, once: Once, seeds: range) -> list[Result]:
        """What ``once(seed)`` returned, for all seeds that there was time for, in their order."""
        file = self.folder / f"{name}.jsonl"
        found = dict(_complete(file))
        missing = iter([seed for seed in seeds if seed not in found])
        begun = 4 if time.time() < self.deadline else 0
        waiting = {self.pool.submit(once, seed): seed for seed in islice(missing, begun)}
        with file.open("a", encoding="utf-8") as kept:
            kept.write("\n" if found else "")  # behind half a line
            while waiting:
                done = next(as_completed(waiting))
                seed = waiting.pop(done)
                found[seed] = done.result()
                kept.write("\n" + json.dumps([seed, found[seed]]))
                kept.flush()
                following = next(missing, None) if time.time() < self.deadline else None
                if following is not None:
                    waiting[self.pool.submit(once, following)] = following
        return [found[seed] for seed in seeds if seed in found]


def _complete(file: Path) -> Iterator[tuple[int, Result]]:
    """Lines of a file; the last one of a process that was killed may be half a line."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        with suppress(ValueError):
            seed, result = json.loads(line)
            yield int(seed), result


@contextmanager
def bench(
    name: str, *sources: str, jobs: int, minutes: float, package: bool = True
) -> Iterator[Bench]:
    """A `Bench` whose results are kept below ``build/name``, as long as no source changes.

    ``sources`` are patterns of the benchmark's own files; those of the package count, too, unless
    ``package`` is False, as for methods of others.
    """
    digest = hashlib.sha256()
    for pattern in (*(["src/**/*.py"] if package else []), *sources):
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    folder = ROOT / "build" / name / digest.hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    with one_thread_each(jobs) as pool:
        yield Bench(pool, folder, time.time() + 60 * minutes)
