"""Safe search, level sets and the quadrotor, against rules of others on the same worlds.

``python -m benchmarks.frontier [--runs 200] [--update-docs]``

Every run has a new history of 80 tasks with 40 noisy values each, a new task, and a limit that a
third of the mean of past tasks violates. Half of the tasks teach, half calibrate; delta is 0.1 in
all. Nobody names a safe point. Rules of others get the first point of ours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import metakel as mk
from benchmarks import frontier_contexts, frontier_lifelong
from benchmarks.docs import PAGES, markdown, update_section
from benchmarks.frontier_rules import Process, feasible_ucb, safe_opt
from benchmarks.frontier_worlds import BASE, GRID, NOISE, SPACE, Output, X, line, named, plane
from metakel.search import Domain, SearchSpace

ROOT = Path(__file__).resolve().parents[1]
TRIES = 40
Row = tuple[str, ...]
INTRODUCTION = """`make bench-frontier`. SafeOpt's rule is our own implementation, because the
package does not import on current versions of Python. Every world has 80 past tasks of 40 noisy
values (half teach, half calibrate), 20 base kernels of which 5 are active, and a limit that a third
of the mean task violates. Nobody names a safe point; the rules of others get our first one. The
quadrotor's start set is that of one history; its promise of 0.05 is about the average over
histories."""


def optimizer(
    start: mk.optimize.SafeStart, domain: Domain, limit: float | None, rng: np.random.Generator
) -> mk.optimize.Optimizer:
    """The safe search that begins at a start set from past tasks."""
    return mk.GPUCB(
        start.kernel,
        domain,
        rng=rng,
        noise_std=NOISE,
        centre=start.centre,
        norm_bound=start.norm_bound,
        norm_of="kernel",
        at_least=limit,
        limits=start.limits(),
        start=start,
        delta=0.1,
    )


def begin(world: Output, domain: Domain) -> mk.optimize.SafeStart:
    """The start set of one output."""
    return mk.safe_start(
        world.history,
        BASE if domain is GRID else world.kernel.base,
        domain=domain,
        noise_std=NOISE,
        at_least=world.limit,
    )


def ours(world: Output, start: mk.optimize.SafeStart, rng: np.random.Generator) -> list[int] | None:
    """Rows tried by safe search; None where the start set is empty."""
    if not start.contains(X).any():
        return None
    game, f, rows = optimizer(start, GRID, world.limit, rng), world.f(X), []
    for _ in range(TRIES):
        try:
            x = game.ask()
        except (mk.Alarm, mk.NoSafePoint):
            break
        rows.append(int(np.argmin(np.abs(X[:, 0] - x[0]))))
        game.tell(x, f[rows[-1]] + NOISE * rng.normal())
    return rows


def one_limit(runs: int) -> tuple[list[Row], Row]:
    """Any unsafe try, regret over range, and the start set, of all rules."""
    names = ["**metakel, safe search**", "SafeOpt rule, SE, beta 2", "SafeOpt rule, SE, beta 3"]
    names.append("UCB where feasible with 95 %, SE")
    unsafe, regrets = {n: [] for n in names}, {n: [] for n in names}
    nonempty, bad_start = 0, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        world = line(rng)[0]
        f, limit = world.f(X), world.limit
        start = begin(world, GRID)
        bad_start += bool((f[start.contains(X)] < limit).any())
        rows = ours(world, start, rng)
        if rows is None:
            continue
        nonempty += 1

        def measure(row: int, f: np.ndarray = f, rng: np.random.Generator = rng) -> float:
            return float(f[row] + NOISE * rng.normal())

        process = Process.fitted(X, world.history, NOISE)
        tried = {
            names[0]: rows,
            names[1]: safe_opt(process, limit, rows[0], measure, TRIES, 2.0),
            names[2]: safe_opt(process, limit, rows[0], measure, TRIES, 3.0),
            names[3]: feasible_ucb(process, limit, rows[0], measure, TRIES),
        }
        best = f[f >= limit].max()
        for name, chosen in tried.items():
            unsafe[name].append(bool((f[chosen] < limit).any()))
            safe = np.where(f[chosen] >= limit, f[chosen], -np.inf)
            height = np.maximum.accumulate(np.r_[safe, [-np.inf] * (TRIES - len(safe))])
            regrets[name].append((best - height[[4, 9, 39]]) / np.ptp(f))
    table = [
        (n, f"{np.mean(unsafe[n]):.3f}", *(f"{r:.4f}" for r in np.mean(regrets[n], axis=0)))
        for n in names
    ]
    return table, (f"{nonempty / runs:.3f}", f"{bad_start / runs:.3f}")


def three_outputs(runs: int) -> Row:
    """Two limits beside the objective, 25 tries."""
    unsafe, regrets, nonempty = [], [], 0
    for seed in range(runs):
        rng = np.random.default_rng(10_000 + seed)
        goal, *others = line(rng, 3)
        limits = {
            str(i): mk.PastOutput(o.history, BASE, NOISE, at_least=o.limit)
            for i, o in enumerate(others)
        }
        start = mk.safe_start(goal.history, BASE, domain=GRID, noise_std=NOISE, limits=limits)
        if not start.contains(X).any():
            continue
        nonempty += 1
        game, f = optimizer(start, GRID, None, rng), goal.f(X)
        safe = np.all([o.f(X) >= o.limit for o in others], axis=0)
        rows: list[int] = []
        for _ in range(25):
            try:
                x = game.ask()
            except (mk.Alarm, mk.NoSafePoint):
                break
            rows.append(int(np.argmin(np.abs(X[:, 0] - x[0]))))
            noise = NOISE * rng.normal(size=3)
            measured = {str(i): o.f(x[None])[0] + noise[i] for i, o in enumerate(others)}
            game.tell(x, f[rows[-1]] + noise[2], measured)
        unsafe.append(not safe[rows].all())
        heights = np.maximum.accumulate(np.where(safe[rows], f[rows], -np.inf))
        best = f[safe].max()
        regrets.append([(best - heights[min(t, len(rows) - 1)]) / np.ptp(f) for t in (4, 9, 24)])
    cells = (f"{r:.4f}" for r in np.mean(regrets, axis=0))
    return (
        f"metakel, two limits (25 tries; start in {nonempty / runs:.2f})",
        f"{np.mean(unsafe):.3f}",
        *cells,
    )


def elsewhere(runs: int, draw: Callable[..., Output], domain: Domain, label: str) -> Row:
    """Boxes and named spaces: any unsafe try, regret over the range, 10 tries."""
    unsafe, regrets, nonempty = [], [], 0
    for seed in range(runs):
        rng = np.random.default_rng(20_000 + seed)
        world = draw(rng)
        start = begin(world, domain)
        probe = domain.sample(rng, 2000)
        truth = world.f(probe)
        if not start.contains(domain.start_points(np.random.default_rng(0)).X).any():
            continue
        nonempty += 1
        game, values = optimizer(start, domain, world.limit, rng), []
        for _ in range(10):
            try:
                x = game.ask()
            except (mk.Alarm, mk.NoSafePoint):
                break
            values.append(float(world.f(domain.encode([x], "benchmark"))[0]))
            game.tell(x, values[-1] + NOISE * rng.normal())
        unsafe.append(min(values) < world.limit)
        best, heights = truth[truth >= world.limit].max(), np.maximum.accumulate(values)
        regrets.append([(best - heights[min(t, len(heights) - 1)]) / np.ptp(truth) for t in (4, 9)])
    cells = [f"{max(r, 0):.4f}" for r in np.mean(regrets, axis=0)]
    return (
        f"{label} (10 tries; start in {nonempty / runs:.2f})",
        f"{np.mean(unsafe):.3f}",
        *cells,
        "",
    )


def gap(runs: int, noise: float = 0.02, tries: int = 80) -> list[Row]:
    """The optimum is in another component than the point that the user vouches for."""
    reached: dict[str, list[bool]] = {"metakel": [], "SafeOpt rule, SE, beta 3": []}
    unsafe: dict[str, list[bool]] = {name: [] for name in reached}
    seed = 0
    while len(reached["metakel"]) < runs:
        rng, seed = np.random.default_rng(30_000 + seed), seed + 1
        kernel = mk.KernelSum.uniform(BASE, active=np.sort(rng.choice(20, 5, replace=False)))
        theta = rng.normal(size=5)
        theta *= rng.uniform(0.5, 1.0) * 3 / np.linalg.norm(theta)
        f = kernel.features(X) @ theta
        limit = float(np.quantile(f, 1 / 3))
        parts = np.cumsum(np.r_[0, np.diff((f >= limit).astype(int)) != 0])
        best = int(np.argmax(f))
        apart = np.flatnonzero((f >= limit + 0.2) & (parts != parts[best]))
        if not len(apart):
            continue
        first = int(apart[np.argmax(f[apart])])
        game = mk.GPUCB(
            kernel, GRID, rng=rng, noise_std=noise, norm_bound=3.0, at_least=limit, start=[X[first]]
        )
        rows: list[int] = []
        for _ in range(tries):
            x = game.ask()
            rows.append(int(np.argmin(np.abs(X[:, 0] - x[0]))))
            if parts[rows[-1]] == parts[best]:
                break
            game.tell(x, f[rows[-1]] + noise * rng.normal())
        past = mk.History.from_pairs(
            (Z, kernel.features(Z) @ (t * 3 / np.linalg.norm(t)) + noise * rng.normal(size=40))
            for Z, t in ((rng.uniform(-1, 1, (40, 1)), rng.normal(size=5)) for _ in range(10))
        )
        process = Process.fitted(X, past, noise)

        def measure(row: int, f: np.ndarray = f, rng: np.random.Generator = rng) -> float:
            return float(f[row] + noise * rng.normal())

        theirs = safe_opt(process, limit, first, measure, tries, 3.0)
        for name, chosen in (("metakel", rows), ("SafeOpt rule, SE, beta 3", theirs)):
            reached[name].append(bool((parts[chosen] == parts[best]).any()))
            unsafe[name].append(bool((f[chosen] < limit).any()))
    return [(n, f"{np.mean(reached[n]):.3f}", f"{np.mean(unsafe[n]):.3f}") for n in reached]


def levels(runs: int, most: int = 80, *, norm: float | None = None) -> list[Row]:
    """Tries until a level set is decided within 10 % of the range, with learned and all kernels.

    Coefficients have absolute values between 0.1 and 1, or random directions and norms between
    half of ``norm`` and ``norm``. Noise is 0.1, so that the first tasks have the lower signal.
    """
    needed: dict[str, list[int]] = {"learned kernel": [], "all kernels": []}
    wrong = dict.fromkeys(needed, 0)
    for seed in range(runs):
        rng = np.random.default_rng(40_000 + seed)
        kernel = mk.KernelSum.uniform(BASE, active=np.sort(rng.choice(20, 5, replace=False)))
        drawn = rng.uniform(0.1, 1, (31, 5)) * rng.choice([-1, 1], (31, 5))
        if norm is not None:
            drawn = rng.normal(size=(31, 5))
            sizes = norm * rng.uniform(0.5, 1, 31) / np.linalg.norm(drawn, axis=1)
            drawn *= sizes[:, None]
        *thetas, theta = drawn
        past = mk.History.from_pairs(
            (Z, kernel.features(Z) @ other + 0.1 * rng.normal(size=30))
            for Z, other in ((rng.uniform(-1, 1, (30, 1)), other) for other in thetas)
        )
        f = kernel.features(X) @ theta
        bound = norm or float(np.linalg.norm(theta)) * 1.2
        level, tolerance = float(np.median(f)), 0.1 * float(np.ptp(f))
        learned = mk.learn_kernel(past, BASE, noise_std=0.1, delta=0.05)
        kernels = {"learned kernel": (learned.kernel, 0.05)}
        if seed < 30:
            kernels["all kernels"] = (mk.KernelSum.uniform(BASE, weight=1.0), 0.0)
        for name, (assumed, spent) in kernels.items():
            game = mk.GPUCB(
                assumed,
                GRID,
                rng=rng,
                noise_std=0.1,
                norm_bound=bound,
                delta_learning=spent,
                acquisition=mk.LevelSet(level, tolerance),
            )
            while not game.done and game.t < most:
                x = game.ask()
                game.tell(x, f[int(np.argmin(np.abs(X[:, 0] - x[0])))] + 0.1 * rng.normal())
            needed[name].append(game.t)
            above, below = game.above(X, level), game.below(X, level)
            wrong[name] += bool((f[above] < level).any() or (f[below] >= level).any())
    size = "0.1 to 1 each" if norm is None else f"norm {norm / 2:g} to {norm:g}"
    return [
        (n, size, f"{np.median(t):.0f}", f"{np.mean(t):.1f}", f"{wrong[n]} of {len(t)}")
        for n, t in needed.items()
    ]


def quadrotor(runs: int) -> list[Row]:
    """New vehicles of the example, 20 flights each."""
    from examples import quadrotor as example

    rng = np.random.default_rng(0)
    lesson = example.Lesson.learn(rng)
    options = {"limits": example.LIMITS, "noise_std": example.NOISES, "rng": rng}
    promised = mk.replay(lesson.tune, example.vehicles(60, rng), **options)
    new = example.vehicles(runs, rng)
    flown = mk.replay(lesson.tune, new, **options)
    extra = [
        [example.extra_error(v, rows[:t]) for v, rows in zip(new, flown.rows, strict=True)]
        for t in (1, 3, 5, 20)
    ]
    start = lesson.start.contains(example.DOMAIN.X)
    bad = np.mean([bool((v.outputs["peak"][start] > example.PEAK).any()) for v in new])
    cells = (f"{100 * np.mean(e):.1f} ({100 * np.median(e):.1f})" for e in extra)
    certificate = f"{promised.count} of 60: {promised.expected:.3f}, {promised.bound():.3f}"
    return [(f"{flown.count} of {runs}", *cells, certificate, f"{bad:.3f}")]


def sections(runs: int) -> dict[str, Callable[[], list[tuple[str, Row, list[Row]]]]]:
    """What there is to run, by name: tables with a text and a head."""
    rules = ("rule", "any unsafe try", "regret / range, 5 tries", "10", "40")

    def line_rows() -> list[tuple[str, Row, list[Row]]]:
        rows, start = one_limit(runs)
        found = f"The start set from history alone, the same {runs} worlds, promised 0.08:"
        return [
            (f"Safe search, {runs} new histories and tasks, delta = 0.1:", rules, rows),
            (found, ("not empty", "holds an unsafe point"), [start]),
        ]

    def other_rows() -> list[tuple[str, Row, list[Row]]]:
        box, space = mk.box([(-1, 1), (-1, 1)]), SearchSpace(SPACE, SPACE)
        rows = [
            elsewhere(runs, plane, box, "box of two inputs"),
            elsewhere(runs, named, space, "named space with an integer and a choice"),
        ]
        return [(f"Safe search elsewhere, {runs} histories and tasks each:", rules, rows)]

    def real_table() -> list[tuple[str, Row, list[Row]]]:
        from benchmarks.frontier_real import DELTA, FLOOR, TRIES, real_rows

        text = (
            "The bundled table, every second data set in turn as the new task: the AUC may be at "
            f"most {-FLOOR} below that of the configuration in use, which is where all begin; "
            f"delta = {DELTA}, {TRIES} tries:"
        )
        head = ("rule", "tasks with an unsafe try", "unsafe tries", "regret / range")
        return [(text, head, real_rows())]

    gap_text = f"The optimum behind an unsafe gap, one point vouched for, {runs} tasks, 80 tries:"
    level_text = (
        "Level sets decided within 10 % of the range (at most 80 tries; all kernels: 30 tasks):"
    )
    level_head = ("kernel", "coefficients", "median tries", "mean", "wrong")
    flights = (
        f"The quadrotor of `examples/quadrotor.py`, {runs} new vehicles, 20 flights each; extra "
        "error over the best safe gains in %, mean (median):"
    )
    head = ("unsafe vehicles", "1 flight", "3", "5", "20", "replay", "start set unsafe")
    return {
        "line": line_rows,
        "limits": lambda: [("Two limits beside the objective:", rules, [three_outputs(runs)])],
        "gap": lambda: [(gap_text, ("rule", "reached", "any unsafe try"), gap(runs))],
        "quadrotor": lambda: [(flights, head, quadrotor(runs))],
        "levels": lambda: [(level_text, level_head, [*levels(runs), *levels(runs, norm=3.0)])],
        "real": real_table,
        "elsewhere": other_rows,
        "contexts": lambda: frontier_contexts.tables(runs),
        "lifelong": lambda: frontier_lifelong.tables(runs),
    }


def main() -> None:
    """Run everything and write the section of docs/benchmarks/safe.md."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=200)
    arguments.add_argument("--only", help="sections by name, separated by commas")
    arguments.add_argument("--update-docs", action="store_true")
    given = arguments.parse_args()
    began, parts = time.time(), [INTRODUCTION]
    known = sections(given.runs)
    for name in given.only.split(",") if given.only else known:
        for text, head, rows in known[name]():
            parts.append(f"{text}\n\n{markdown(head, rows)}")
            print(parts[-1], f"\n({time.time() - began:.0f} s)\n", flush=True)
    if given.update_docs:
        update_section(PAGES / "safe.md", "frontier", "Safe search", "\n\n".join(parts))


if __name__ == "__main__":
    main()
