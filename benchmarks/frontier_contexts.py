"""Contexts: regret and certificates where somebody else chooses a part of the input.

Functions of (x, z) are made of 6 of 36 products of Legendre polynomials. Every run has a new
history of 30 tasks with 60 noisy values each, and a new task of 40 decisions. Contexts are uniform,
or those for which the certificate is widest, as an adversary would choose them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import metakel as mk
from benchmarks.seeds import Result
from metakel.kernels.products import Products
from metakel.optimize import Optimizer
from metakel.space import Float, Space

Row = tuple[str, ...]
DEGREES = np.array([(a, b) for a in range(6) for b in range(6)])
BASE = mk.kernels.KernelDictionary((Products("legendre", "sup", DEGREES),))
NOISE, BOUND, SIZE, STEPS = 0.1, 3.0, 2.5, 40
CHOICES, CONTEXTS = np.linspace(-1, 1, 31), np.linspace(-1, 1, 15)
SPACE = Space((Float("x", -1.0, 1.0, step=2 / 30), Float("z", -1.0, 1.0)))
GRID = np.array([(x, z) for z in CONTEXTS for x in CHOICES])
RIVALS = ("learned", "oracle", "all", "ignoring")
HEAD = (
    *("contexts", "learned / oracle", "all kernels / oracle", "ignoring z / oracle"),
    *("learned / all", "all certificates hold", "median certificate"),
)


def widest(game: Optimizer, rng: np.random.Generator) -> float:
    """The context with the widest certificate, of a few; by bounds that are quick to compute."""
    some = rng.choice(CONTEXTS, 3, replace=False)
    Z = np.array([(x, z) for z in some for x in CHOICES])
    bounds = game.model.certified.interval(Z, refine=False)
    lower, upper = (ends.reshape(len(some), -1).max(axis=1) for ends in bounds)
    return float(some[np.argmax(upper - lower)])


def uniform(game: Optimizer, rng: np.random.Generator) -> float:
    """Any context."""
    return float(rng.uniform(-1, 1))


class World:
    """A history, the kernels that it teaches, and a new task."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.active = np.sort(rng.choice(BASE.p, 6, replace=False))
        self.kernel, pairs = mk.KernelSum.uniform(BASE, active=self.active), []
        for _ in range(30):
            X = rng.uniform(-1, 1, (60, 2))
            pairs.append((X, self.kernel.features(X) @ self._task() + NOISE * rng.normal(size=60)))
        history = mk.History.from_pairs(pairs)
        self.learned = mk.learn_kernel(history, BASE, noise_std=NOISE, delta=0.05)
        self.theta = self._task()

    def _task(self) -> np.ndarray:
        theta = self.rng.normal(size=6)
        return SIZE * theta / np.linalg.norm(theta)

    def f(self, X: np.ndarray) -> np.ndarray:
        """(n,) the new task, without noise."""
        return self.kernel.features(np.atleast_2d(X)) @ self.theta

    def regret(self, x: float, z: float) -> float:
        """What the best choice for z has more than x."""
        column = np.column_stack([CHOICES, np.full(len(CHOICES), z)])
        return float(self.f(column).max() - self.f(np.array([[x, z]]))[0])

    def play(
        self,
        kernel: mk.KernelSum | mk.LearnedKernel,
        spent: float,
        choose: Callable[..., float],
        seed: int,
    ) -> Optimizer:
        """40 decisions with a kernel."""
        rng = np.random.default_rng((seed, 1))
        game = mk.GPUCB(
            mk.ConfidenceSequence(
                kernel, noise_std=NOISE, norm_bound=BOUND, delta=0.1, delta_learning=spent
            ),
            SPACE,
            rng=rng,
        )
        for _ in range(STEPS):
            z = choose(game, rng)
            x = game.ask(fixed={"z": z})
            game.tell(x, self.f(np.array([[x["x"], z]]))[0] + NOISE * rng.normal())
        return game

    def ignoring(self, seed: int) -> float:
        """Regret of 40 decisions by GP-UCB over x alone, for uniform contexts."""
        rng = np.random.default_rng((seed, 1))
        base = mk.kernels.legendre(6, scaling="sup")
        game = mk.GPUCB(
            mk.ConfidenceSequence(
                mk.KernelSum.uniform(base, weight=1.0), noise_std=1.0, norm_bound=BOUND
            ),
            mk.candidates(CHOICES),
            rng=rng,
        )
        lost = 0.0
        for _ in range(STEPS):
            z, x = rng.uniform(-1, 1), game.ask()
            game.tell(x, self.f(np.array([[x[0], z]]))[0] + NOISE * rng.normal())
            lost += self.regret(x[0], z)
        return lost


def play_all(name: str, seed: int) -> Result:
    """Regret of all rivals on one task, and what the certificates of ours were worth."""
    choose, world = {"uniform": uniform, "adversary": widest}[name], World(seed)
    rivals = {
        "learned": (world.learned, 0.05),
        "oracle": (world.kernel, 0.0),
        "all": (mk.KernelSum.uniform(BASE, weight=1.0), 0.0),
    }
    found: Result = {"ignoring": world.ignoring(seed)}
    for rival, (kernel, spent) in rivals.items():
        game = world.play(kernel, spent, choose, seed)
        found[rival] = sum(world.regret(x, z) for x, z in game.X)
        if rival == "learned":
            promised = [game.certificate(fixed={"z": z}) for z in CONTEXTS]
            found["valid"] = all(
                world.regret(c.x["x"], z) <= c.regret + 1e-9
                for c, z in zip(promised, CONTEXTS, strict=True)
            )
            found["width"] = float(np.median([c.regret for c in promised]))
    return found


def context_row(name: str, found: Sequence[Result]) -> Row:
    """One row: totals over all runs."""
    total = {rival: sum(result[rival] for result in found) for rival in RIVALS}
    ratio = {rival: f"{total[rival] / total['oracle']:.2f}" for rival in RIVALS}
    held = (f"{sum(r['valid'] for r in found)} of {len(found)}",)
    return (
        *(name, ratio["learned"], ratio["all"], ratio["ignoring"]),
        f"{total['learned'] / total['all']:.2f}",
        *held,
        f"{np.median([result['width'] for result in found]):.2f}",
    )
