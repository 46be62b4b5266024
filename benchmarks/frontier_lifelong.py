"""Lifelong learning: thirty tasks in a row, and clients that keep their data.

20 Legendre kernels of which 5 are active; a task uses each of these with probability 0.85. A task
has 25 tries, the noise is 0.1 and B is 3. Regret is that of all tries of all tasks, over the regret
of GP-UCB with the true kernels on the same tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metakel as mk
from benchmarks.seeds import Result
from metakel.optimize import Optimizer
from metakel.scale import Federation, client_sums

Row = tuple[str, ...]
BASE = mk.legendre(20, scaling="sup")
GRID = mk.grid([(-1, 1)], 101)
PHI = BASE.features(GRID.X)
NOISE, BOUND, SIZE, TRIES, TASKS = 0.1, 3.0, 2.5, 25, 30
HEAD = ("policy", "regret / oracle", "last 10 tasks", "J* found after 5, 10, 20, 30", "bands cover")


def draw(rng: np.random.Generator, active: np.ndarray) -> np.ndarray:
    """Coefficients of a task."""
    theta = np.zeros(BASE.dim)
    used = active[rng.random(len(active)) < 0.85]
    used = used if len(used) else active[:1]
    theta[used] = rng.normal(size=len(used))
    return SIZE * theta / np.linalg.norm(theta)


def play(game: Optimizer, theta: np.ndarray, rng: np.random.Generator) -> tuple[float, bool]:
    """Regret of 25 tries, and whether the band held at every step."""
    truth, lost, held = PHI @ theta, 0.0, True
    for _ in range(TRIES):
        x = game.ask()
        value = float(BASE.features(x[None])[0] @ theta)
        lost += truth.max() - value
        game.tell(x, value + NOISE * rng.normal())
        lower, upper = game.confidence()
        held &= bool(((lower <= truth + 1e-9) & (truth <= upper + 1e-9)).all())
    return float(lost), held


def life(warm_up: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[bool]]:
    """Regret of every task, whether its band held, and whether J* was selected after it."""
    rng = np.random.default_rng(seed)
    active = np.sort(rng.choice(BASE.p, 5, replace=False))
    learner = mk.Lifelong(
        BASE, GRID, noise_std=NOISE, norm_bound=BOUND, delta=0.1, warm_up=warm_up, rng=rng
    )
    lost, held, found = np.zeros(TASKS), np.zeros(TASKS, dtype=bool), []
    for s in range(TASKS):
        theta, noise = draw(np.random.default_rng((seed, s)), active), np.random.default_rng((s, 1))
        game = learner.task(f"task {s}")
        lost[s], held[s] = play(game, theta, noise)
        learner.finish(game)
        assert learner.learned is not None
        found.append(set(active) <= set(learner.learned.active))
    return lost, held, found


def oracle(seed: int) -> np.ndarray:
    """Regret of every task with the true kernels."""
    rng = np.random.default_rng(seed)
    active = np.sort(rng.choice(BASE.p, 5, replace=False))
    kernel, lost = mk.KernelSum.uniform(BASE, active=active), np.zeros(TASKS)
    for s in range(TASKS):
        game = mk.GPUCB(
            kernel, GRID, rng=rng, noise_std=NOISE, norm_bound=BOUND, delta=0.05, full=kernel
        )
        theta = draw(np.random.default_rng((seed, s)), active)
        lost[s], _ = play(game, theta, np.random.default_rng((s, 1)))
    return lost


POLICIES = {"warm-up of 5": 5, "warm-up of 10": 10, "no warm-up": 0, "all kernels": TASKS}


def sequence(seed: int) -> Result:
    """Thirty tasks with every policy, and with the true kernels."""
    found: Result = {"oracle": oracle(seed).tolist()}
    for name, warm_up in POLICIES.items():
        lost, held, selected = life(warm_up, seed)
        found[name] = {"lost": lost.tolist(), "held": held.tolist(), "found": selected}
    return found


def policy_row(name: str, found: Sequence[Result]) -> Row:
    """Regret over the oracle's of all tasks and of the last ten, J*, and bands that cover."""
    best = np.array([result["oracle"] for result in found])
    lost, held, selected = (
        np.array([result[name][key] for result in found]) for key in ("lost", "held", "found")
    )
    return (
        name,
        f"{lost.sum() / best.sum():.2f}",
        f"{lost[:, -10:].sum() / best[:, -10:].sum():.2f}",
        " ".join(f"{share:.2f}" for share in selected[:, [4, 9, 19, 29]].mean(axis=0)),
        f"{held.mean():.3f}",
    )


def federated(count: int, seed: int) -> Result:
    """Whether J* is selected from the sums of ``count`` clients with 25 random points each.

    Votes: kernels that at least half of the clients, or a single one, would select alone.
    """
    rng = np.random.default_rng((seed, count))
    active = np.sort(rng.choice(BASE.p, 5, replace=False))
    histories = []
    for _ in range(count):
        X, theta = rng.uniform(-1, 1, (25, 1)), np.zeros(BASE.dim)
        theta[active] = rng.normal(size=5)
        theta *= SIZE / np.linalg.norm(theta)
        y = BASE.features(X) @ theta + NOISE * rng.normal(size=25)
        histories.append(mk.History.from_pairs([(X, y)]))
    clients = [client_sums(history, BASE) for history in histories]
    federation = Federation(clients, [history.sizes for history in histories], d0=1)
    options = {"noise_std": NOISE, "lam": "lifelong"}
    learned = mk.learn_kernel(federation, BASE, **options)
    votes = np.zeros(BASE.p)
    for history in histories:
        votes[mk.learn_kernel(history, BASE, **options).active] += 1
    return {
        name: {"found": set(active) <= set(chosen.tolist()), "size": len(chosen)}
        for name, chosen in (
            ("sums", learned.active),
            ("majority", np.flatnonzero(votes > count / 2)),
            ("any vote", np.flatnonzero(votes)),
        )
    }


def federated_row(count: int, found: Sequence[Result]) -> Row:
    """How often J* was found and how many kernels were selected: by sums, and by votes."""
    cells = (
        f"{np.mean([r[name]['found'] for r in found]):.3f} "
        f"({np.mean([r[name]['size'] for r in found]):.1f})"
        for name in ("sums", "majority", "any vote")
    )
    return (str(count), *cells)
