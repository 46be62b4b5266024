"""How many files of the package a value passes through on its way to a decision.

``python -m benchmarks.walk [--list]``

A file is entered when a function in it is called. Every walk is made twice; the second time counts,
so that imports do not. ``--list`` names the files of every walk with their lines.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import metakel as mk
from benchmarks.docs import markdown
from metakel.cli import main as command_line

PACKAGE = Path(mk.__file__).resolve().parent
LEARN, SUGGEST = "metakel learn", "metakel suggest"


@contextlib.contextmanager
def counting() -> Iterator[set[Path]]:
    """The files whose functions are called inside the block."""
    entered: set[Path] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            entered.add(Path(frame.f_code.co_filename))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        entered.intersection_update(PACKAGE.rglob("*.py"))


def walked(step: Callable[[], None]) -> set[Path]:
    """The files that a step enters when it is done again."""
    step()
    with counting() as entered:
        step()
    return entered


def write_table(path: Path) -> None:
    """Past runs: twelve tasks with ten rows, two numbers and a choice."""
    rng = np.random.default_rng(0)
    rows = ["task,rate,depth,kind,score"]
    for task in range(12):
        shift = 0.3 * rng.standard_normal()
        for rate, depth, kind in zip(
            10 ** rng.uniform(-4, 0, 10), rng.integers(2, 11, 10), rng.choice(["a", "b"], 10),
            strict=True,
        ):  # fmt: skip
            score = 0.9 - 0.1 * (np.log10(rate) + 2 - shift) ** 2 - 0.05 * ((depth - 6) / 4) ** 2
            rows.append(f"t{task},{rate:.6g},{depth},{kind},{score - 0.05 * (kind == 'b'):.6g}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def past_functions() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, outputs and tasks of ten straight lines, observed with noise."""
    rng = np.random.default_rng(0)
    x, task = rng.uniform(-1, 1, 120), np.repeat(np.arange(10), 12)
    y = 1 + rng.standard_normal(10)[task] * x + 0.05 * rng.standard_normal(120)
    return x[:, None], y, task


def type_command(*words: str) -> None:
    """``metakel ...`` in this process; what it prints is not shown."""
    typed, sys.argv = sys.argv, ["metakel", *words]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            command_line()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = typed


def decide(optimizer: Any, value: Callable[[Any], float]) -> None:
    """Ask and tell four times, and ask once more."""
    for _ in range(4):
        point = optimizer.ask()
        optimizer.tell(point, value(point))
    optimizer.ask()


def walks(folder: Path) -> dict[str, set[Path]]:
    """The files of every walk."""
    table, prior, journal = (str(folder / name) for name in ("past.csv", "prior.json", "run.jsonl"))
    write_table(Path(table))
    columns = {"task": "task", "output": "score"}
    learn = ("learn", table, "--task", "task", "--output", "score", "-o", prior)
    history = mk.History.from_arrays(*past_functions())
    base, domain = mk.kernels.legendre(8, scaling="l2"), mk.grid([[-1, 1]], 60)
    known = mk.learn_prior(mk.History.from_csv(table, **columns))

    def learned_kernel() -> mk.KernelSum:
        return mk.learn_kernel(history, base, lam=0.03).kernel

    def kernel_decides(kernel: mk.KernelSum) -> None:
        rng = np.random.default_rng(0)
        optimizer = mk.GPUCB(
            mk.ConfidenceSequence(kernel, noise_std=0.05, norm_bound=4.0), domain, rng=rng
        )
        decide(optimizer, lambda point: float(np.sin(point[0])))

    def prior_decides(prior: mk.Prior) -> None:
        decide(
            prior.optimizer(rng=np.random.default_rng(0)),
            lambda point: 0.9 - 0.01 * abs(point["depth"] - 6),
        )

    kernel = learned_kernel()
    return {
        LEARN: walked(lambda: type_command(*learn)),
        SUGGEST: walked(lambda: type_command("suggest", prior, "--journal", journal)),
        "from_csv, learn_prior, ask, tell": walked(
            lambda: prior_decides(mk.learn_prior(mk.History.from_csv(table, **columns)))
        ),
        "learn_kernel, GPUCB, ask, tell": walked(lambda: kernel_decides(learned_kernel())),
        "prior.optimizer, ask, tell": walked(lambda: prior_decides(known)),
        "GPUCB, ask, tell": walked(lambda: kernel_decides(kernel)),
    }


def size(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    """Print the counts, and with ``--list`` the files."""
    parser = argparse.ArgumentParser(prog="benchmarks.walk", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        found = walks(Path(folder))
    if options.list:
        for name, files in found.items():
            print(f"{name}: {len(files)} files")
            for path in sorted(files):
                print(f"  {size(path):4d} {path.relative_to(PACKAGE)}")
    found[f"{LEARN}, then suggest"] = found[LEARN] | found[SUGGEST]
    rows = [[name, str(len(f)), f"{sum(map(size, f)):,}"] for name, f in found.items()]
    print(markdown(["walk", "files entered", "lines in them"], rows))
    everything = list(PACKAGE.rglob("*.py"))
    print(f"\nthe package: {len(everything)} files, {sum(map(size, everything)):,} lines")


if __name__ == "__main__":
    main()
