"""What our solver costs beside time per solve: peak memory, and the first use in a process."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

from benchmarks.solver_problems import PROBLEMS
from benchmarks.solver_worker import ONE_THREAD, ROOT

IMPORT = (
    "import time; start = time.process_time(); import metakel; print(time.process_time() - start)"
)

# Draws the paper's data (Section 6), learns the kernel, and says when that was.
LEARN = """
import time
import numpy as np
import metakel as mk
from benchmarks.solver_problems import PAPER_SEED, legendre_inputs, legendre_problem
X = legendre_inputs(np.random.default_rng(PAPER_SEED), 50)
history = mk.History.from_pairs(list(zip(X, legendre_problem("paper", 50).y)))
mk.learn_kernel(history, mk.kernels.legendre(20, scaling="l2"), noise_std=0.01)
print(time.time())
"""


def import_seconds(repeats: int = 5) -> float:
    """Median CPU time of ``import metakel`` in a fresh process."""
    return statistics.median(float(_python("-c", IMPORT)) for _ in range(repeats))


def first_call_seconds(repeats: int = 5) -> float:
    """Median wall time from process start to the end of the first ``learn_kernel``."""
    seconds = []
    for _ in range(repeats):
        start = time.time()
        seconds.append(float(_python("-c", LEARN)) - start)
    return statistics.median(seconds)


def memory_multiple(problem: str) -> float:
    """Peak memory while solving, features included, as a multiple of the features."""
    return float(_python("-m", "benchmarks.solver_costs", problem))


def _python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip()


def _resident(field: str) -> int:
    """Bytes of VmRSS or VmHWM, the highest VmRSS so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def _peak_of_solve(problem: str) -> float:
    """The larger of what NumPy asked for and, on Linux, what the process occupied."""
    from metakel.grouplasso import Problem, solve

    instance = PROBLEMS[problem]()
    Phi, y, groups = instance.Phi, instance.y, instance.groups
    linux = Path("/proc/self/clear_refs").exists()
    if linux:
        Path("/proc/self/clear_refs").write_text("5")  # forget the highest VmRSS
        before = _resident("VmRSS")
    tracemalloc.start()
    solve(Problem.from_arrays(Phi, y, groups), instance.lam, tol=1e-10)
    above = tracemalloc.get_traced_memory()[1]
    if linux:
        above = max(above, _resident("VmHWM") - before)
    return 1 + above / instance.memory.nbytes


if __name__ == "__main__":
    print(_peak_of_solve(sys.argv[1]))
