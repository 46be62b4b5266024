"""Safe search on drawn worlds: one limit, two limits, a box, a named space, an unsafe gap.

Every seed has a new history of 80 tasks with 40 noisy values each, a new task, and a limit that a
third of the mean of past tasks violates. Half of the tasks teach, half calibrate; delta is 0.1 in
all. Nobody names a safe point. Rules of others get the first point of ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metakel as mk
from benchmarks.frontier_rules import Process, feasible_ucb, safe_opt
from benchmarks.frontier_worlds import BASE, GRID, NOISE, SPACE, Output, X, line, named, plane
from benchmarks.seeds import Result
from metakel.safe import Limited, LimitHistory, NoSafePoint, SafeStart, safe_start
from metakel.search import Domain, SearchSpace

TRIES = 40
Row = tuple[str, ...]
Table = tuple[str, Row, list[Row]]  # a text, a head, rows
OURS, SAFE_OPT_2, SAFE_OPT_3 = "**metakel**", "SafeOpt rule, SE, beta 2", "SafeOpt rule, SE, beta 3"
FEASIBLE = "UCB where feasible with 95 %, SE"
HEAD = ("rule", "any unsafe try", "regret / range, 5 tries", "10", "last")


def optimizer(
    start: SafeStart, domain: Domain, limit: float | None, rng: np.random.Generator
) -> mk.optimize.Optimizer:
    """The safe search that begins at a start set from past tasks."""
    return mk.GPUCB(
        Limited(
            mk.ConfidenceSequence(
                start.kernel,
                noise_std=NOISE,
                center=start.center,
                norm_bound=start.norm_bound,
                norm_of="kernel",
                delta=0.1,
            ),
            at_least=limit,
            limits=start.limits(),
            start=start,
        ),
        domain,
        rng=rng,
    )


def begin(world: Output, domain: Domain) -> SafeStart:
    """The start set of one output."""
    return safe_start(
        world.history,
        BASE if domain is GRID else world.kernel.base,
        domain=domain,
        noise_std=NOISE,
        at_least=world.limit,
    )


def _row(x: np.ndarray) -> int:
    return int(np.argmin(np.abs(X[:, 0] - x[0])))


def _judged(f: np.ndarray, safe: np.ndarray, rows: Sequence[int], times: Sequence[int]) -> Result:
    """Whether a try was unsafe, and the regret over the range after some tries."""
    heights = np.maximum.accumulate(np.where(safe[rows], f[rows], -np.inf))
    best = f[safe].max()
    regrets = [(best - heights[min(t, len(rows)) - 1]) / np.ptp(f) for t in times]
    return {"unsafe": bool((~safe[rows]).any()), "regret": [float(r) for r in regrets]}


def one_limit(seed: int) -> Result:
    """Any unsafe try, regret over range, and the start set, of all rules."""
    rng = np.random.default_rng(seed)
    world = line(rng)[0]
    f, limit, start = world.f(X), world.limit, begin(world, GRID)
    inside, safe = start.contains(X), f >= limit
    found: Result = {"start": bool(inside.any()), "bad start": bool((~safe[inside]).any())}
    if not inside.any():
        return found
    game, rows = optimizer(start, GRID, limit, rng), []
    for _ in range(TRIES):
        try:
            x = game.ask()
        except (mk.Alarm, NoSafePoint):
            break
        rows.append(_row(x))
        game.tell(x, f[rows[-1]] + NOISE * rng.normal())

    def measure(row: int) -> list[float]:
        return [float(f[row] + NOISE * rng.normal())]

    process = Process.fitted(X, world.history.tasks, NOISE)
    tried = {
        OURS: rows,
        SAFE_OPT_2: safe_opt(process, None, limit, rows[0], measure, TRIES, 2.0),
        SAFE_OPT_3: safe_opt(process, None, limit, rows[0], measure, TRIES, 3.0),
        FEASIBLE: feasible_ucb(process, limit, rows[0], measure, TRIES),
    }
    return found | {name: _judged(f, safe, rows, (5, 10, 40)) for name, rows in tried.items()}


def two_limits(seed: int) -> Result:
    """Two limits beside the objective, 25 tries."""
    rng = np.random.default_rng(seed)
    goal, *others = line(rng, 3)
    limits = {
        str(i): LimitHistory(o.history, BASE, NOISE, at_least=o.limit) for i, o in enumerate(others)
    }
    start = safe_start(goal.history, BASE, domain=GRID, noise_std=NOISE, limits=limits)
    if not start.contains(X).any():
        return {"start": False}
    game, f, rows = optimizer(start, GRID, None, rng), goal.f(X), []
    safe = np.all([o.f(X) >= o.limit for o in others], axis=0)
    for _ in range(25):
        try:
            x = game.ask()
        except (mk.Alarm, NoSafePoint):
            break
        rows.append(_row(x))
        noise = NOISE * rng.normal(size=3)
        measured = {str(i): o.f(x[None])[0] + noise[i] for i, o in enumerate(others)}
        game.tell(x, f[rows[-1]] + noise[2], measured)
    return {"start": True, OURS: _judged(f, safe, rows, (5, 10, 25))}


def in_a_box(seed: int) -> Result:
    """A box of two inputs, 10 tries."""
    rng = np.random.default_rng(seed)
    return _elsewhere(plane(rng), mk.box([(-1, 1), (-1, 1)]), rng)


def in_a_named_space(seed: int) -> Result:
    """A number, an integer and a choice, 10 tries."""
    rng = np.random.default_rng(seed)
    return _elsewhere(named(rng), SearchSpace(SPACE, SPACE), rng)


def _elsewhere(world: Output, domain: Domain, rng: np.random.Generator) -> Result:
    start = begin(world, domain)
    truth = world.f(domain.sample(rng, 2000))
    if not start.contains(domain.start_points(np.random.default_rng(0)).X).any():
        return {"start": False}
    game, values = optimizer(start, domain, world.limit, rng), []
    for _ in range(10):
        try:
            x = game.ask()
        except (mk.Alarm, NoSafePoint):
            break
        values.append(float(world.f(domain.encode([x], "benchmark"))[0]))
        game.tell(x, values[-1] + NOISE * rng.normal())
    heights = np.maximum.accumulate(values)
    best = max(truth.max(), max(values))
    regrets = [(best - heights[min(t, len(heights)) - 1]) / np.ptp(truth) for t in (5, 10, 10)]
    return {"start": True, OURS: {"unsafe": min(values) < world.limit, "regret": regrets}}


def behind_a_gap(seed: int, noise: float = 0.02, tries: int = 80) -> Result:
    """The optimum is in another component than the point that the user vouches for."""
    for attempt in range(100):
        rng = np.random.default_rng((seed, attempt))
        kernel = mk.KernelSum.uniform(BASE, active=np.sort(rng.choice(20, 5, replace=False)))
        theta = rng.normal(size=5)
        theta *= rng.uniform(0.5, 1.0) * 3 / np.linalg.norm(theta)
        f = kernel.features(X) @ theta
        limit = float(np.quantile(f, 1 / 3))
        parts = np.cumsum(np.r_[0, np.diff((f >= limit).astype(int)) != 0])
        best = int(np.argmax(f))
        apart = np.flatnonzero((f >= limit + 0.2) & (parts != parts[best]))
        if len(apart):
            break
    first = int(apart[np.argmax(f[apart])])
    game = mk.GPUCB(
        Limited(
            mk.ConfidenceSequence(kernel, noise_std=noise, norm_bound=3.0),
            at_least=limit,
            start=[X[first]],
        ),
        GRID,
        rng=rng,
    )
    rows: list[int] = []
    for _ in range(tries):
        x = game.ask()
        rows.append(_row(x))
        if parts[rows[-1]] == parts[best]:
            break
        game.tell(x, f[rows[-1]] + noise * rng.normal())
    past = mk.History.from_pairs(
        (Z, kernel.features(Z) @ (t * 3 / np.linalg.norm(t)) + noise * rng.normal(size=40))
        for Z, t in ((rng.uniform(-1, 1, (40, 1)), rng.normal(size=5)) for _ in range(10))
    )
    process = Process.fitted(X, past.tasks, noise)

    def measure(row: int) -> list[float]:
        return [float(f[row] + noise * rng.normal())]

    theirs = safe_opt(process, None, limit, first, measure, tries, 3.0)
    return {
        name: {
            "reached": bool((parts[chosen] == parts[best]).any()),
            "unsafe": bool((f[chosen] < limit).any()),
        }
        for name, chosen in ((OURS, rows), (SAFE_OPT_3, theirs))
    }


def share(found: Sequence[Result], rule: str, key: str = "unsafe") -> float:
    """How often something happened to a rule, of the runs that it was in."""
    return float(np.mean([result[rule][key] for result in found if rule in result]))


def regret(found: Sequence[Result], rule: str = OURS) -> np.ndarray:
    """Mean regrets over the range of a rule."""
    return np.mean([result[rule]["regret"] for result in found if rule in result], axis=0)


def safe_row(label: str, found: Sequence[Result], rule: str = OURS) -> Row:
    """A line of the tables of rules."""
    cells = (f"{r:.4f}" for r in regret(found, rule))
    return (label, f"{share(found, rule):.3f}", *cells)


def starts(found: Sequence[Result]) -> tuple[float, float]:
    """How often the start set was not empty, and held an unsafe point."""
    filled = np.mean([result["start"] for result in found])
    return float(filled), float(np.mean([result.get("bad start", False) for result in found]))
