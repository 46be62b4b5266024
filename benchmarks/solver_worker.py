"""One solver in one process: fits are timed inside it and can be given up from outside.

``python -m benchmarks.solver_worker NAME`` answers every line of JSON with one line of JSON.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.solver_contestants import CONTESTANTS, LADDERS, Fit, Read
from benchmarks.solver_problems import Instance, certificate

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA", "BLIS")
}
ADELIE = "adelie==1.1.52"
STARTING_SECONDS = 300.0  # imports, compilation and building the design: outside every clock


@dataclass(frozen=True)
class Timing:
    """Seconds of each fit, with the objective and the worst gap on the raw data of the last."""

    seconds: list[float]
    gap: float
    objective: float


class TimedOut(Exception):
    """The solver did not answer within the limit and was stopped."""


@dataclass
class Worker:
    """A solver waiting in a process of its own; stopped and started anew when it hangs."""

    solver: str
    python: str = sys.executable
    process: subprocess.Popen[str] | None = field(default=None, init=False)

    def load(self, file: Path) -> None:
        """Have the solver imported, compiled and its design built, outside every clock."""
        self._ask({"problem": str(file)}, STARTING_SECONDS)

    def fit(self, tol: float, *, repeat: int = 1, limit: float) -> Timing:
        """Fit, several times in a row; `TimedOut` after ``limit`` seconds per fit."""
        return Timing(**self._ask({"tol": tol, "repeat": repeat}, limit * repeat))

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.python, "-m", "benchmarks.solver_worker", self.solver],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        if self.process is None:
            self.process = self._start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        if not ready:
            self.close()
            raise TimedOut(f"{self.solver}: no answer within {limit:g} s")
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"the worker of {self.solver} stopped; its error is printed above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def adelie_python(folder: Path) -> str:
    """A Python that can import adelie; it pins numpy < 2, so it gets an environment of its own."""
    python = folder / "bin" / "python"
    check = [str(python), "-c", "import adelie"]
    if python.exists() and subprocess.run(check, capture_output=True).returncode == 0:
        return str(python)
    print(f"installing adelie into {folder} ...", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    # Where this fails, the worker does too, and adelie is left out of the table.
    install = [str(python), "-m", "pip", "install", "--quiet", ADELIE]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
    return str(python)


def measure(instance: Instance, fit: Fit, read: Read, tol: float, repeat: int) -> Timing:
    """Time fits; the certificate comes from the coefficients of the last, on the raw data."""
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        answer = fit(tol)
        seconds.append(time.process_time() - start)
    pairs = zip(read(answer), instance.lams, strict=False)
    checks = [certificate(instance, beta, float(lam)) for beta, lam in pairs]
    return Timing(
        seconds=seconds,
        gap=max((gap for _, gap in checks), default=float("nan")),
        objective=checks[-1][0] if checks else float("nan"),
    )


def serve(solver: str) -> None:
    """Answer requests on stdin until it closes."""
    # Solvers may print; only this function may write to the pipe.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        if "problem" in request:
            instance = Instance.load(Path(request["problem"]))
            warm_up, _ = CONTESTANTS[solver](instance.head(2))
            warm_up(LADDERS[solver][0])
            fit, read = CONTESTANTS[solver](instance)
            answer = {}
        else:
            answer = asdict(measure(instance, fit, read, request["tol"], request["repeat"]))
        print(json.dumps(answer), file=pipe, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
