"""How often the alarm notices a missing kernel, by who chooses the points.

One dimension, five of twenty Legendre kernels with standard normal coefficients, known norm bound
and noise. One of the five is not in the kernel, and its coefficient is ten times the noise; 40
points. False alarms and regret are those of runs in which nothing is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.docs import markdown
from metakel._arrays import Array
from metakel.confidence import DMM, ConfidenceSequence
from metakel.kernels import KernelSum, legendre
from metakel.optimize import GPUCB
from metakel.search import candidates
from reproduction.figure import rate

BASE = legendre(20, scaling="l2")
GRID = np.linspace(-1, 1, 101)[:, None]
PHI = BASE.features(GRID)
TRUE, MISSING, NORM, DELTA, HORIZON = 5, 10.0, 5.0, 0.1, 40
NOISES = (0.1, 0.02)
HEARD, CLEAN = 50, 50
CLEAN_WITH_PROBES = 200  # of what is recommended


@dataclass(frozen=True)
class Heard:
    """One run: when the alarm was set, whether the band is true at the end, and the regret."""

    time: int | None
    covered: bool
    regret: float


@dataclass(frozen=True)
class Policy:
    """Who chooses the points; None probes means uniform points."""

    probes: int | None
    watch_kernels: bool

    def __str__(self) -> str:
        name = {None: "uniform points", 0: "GP-UCB"}.get(
            self.probes, f"GP-UCB, {self.probes} probes"
        )
        return f"{name}, neighbours" if self.watch_kernels else name


POLICIES = (
    Policy(None, False),
    Policy(0, False),
    Policy(0, True),
    Policy(4, True),
    Policy(8, False),
    Policy(8, True),
)


def run_once(policy: Policy, sigma: float, missing: bool, run: int, seed: int) -> Heard:
    """One task; the same for all policies."""
    rng = np.random.default_rng([seed, run, 11])
    support = np.sort(rng.choice(BASE.p, TRUE, replace=False))
    while np.linalg.norm(theta := rng.normal(size=TRUE)) > NORM - MISSING * max(NOISES):
        pass
    if missing:
        theta[0] = MISSING * sigma * rng.choice([-1, 1])
    f = PHI[:, support] @ theta
    noise = sigma * rng.standard_normal(HORIZON)
    kernel = KernelSum.uniform(BASE, active=support[int(missing) :])
    common: dict[str, Any] = {"noise_std": sigma, "norm_bound": NORM, "delta": DELTA}
    common["method"] = DMM(watch_kernels=policy.watch_kernels)
    rows = []
    if policy.probes is None:
        sequence = ConfidenceSequence(kernel, points=GRID, **common)
        rows = list(rng.integers(len(GRID), size=HORIZON))
        for row, e in zip(rows, noise, strict=True):
            sequence.tell(GRID[[row]], [f[row] + e])
        lower, upper = sequence.interval()
        alarms = sequence.alarms
    else:
        optimizer = GPUCB(
            ConfidenceSequence(kernel, **common), candidates(GRID), rng=rng, probes=policy.probes
        )
        for e in noise:
            x = optimizer.ask()
            rows.append(int(np.abs(GRID[:, 0] - x[0]).argmin()))
            optimizer.tell(x, f[rows[-1]] + e)
        lower, upper = optimizer.confidence()
        alarms = optimizer.model.certified.alarms
    return Heard(alarms[0].time if alarms else None, _inside(f, lower, upper), _regret(f, rows))


def _inside(f: Array, lower: Array, upper: Array) -> bool:
    return bool(((f >= lower - 1e-9) & (f <= upper + 1e-9)).all())


def _regret(f: Array, rows: list[int]) -> float:
    return float((f.max() - f[rows]).sum())


def alarm_table(seed: int, heard: int = HEARD, clean: int = CLEAN) -> str:
    """All policies and noises, as Markdown."""
    lines = []
    for sigma in NOISES:
        for policy in POLICIES:
            wrong = _runs(policy, sigma, True, seed, heard)
            many = CLEAN_WITH_PROBES if policy == POLICIES[-1] and clean == CLEAN else clean
            right = _runs(policy, sigma, False, seed, many)
            lines.append(_line(policy, sigma, wrong, right))
            print(lines[-1], flush=True)
    head = ["noise", "points", "alarm (95 %)", "median time", "true at the end", "false alarms"]
    return markdown([*head, "regret, nothing missing"], lines)


def _runs(policy: Policy, sigma: float, missing: bool, seed: int, runs: int) -> list[Heard]:
    return [run_once(policy, sigma, missing, run, seed) for run in range(runs)]


def _line(policy: Policy, sigma: float, wrong: list[Heard], right: list[Heard]) -> list[str]:
    times = [h.time for h in wrong if h.time is not None]
    share = rate("alarm", [h.time is not None for h in wrong])
    return [
        f"{sigma:g}",
        str(policy),
        f"{share['alarm']:.2f} ({share['alarm low']:.2f} to {share['alarm high']:.2f})",
        f"{np.median(times):.0f}" if times else "",
        f"{np.mean([h.covered for h in wrong]):.2f}",
        f"{sum(h.time is not None for h in right)} of {len(right)}",
        f"{np.mean([h.regret for h in right]):.0f}",
    ]
