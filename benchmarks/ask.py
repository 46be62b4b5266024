"""The CPU time of one ask, on a 2-D box with t observations, against other optimizers.

``python -m benchmarks.ask [--quick] [--rounds 15] [--update-docs]``

Everybody gets the same observations of a noisy Branin function, the ones our optimizer asked for.
One process, one thread; the askers take turns, and medians are compared. A rival that is not
installed is left out. The ask is worth its time only if the point is good: its upper bound is
compared with the best of 100,000 points.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.ask_askers import NOISE, RIVALS, Ask, Ours, Undo, optimizer
from benchmarks.command import run
from benchmarks.docs import markdown
from benchmarks.solver_table import machine
from metakel.data import History
from metakel.kernels import KernelSum, tensor_product
from metakel.learn import learn_kernel

TIMES = (10, 50, 200)
FIRST_SEED = 1000  # the search was tuned on other seeds
BURST_SECONDS = 0.25  # asks are repeated within a turn
FROZEN = "BoTorch, frozen, UCB (10 restarts, 512 raw)"
ASK, TELL_AND_ASK = "metakel ask, 100 features", "metakel tell + ask, 100 features"


def branin(X: np.ndarray, *, shift: float = 0.0) -> np.ndarray:
    """Minus Branin on [-1, 1]^2, about standardised; ``shift`` makes it another task."""
    u, v = 7.5 * X[:, 0] + 2.5 + shift, 7.5 * (X[:, 1] + 1)
    bend = v - 5.1 / (4 * np.pi**2) * u**2 + 5 / np.pi * u - 6
    value = bend**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(u) + 10
    return (54 - value) / 51


def learned_kernel(rng: np.random.Generator) -> KernelSum:
    """Learned from 20 shifted functions, 60 points each."""
    pairs = []
    for shift in rng.uniform(-1, 1, 20):
        X = rng.uniform(-1, 1, (60, 2))
        pairs.append((X, branin(X, shift=shift) + NOISE * rng.standard_normal(60)))
    base = tensor_product(2, 13, scaling="l2", include_constant=True)
    return learn_kernel(History.from_pairs(pairs), base, noise_std=NOISE).kernel


def hundred_features(learned: KernelSum) -> KernelSum:
    """The largest kernel that the goals are about: 100 of the base kernels with weight 1."""
    return KernelSum.uniform(learned.base, active=np.arange(100))


@dataclass(frozen=True)
class Trajectory:
    """What our optimizer asked for and saw."""

    X: np.ndarray
    y: np.ndarray


def trajectory(kernel: KernelSum, steps: int, seed: int) -> Trajectory:
    asker, rng = optimizer(kernel, seed), np.random.default_rng(1000 + seed)
    for _ in range(steps):
        x = asker.ask()
        asker.tell(x, branin(x[None]) + NOISE * rng.standard_normal(1))
    return Trajectory(asker.X, asker.y)


def cpu_seconds(ask: Ask, undo: Undo) -> float:
    """Of one ask; the median of several where they are short."""
    seconds: list[float] = []
    while not seconds or sum(seconds) < BURST_SECONDS:
        start = time.process_time()
        ask()
        seconds.append(time.process_time() - start)
        undo()
    return float(np.median(seconds))


def shortfall(kernel: KernelSum, path: Trajectory, t: int, seed: int, rng: Any) -> float:
    """How far the upper bound of the asked point is below the best of 100,000, over its range."""
    asker = optimizer(kernel, seed)
    for x, value in zip(path.X[:t], path.y[:t], strict=True):
        asker.tell(x, value)
    side = np.linspace(-1, 1, 224)
    lattice = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    Z = np.concatenate([lattice, rng.uniform(-1, 1, (100_000 - len(lattice), 2))])
    present = asker.model.sequence.current
    rough = np.concatenate([present.upper(block) for block in np.array_split(Z, 50)])
    # Refining only lowers a bound, so the best of all is among the roughly best.
    top = present.interval(Z[np.argsort(-rough)[:2000]])[1].max()
    value = present.interval(asker.ask()[None])[1][0]
    return float((top - value) / np.ptp(rough))


def many_observations(kernel: KernelSum, count: int) -> tuple[float, float]:
    """Seconds of CPU to take in ``count`` observations at once, and for the ask after that."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (count, 2))
    asker = optimizer(kernel, 0)
    y = branin(X) + NOISE * rng.standard_normal(count)
    start = time.process_time()
    asker.tell(X, y)
    telling = time.process_time() - start
    asking = cpu_seconds(
        lambda: (asker.tell(X[0], y[0]), asker.ask()), lambda: asker.drop(asker.pending)
    )
    return telling, asking


def measure(rounds: int) -> str:
    """All measurements, as a section of the documentation."""
    rng = np.random.default_rng(0)
    learned = learned_kernel(rng)
    large = hundred_features(learned)
    askers: dict[str, Any] = {
        ASK: Ours(large),
        TELL_AND_ASK: Ours(large, with_tell=True),
        f"metakel ask, learned kernel, {learned.dim} features": Ours(learned),
    }
    missing = []
    for name, (module, asker) in RIVALS.items():
        if find_spec(module) is None:
            missing.append(module)
            print(f"{name}: {module} is not installed, left out", file=sys.stderr)
        else:
            askers[name] = asker
    seconds: dict[tuple[str, int], list[float]] = {}
    gaps: list[float] = []
    for seed in range(FIRST_SEED, FIRST_SEED + rounds):
        path = trajectory(large, max(TIMES), seed)
        for t in TIMES:
            for name, asker in askers.items():
                burst = cpu_seconds(*asker.prepare(path.X[:t], path.y[:t], seed))
                seconds.setdefault((name, t), []).append(burst)
            gaps += [shortfall(k, path, t, seed, rng) for k in (large, learned)]
        print(f"round {seed - FIRST_SEED + 1} of {rounds}", file=sys.stderr, flush=True)
    medians = {key: float(np.median(values)) for key, values in seconds.items()}
    return report(askers, medians, gaps, many_observations(large, 10_000), missing, rounds)


def report(
    askers: dict[str, Any],
    medians: dict[tuple[str, int], float],
    gaps: list[float],
    many: tuple[float, float],
    missing: Sequence[str],
    rounds: int,
) -> str:
    rows = []
    for name in askers:
        cells = [f"{1e3 * medians[name, t]:.3g}" for t in TIMES]
        ratio = medians[name, TIMES[-1]] / medians[ASK, TIMES[-1]]
        rows.append([name, *cells, f"{ratio:.3g}x"])
    ours = [medians[ASK, t] for t in TIMES]
    floors = [
        ("slowest ask", f"{1e3 * max(ours):.3g} ms", "<= 5 ms", max(ours) <= 5e-3),
        (
            "growth from t = 10 to 200",
            f"{ours[-1] / ours[0]:.2f}x",
            "<= 2x",
            ours[-1] <= 2 * ours[0],
        ),
        ("acquisition below 100,000 points", f"{max(gaps):.1e}", "<= 1e-3", max(gaps) <= 1e-3),
        (
            "tell + ask with 10,000 observations",
            f"{1e3 * many[1]:.3g} ms (all told at once: {1e3 * many[0]:.3g} ms)",
            "<= 10 s",
            many[1] <= 10,
        ),
    ]
    if (FROZEN, TIMES[0]) in medians:
        ratio = min(medians[FROZEN, t] / medians[ASK, t] for t in TIMES)
        floors.append(("below BoTorch frozen, every t", f"{ratio:.3g}x", ">= 20x", ratio >= 20))
    head = ["one ask, CPU ms", *(f"t = {t}" for t in TIMES), f"over ours, t = {TIMES[-1]}"]
    verdicts = [[*cells, "met" if met else "MISSED"] for *cells, met in floors]
    note = f" Not installed: {', '.join(missing)}." if missing else ""
    return "\n".join(
        [
            f"Medians of {rounds} runs of a noisy Branin function on a box; everybody has the same",
            "observations. A model that must be fitted again for every point is fitted on the",
            "clock (not for BoTorch frozen, whose hyper-parameters are given). The upper bound at",
            f"the point asked for is compared with the best of 100,000 in {len(gaps)} states,",
            f"relative to its range; negative where it is above them.{note}",
            "",
            markdown(head, rows),
            "",
            markdown(["goal", "measured", "floor", "verdict"], verdicts),
            "",
            machine(),
        ]
    )


if __name__ == "__main__":
    run("ask", "ask", __doc__, measure, rounds=15, title="The time of one ask")
