"""Long runs on a continuous space through Optuna: regret after 1 to 200 trials.

``python -m benchmarks.spaces [--first 200] [--tasks 3] [--trials 50] [--full] [--minutes 60]
[--update-docs]``; a run that was stopped goes on where it was, and a change of the package repeats
only what is ours

The world has five parameters (learning rate, depth, dropout, weight decay, optimizer) and tasks
that differ in where the optimum is. Past tasks are eight random searches of 30 trials. A new task
is searched by every sampler with the same seed. Regret is that of the trial with the best value so
far, without noise. Edge coordinates are numbers at an end of their range in trials 5 to 60; the
optimum is inside on every task.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import inf

import numpy as np
import optuna
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from benchmarks.docs import markdown, update_section
from benchmarks.seeds import bench
from metakel.integrations.optuna import MetaKelSampler

PAST, PAST_TRIALS, FIRST_TASK = 8, 30, 200
TIMES = (1, 5, 10, 20, 50, 100, 150, 200)
HAND_OVER = 15
FILE, THEIRS = "benchmarks/spaces.py", "Optuna's"
NOISE = 0.01
COSTS = {"adam": 0.0, "sgd": 0.15, "rmsprop": 0.05}
RANGES = {"lr": (-5, -1), "dropout": (0, 0.6), "wd": (-7, -1)}  # logarithms of the first and last
EDGE = 1e-6


@dataclass(frozen=True)
class World:
    """One task: five numbers say where its optimum is."""

    task: int

    @cached_property
    def shifts(self) -> np.ndarray:
        return np.random.default_rng(1000 + self.task).normal(size=5)

    def value(self, lr: float, depth: int, dropout: float, wd: float, opt: str) -> float:
        """Without noise."""
        a, g, w = self.shifts, np.log10(lr), np.log10(wd)
        bowl = 0.15 * (g + 3 + 0.4 * a[0]) ** 2 + 0.02 * (depth - 6 - 1.5 * a[1]) ** 2
        bowl += 0.8 * (dropout - 0.2 - 0.08 * a[2]) ** 2 + 0.03 * (w + 4 + 0.5 * a[3]) ** 2
        return float(bowl + COSTS[opt] + 0.02 * np.sin(6 * g) + 0.3 + 0.1 * a[4])

    @cached_property
    def best(self) -> float:
        """The smallest value: the parameters do not interact."""
        rates, drops, decays = (np.linspace(*RANGES[n], 4001) for n in ("lr", "dropout", "wd"))
        start = {"lr": 1e-3, "depth": 6, "dropout": 0.2, "wd": 1e-4, "opt": "adam"}
        ways = {
            "lr": 10**rates,
            "depth": range(1, 13),
            "dropout": drops,
            "wd": 10**decays,
        }
        lowest = {n: min(self.value(**{**start, n: v}) for v in vs) for n, vs in ways.items()}
        return self.value(**start) + sum(v - self.value(**start) for v in lowest.values())

    def objective(self) -> Callable[[optuna.Trial], float]:
        """What a study minimises, with noise."""
        rng = np.random.default_rng(self.task)

        def measure(trial: optuna.Trial) -> float:
            lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
            depth = trial.suggest_int("depth", 1, 12)
            dropout = trial.suggest_float("dropout", 0, 0.6)
            wd = trial.suggest_float("wd", 1e-7, 1e-1, log=True)
            opt = trial.suggest_categorical("opt", list(COSTS))
            return self.value(lr, depth, dropout, wd, opt) + NOISE * rng.normal()

        return measure


@cache
def past() -> tuple[optuna.Study, ...]:
    """Random searches on other tasks."""
    studies = []
    for k in range(PAST):
        study = optuna.create_study(sampler=RandomSampler(seed=k))
        study.optimize(World(k).objective(), n_trials=PAST_TRIALS)
        studies.append(study)
    return tuple(studies)


def ours(seed: int) -> BaseSampler:
    return MetaKelSampler(past(), seed=seed)


# Name, whose code it is, the sampler, and the one that takes over after `HAND_OVER` trials.
Entry = tuple[str, str, Callable[[int], BaseSampler], Callable[[int], BaseSampler] | None]
METHODS: tuple[Entry, ...] = (
    ("metakel", "ours", ours, None),
    (f"metakel, GPSampler after {HAND_OVER}", "ours, then Optuna's", ours, lambda s: _gp(s)),
    ("GPSampler, cold", THEIRS, lambda s: _gp(s), None),
    ("TPESampler, cold", THEIRS, lambda s: TPESampler(seed=s), None),
    ("random", THEIRS, lambda s: RandomSampler(seed=s), None),
)


def _gp(seed: int) -> BaseSampler:
    return GPSampler(seed=seed)


def search(method: str, trials: int, task: int) -> dict[str, list[float] | float]:
    """Regret after every trial, and the share of edge coordinates; JSON."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("metakel").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    _, _, first, second = next(entry for entry in METHODS if entry[0] == method)
    world = World(task)
    study = optuna.create_study(sampler=first(0))
    objective = world.objective()
    study.optimize(objective, n_trials=min(HAND_OVER, trials))
    if second is not None:
        study.sampler = second(0)
    study.optimize(objective, n_trials=trials - len(study.trials))
    seen = np.array([t.value for t in study.trials])
    true = np.array([world.value(**t.params) for t in study.trials])
    regret = [float(true[np.argmin(seen[: n + 1])] - world.best) for n in range(trials)]
    return {"regret": regret, "edges": edge_share(study)}


def edge_share(study: optuna.Study) -> float:
    """Of the three numbers that have no steps, in trials 5 to 60."""
    found = []
    for trial in study.trials[4:60]:
        for name, (low, high) in RANGES.items():
            value = trial.params[name] if name == "dropout" else np.log10(trial.params[name])
            found.append(min(value - low, high - value) < EDGE * (high - low))
    return float(np.mean(found))


def measure(first: int, tasks: int, trials: int, jobs: int, minutes: float) -> str:
    """Markdown: one line per method that there was time for."""
    times, lines, start = [n for n in TIMES if n <= trials], [], time.monotonic()
    for name, whose, *_ in METHODS:
        own, left = whose != THEIRS, minutes - (time.monotonic() - start) / 60
        with bench("spaces", FILE, jobs=jobs, minutes=left, package=own) as place:
            kept = f"{name}-{trials}".replace(" ", "_")
            once = partial(search, name, trials)
            runs = place.measured(kept, once, range(first, first + tasks))
        if not runs:
            continue
        regret = np.mean([[run["regret"][n - 1] for n in times] for run in runs], axis=0)
        edges = np.mean([run["edges"] for run in runs])
        cells = [*(f"{r:.4f}" for r in regret), f"{edges:.0%}"]
        lines.append([name, whose, str(len(runs)), *cells])
        print(" ".join(lines[-1]), flush=True)
    command = f"python -m benchmarks.spaces --first {first} --tasks {tasks} --trials {trials}"
    return f"""\
Command: `{command}`, part of
`make bench-transfer` and `make bench-optuna`. Mean regret of the best trial after so many trials,
on a space of five parameters through Optuna {optuna.__version__}.
{PAST} past studies of {PAST_TRIALS} random trials, {tasks} new tasks from number {first} on,
one run of each method and task, with seed 0. Edge: share of coordinates at an end of their range in
trials 5 to 60; the optimum has none there. The world was looked at during development, on tasks
below 400 and from 500 to 799, and once on tasks 400 to 402.

{markdown(["method", "whose code", "runs", *map(str, times), "edge"], lines)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=FIRST_TASK, help="number of the first task")
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--full", action="store_true", help="6 tasks, 200 trials: about an hour")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, default=inf, help="start nothing after so many")
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    size = (6, 200) if options.full else (options.tasks, options.trials)
    text = measure(options.first, *size, options.jobs, options.minutes)
    print(text)
    if options.update_docs:
        update_section("long-spaces", "Long runs on a space", text)


if __name__ == "__main__":
    main()
