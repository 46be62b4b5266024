"""One run of every experiment: pure functions of the seed, so any number of processes agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from benchmarks.coverage_worlds import (
    CONTESTANTS,
    DELTA,
    DELTA_LEARNING,
    NOISY,
    Intervals,
    World,
    contestant,
    noisy_world,
    paper_world,
)
from metakel._arrays import Array
from metakel.confidence import ConfidenceSequence
from metakel.kernels import KernelSum
from metakel.kernels.products import Scaling
from metakel.optimize import GPUCB
from metakel.search import candidates
from metakel.theory.regret import cumulative
from reproduction.settings import Streams

HORIZON = 50
NOISY_HORIZON = 200
REGRET_HORIZON = 40
# Every step at first, when sets change most, then every tenth.
LOOKS = [*range(1, 21), *range(30, NOISY_HORIZON + 1, 10)]
Sampling = Literal["uniform", "ucb"]


@dataclass
class Trace:
    """What intervals did in one run; entry t of ``half_widths`` is after t observations."""

    half_widths: list[float] = field(default_factory=list)
    missed_at: int | None = None
    alarm_at: int | None = None

    @property
    def covered(self) -> bool:
        """Whether f was inside at all points and all times."""
        return self.missed_at is None

    def look(self, intervals: Intervals, f: Array, t: int) -> Array:
        """Record the present time; returns the upper bounds."""
        lower, upper = intervals.interval()
        self.half_widths.append(float(np.mean(upper - lower)) / 2)
        if self.covered and not inside(f, lower, upper):
            self.missed_at = t
        return upper


def inside(f: Array, lower: Array, upper: Array) -> bool:
    """Whether f lies within the bounds everywhere, up to rounding."""
    slack = 1e-9 * (1 + np.abs(f))
    return bool(((lower - slack <= f) & (f <= upper + slack)).all())


@dataclass(frozen=True)
class PaperRun:
    """All contestants in one draw of the paper's example."""

    traces: dict[str, Trace]
    recovered: bool


def paper_run(scaling: Scaling, sampling: Sampling, run: int, seed: int) -> PaperRun:
    """Uniform points are the same for all contestants; with "ucb" each follows its own bound."""
    streams = Streams(seed, 0, run, fresh=True)
    world = paper_world(scaling, streams)
    traces = {name: _follow(name, world, sampling, streams) for name in CONTESTANTS}
    return PaperRun(traces, world.recovered)


def _follow(name: str, world: World, sampling: Sampling, streams: Streams) -> Trace:
    """Points, noise and ties are those of the run, whoever asks."""
    intervals, trace = contestant(name, world), Trace()
    choose, noise = streams.rng("points"), streams.rng("noise")
    upper = trace.look(intervals, world.f, 0)
    for t in range(1, HORIZON + 1):
        if sampling == "uniform":
            X = choose.uniform(-1, 1, (1, 1))
        else:
            best = np.flatnonzero(upper >= upper.max() - 1e-9 * np.ptp(upper))
            X = world.points[[choose.choice(best)]]
        intervals.tell(X, world.observe(X, noise))
        upper = trace.look(intervals, world.f, t)
    if isinstance(intervals, ConfidenceSequence) and intervals.alarms:
        trace.alarm_at = intervals.alarms[0].time
    return trace


def noisy_run(d: int, norm: float, run: int, seed: int) -> dict[str, Trace]:
    """The noise-dominated check under uniform sampling, looked at often rather than always."""
    streams = Streams(seed, 10 * d + int(norm >= 1), run, fresh=True)
    world = noisy_world(d, norm, streams)
    X = streams.rng("points").uniform(-1, 1, (NOISY_HORIZON, 1))
    y = world.observe(X, streams.rng("noise"))
    traces = {}
    for name in NOISY:
        intervals, trace = contestant(name, world), Trace()
        told = 0
        for t in LOOKS:
            intervals.tell(X[told:t], y[told:t])
            trace.look(intervals, world.f, t)
            told = t
        traces[name] = trace
    return traces


def missing_kernel_alarm(scaling: Scaling, run: int, seed: int) -> int | None:
    """When the alarm rings if one of the kernels that f uses was not learned; None if never."""
    streams = Streams(seed, 1, run, fresh=True)
    world = paper_world(scaling, streams)
    removed = streams.rng("ties").choice(world.true.active)
    kept = np.setdiff1d(world.learned.active, [removed])
    sequence = ConfidenceSequence(
        KernelSum.uniform(world.true.base, active=kept),
        noise_std=world.noise_std,
        norm_bound=world.norm_bound,
        delta=DELTA,
        delta_learning=DELTA_LEARNING,
    )
    choose, noise = streams.rng("points"), streams.rng("noise")
    for t in range(1, HORIZON + 1):
        X = choose.uniform(-1, 1, (1, 1))
        sequence.tell(X, world.observe(X, noise))
        if sequence.alarm is not None:
            return t
    return None


@dataclass(frozen=True)
class Game:
    """One run of GP-UCB.

    Attributes
    ----------
    regret : float
        Cumulative, sum of f(x*) - f(x_t).
    covered : bool
        Whether f was inside its bounds at all points and all times.
    violated : int
        At how many steps the best told point was further from the optimum than the certificate.
    certificate : float
        At the last step.
    """

    regret: float
    covered: bool
    violated: int
    certificate: float


def regret_run(scaling: Scaling, everything: bool, run: int, seed: int) -> dict[str, Game]:
    """GP-UCB on one function with the learned kernel, all base kernels, and the true one."""
    streams = Streams(seed, 2, run, fresh=True)
    world = paper_world(scaling, streams, everything=everything)
    kernels = {
        "learned": (world.learned, {"delta_learning": DELTA_LEARNING}),
        "full": (KernelSum.uniform(world.true.base), {}),
        "true": (world.true, {"norm_of": "kernel", "full": world.true}),
    }
    return {
        name: _play(kernel, world, streams, REGRET_HORIZON, **options)
        for name, (kernel, options) in kernels.items()
    }


def noisy_game(run: int, seed: int) -> Game:
    """GP-UCB where the noise dominates, so that some runs are not covered."""
    streams = Streams(seed, 3, run, fresh=True)
    world = noisy_world(3, 1.0, streams)
    return _play(world.learned, world, streams, REGRET_HORIZON)


def _play(
    kernel: KernelSum, world: World, streams: Streams, horizon: int, **options: object
) -> Game:
    optimizer = GPUCB(
        ConfidenceSequence(
            kernel, noise_std=world.noise_std, norm_bound=world.norm_bound, delta=DELTA, **options
        ),
        candidates(world.points),
        rng=streams.rng("ties"),
    )
    noise, top = streams.rng("noise"), float(world.f.max())
    values, violated, covered = [], 0, inside(world.f, *optimizer.confidence())
    for _ in range(horizon):
        x = optimizer.ask()
        optimizer.tell(x, world.observe(x[None], noise)[0])
        values.append(_value(world, x))
        covered &= inside(world.f, *optimizer.confidence())
        loss = top - _value(world, optimizer.best().x)
        violated += loss > optimizer.certificate().regret + 1e-9 * (1 + abs(top))
    return Game(
        float(cumulative(values, top)[-1]), covered, violated, optimizer.certificate().regret
    )


def _value(world: World, x: Array) -> float:
    return float(world.true.features(x[None])[0] @ world.theta)
