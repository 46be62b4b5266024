"""Histories and new tasks that are not clean, for `benchmarks.transfer_dirty`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.transfer_data import Pairs, load_tables
from benchmarks.transfer_rivals import cold_gp
from metakel.space import Categorical, Float, Space

TASKS, ROWS, CANDIDATES = 30, 50, 500
FAILED_SHARE, FAILED_VALUE = 0.1, -1e3


@dataclass(frozen=True, eq=False)
class Table:
    """Tasks (X, y) in the numeric columns of a space; larger y is better."""

    space: Space
    tasks: Pairs


@dataclass(frozen=True, eq=False)
class Scenario:
    """Past tasks, and what is measured of a new one."""

    history: Pairs
    measure: Callable[[np.ndarray], np.ndarray] = np.asarray


def tables() -> dict[str, Table]:
    """Real tables at hand, and two families of functions, one of them with categories."""
    real = {}
    for name, tasks in load_tables().items():
        columns = range(tasks[0][0].shape[1])
        real[name] = Table(Space(tuple(Float(f"x{i}", -1.0, 1.0) for i in columns)), tasks)
    return {**real, "bowls": _family(_bowls, BOWLS), "choices": _family(_choices, CHOICES)}


BOWLS = Space(tuple(Float(f"x{i}", -1.0, 1.0) for i in range(3)))
CHOICES = Space(
    (
        Float("rate", -1.0, 1.0),
        Float("size", -1.0, 1.0),
        Float("decay", -1.0, 1.0),
        Categorical("solver", ("a", "b", "c", "d")),
        Categorical("loss", ("u", "v", "w")),
    )
)


def _bowls(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One optimum whose place and widths differ by task, and a ripple."""
    center = np.array([0.3, -0.2, 0.5]) + rng.normal(0, 0.2, 3)
    widths = np.exp(rng.normal([0.5, 0.0, -0.5], 0.3))
    ripple = rng.normal(0, 0.15) * np.sin(4 * X[:, 0] + rng.uniform(0, 6))
    return -(widths * np.abs(X - center) ** 1.5).sum(axis=1) + ripple


def _choices(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Categories matter, and each solver has a best rate of its own."""
    solver, loss = X[:, 3:7].argmax(axis=1), X[:, 7:].argmax(axis=1)
    gain = np.array([0.0, 0.5, 0.8, 0.3]) + rng.normal(0, 0.3, 4)
    best = np.array([-0.6, -0.2, 0.2, 0.6]) + rng.normal(0, 0.15, 4)
    fit = np.array([0.2, 0.0, 0.4]) + rng.normal(0, 0.2, 3)
    slope = rng.normal(0.3, 0.3)
    return (
        gain[solver]
        + fit[loss]
        - (X[:, 0] - best[solver]) ** 2
        - 0.5 * np.abs(X[:, 1] - rng.normal(0.2, 0.2))
        + slope * X[:, 2]
    )


def _family(values: Callable[..., np.ndarray], space: Space) -> Table:
    tasks = []
    for task in range(TASKS):
        rng = np.random.default_rng([task, space.d0])
        X = space.sample(rng, CANDIDATES)
        level, scale = rng.normal(0, 1), np.exp(rng.normal(0, 0.3))
        tasks.append((X, level + scale * values(X, rng)))
    return Table(space, tasks)


# What may be wrong with a history, or new about a task.


def clean(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """As recorded."""
    return Scenario(history)


def other_level(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """The new task is 20 typical standard deviations higher."""
    shift = 20 * float(np.median([y.std() for _, y in history]))
    return Scenario(history, lambda y: y + shift)


def other_scale(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """The new task varies by a tenth."""
    return Scenario(history, lambda y: y.mean() + 0.1 * (y - y.mean()))


def wild_task(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """One past task was recorded in another unit and from another zero."""
    X, y = history[0]
    return Scenario([(X, 1e4 * y + 1e6), *history[1:]])


def failed_runs(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """Every tenth past run failed, and a very bad number was recorded."""
    found = []
    for X, y in history:
        failed = rng.uniform(size=len(y)) < FAILED_SHARE
        found.append((X, np.where(failed, FAILED_VALUE, y)))
    return Scenario(found)


def two_kinds(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """Every other past task is of another kind: good where these are bad."""
    odd = _half(history, rng)
    return Scenario(
        [(_mirror(X, space), y) if s in odd else (X, y) for s, (X, y) in enumerate(history)]
    )


def upside_down(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """Every other past task was recorded with the opposite sign."""
    odd = _half(history, rng)
    return Scenario(
        [(X, 2 * y.mean() - y) if s in odd else (X, y) for s, (X, y) in enumerate(history)]
    )


def half_shuffled(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """Every other past task says nothing: its values were shuffled."""
    odd = _half(history, rng)
    return Scenario(
        [(X, rng.permutation(y)) if s in odd else (X, y) for s, (X, y) in enumerate(history)]
    )


def half_the_rows(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """Half of the rows of every past task, drawn at random."""
    return Scenario([(X[: len(y) // 2], y[: len(y) // 2]) for X, y in history])


def three_tasks(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """Three of the past tasks."""
    return Scenario([history[s] for s in rng.permutation(len(history))[:3]])


def chosen_rows(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """Half of the rows of every past task, those that a cold GP-UCB tried first."""
    search = cold_gp("ucb")(history, rng)
    found = []
    for X, y in history:
        rows = search(X, lambda i, y=y: float(y[i]), len(y) // 2, rng)
        found.append((X[rows], y[rows]))
    return Scenario(found)


def _half(history: Pairs, rng: np.random.Generator) -> set[int]:
    return set(rng.permutation(len(history))[: len(history) // 2].tolist())


def shuffled(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """Values say nothing: they were shuffled within tasks."""
    return Scenario([(X, rng.permutation(y)) for X, y in history])


def mirrored(history: Pairs, space: Space, rng: np.random.Generator) -> Scenario:
    """All past tasks are of another kind."""
    return Scenario([(_mirror(X, space), y) for X, y in history])


def _mirror(X: np.ndarray, space: Space) -> np.ndarray:
    """Numbers with the opposite sign, categories one further."""
    moved = -X
    for parameter in space.parameters:
        columns = space.columns[parameter.name]
        if isinstance(parameter, Categorical):
            moved[:, columns] = np.roll(X[:, columns], 1, axis=1)
    return moved


SCENARIOS: dict[str, Callable[[Pairs, Space, np.random.Generator], Scenario]] = {
    "clean": clean,
    "new task 20 sd higher": other_level,
    "new task a tenth in scale": other_scale,
    "one wild past task": wild_task,
    "10 % failed, recorded as a number": failed_runs,
    "half of the tasks of another kind": two_kinds,
    "unrelated: shuffled": shuffled,
    "unrelated: mirrored": mirrored,
    "half of the tasks upside down": upside_down,
    "half of the tasks shuffled": half_shuffled,
    "half of the rows, at random": half_the_rows,
    "half of the rows, chosen by an optimizer": chosen_rows,
    "three past tasks": three_tasks,
}


def seeded(scenario: str, history: Pairs, space: Space, split: int) -> Scenario:
    """A scenario with the same random numbers every time."""
    rng = np.random.default_rng([split, 17, list(SCENARIOS).index(scenario)])
    found = SCENARIOS[scenario](history, space, rng)
    return replace(found, history=[(X.copy(), y.copy()) for X, y in found.history])
