"""Level sets, a choice among models, and the quadrotor."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

import metakel as mk
from benchmarks.frontier_rules import Process, safe_opt
from benchmarks.frontier_worlds import BASE, GRID, X
from benchmarks.seeds import Result

MOST = 80  # tries for a level set


def level_set(norm: float | None, seed: int) -> Result:
    """Tries until a level set is decided within 10 % of the range, with learned and all kernels.

    Coefficients have absolute values between 0.1 and 1, or random directions and norms between
    half of ``norm`` and ``norm``. Noise is 0.1. All kernels take their time, so every fifth seed.
    """
    rng = np.random.default_rng(seed)
    kernel = mk.KernelSum.uniform(BASE, active=np.sort(rng.choice(20, 5, replace=False)))
    drawn = rng.uniform(0.1, 1, (31, 5)) * rng.choice([-1, 1], (31, 5))
    if norm is not None:
        drawn = rng.normal(size=(31, 5))
        drawn *= (norm * rng.uniform(0.5, 1, 31) / np.linalg.norm(drawn, axis=1))[:, None]
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
    if seed % 5 == 0:
        kernels["all kernels"] = (mk.KernelSum.uniform(BASE, weight=1.0), 0.0)
    found: Result = {"held": set(kernel.active) <= set(learned.active)}
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
        while not game.done and game.t < MOST:
            x = game.ask()
            game.tell(x, f[int(np.argmin(np.abs(X[:, 0] - x[0])))] + 0.1 * rng.normal())
        above, below = game.above(X, level), game.below(X, level)
        wrong = bool((f[above] < level).any() or (f[below] >= level).any())
        found[name] = {"tries": game.t, "wrong": wrong}
    return found


def models(seed: int) -> Result:
    """Twenty kernels of five base kernels each, one of which is right; 40 tries."""
    rng = np.random.default_rng(seed)
    chosen = [np.sort(rng.choice(20, 5, replace=False)) for _ in range(20)]
    kernels = [mk.KernelSum.uniform(BASE, active=active, weight=1.0) for active in chosen]
    right, theta = kernels[int(rng.integers(20))], rng.normal(size=5)
    f = right.features(X) @ (2.5 * theta / np.linalg.norm(theta))
    found: Result = {}
    for name, kernel, options in (
        ("all 20, union of those that fit", kernels, {}),
        ("the right one", right, {"full": right}),
        ("all base kernels", mk.KernelSum.uniform(BASE, weight=1.0), {}),
    ):
        game = mk.GPUCB(kernel, GRID, rng=rng, noise_std=0.1, norm_bound=3.0, **options)
        lost, covers, left = 0.0, True, []
        for _ in range(40):
            x = game.ask()
            row = int(np.argmin(np.abs(X[:, 0] - x[0])))
            game.tell(x, f[row] + 0.1 * rng.normal())
            lost += float(f.max() - f[row])
            lower, upper = game.confidence()
            covers &= bool(((lower <= f + 1e-9) & (f <= upper + 1e-9)).all())
            left.append(len(game.alive) if kernel is kernels else 1)
        found[name] = {"lost": lost, "covers": covers, "left": left[9]}
    return found


@lru_cache
def lesson(history: int):
    """What 80 vehicles teach, and a Gaussian process of each output for SafeOpt's rule."""
    from examples import quadrotor as example

    rng = np.random.default_rng(history)
    learned = example.Lesson.learn(rng)
    rng = np.random.default_rng((history, 1))
    tasks = []
    for vehicle in example.vehicles(10, rng):
        rows = rng.choice(len(example.DOMAIN), example.RECORDS, replace=False)
        noise = example.NOISE * rng.normal(size=(2, len(rows)))
        values = vehicle.y[rows] + noise[0], -vehicle.outputs["peak"][rows] + noise[1]
        tasks.append([mk.Task(example.DOMAIN.X[rows], y) for y in values])
    points = example.DOMAIN.X
    fits = [Process.fitted(points, [t[i] for t in tasks], example.NOISE) for i in (0, 1)]
    return learned, fits


def quadrotor(history: int | None, seed: int) -> Result:
    """A new vehicle of the example, 20 flights by every rule.

    With ``history`` None, every twenty seeds have a history of their own.
    """
    from examples import quadrotor as example

    learned, (error, peak) = lesson(seed // 20 if history is None else history)
    rng = np.random.default_rng((seed, 2))
    vehicle = example.vehicles(1, rng)[0]
    flown = mk.replay(
        learned.tune, [vehicle], limits=example.LIMITS, noise_std=example.NOISES, rng=rng
    )
    start = learned.start.contains(example.DOMAIN.X)
    dangerous = vehicle.outputs["peak"] > example.PEAK

    def measure(row: int) -> list[float]:
        noise = example.NOISE * rng.normal(size=2)
        return [vehicle.y[row] + noise[0], noise[1] - vehicle.outputs["peak"][row]]

    tried = {"metakel": flown.rows[0]}
    for beta in (2.0, 3.0):
        tried[f"SafeOpt rule, SE, beta {beta:g}"] = safe_opt(
            error, peak, -example.PEAK, flown.rows[0][0], measure, example.FLIGHTS, beta
        )
    found: Result = {"start": bool(dangerous[start].any()), "size": int(start.sum())}
    for name, rows in tried.items():
        extra = [example.extra_error(vehicle, rows[:t]) for t in (1, 3, 5, 20)]
        found[name] = {"unsafe": bool(dangerous[rows].any()), "extra": extra}
    return found
