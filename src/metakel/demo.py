"""`make demo`: learn from past tasks, tune those never seen, and show what the past was worth."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from metakel import plots
from metakel._arrays import Array
from metakel.charts import CHOSEN, COLD, LEARNED, RANDOM
from metakel.data import History, Task
from metakel.datasets import load_glmnet
from metakel.kernels import KernelSum, squared_exponential
from metakel.optimize import GPUCB, FixedWidth
from metakel.optimize.optimizer import rehearse
from metakel.priors import Prior, learn_prior
from metakel.priors.regret_calibration import random_regret
from metakel.report import replay_run, write_report
from metakel.search import candidates
from metakel.tuner import Tuner

TURNS = 3
EVALUATIONS = 30
SHOWN = (1, 2, 3, 5, 10, 20, 30)
STYLES = {"metakel": LEARNED, "cold GP-UCB": COLD, "random": RANDOM}
WAYS = tuple(STYLES)
# What a person sets by hand who knows nothing of the past: half of the range, and little noise.
LENGTHSCALE, NOISE, WIDTH = 0.5, 0.05, 2.0


@dataclass(frozen=True, eq=False)
class Comparison:
    """Distance to the best AUC of a task after 1, 2, ... evaluations, by way of searching."""

    task: Task
    regret: dict[str, Array]

    @property
    def gain(self) -> float:
        """How much nearer to the best than a cold start, on average over the run."""
        return float(np.mean(self.regret["cold GP-UCB"] - self.regret["metakel"]))


@dataclass(frozen=True, eq=False)
class Turn:
    """What a prior of some tasks was worth on the others."""

    prior: Prior
    compared: tuple[Comparison, ...]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demonstration; save its picture, its journal and the report."""
    parser = argparse.ArgumentParser(prog="python -m metakel.demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="which tasks are new together")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="where results go")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    start = perf_counter()
    history = load_glmnet()
    print(
        f"{history.m} data sets, each with 1000 elastic nets (alpha, lambda) and their AUC.\n"
        f"In {TURNS} turns, so that each is new once:"
    )
    folds = history.folds(TURNS, rng=np.random.default_rng(chosen.seed))
    turns = [take_turn(known, unseen) for known, unseen in folds]
    compared = sorted((c for turn in turns for c in turn.compared), key=lambda c: c.gain)
    typical = compared[len(compared) // 2]  # neither the best case nor the worst
    turn = next(turn for turn in turns if typical in turn.compared)
    print(f"\nThe prior of one turn:\n\n{turn.prior}\n")
    tuner = tune(turn.prior, typical.task, chosen.out / "run.jsonl")
    show(compared, typical, tuner)
    page = write_report(
        turn.prior,
        chosen.out / "report.html",
        run=replay_run(turn.prior, tuner.trials, tuner.options),
        title=f"Elastic net on {typical.task.name}",
    )
    drawn = draw(turn.prior, typical.task, tuner, compared, chosen.out / "demo.png")
    print(f"\nPicture: {drawn}\nReport:  {page} (open it in a browser)")
    print(f"Journal: {chosen.out / 'run.jsonl'}\n{perf_counter() - start:.0f} s in all")


def take_turn(known: History, unseen: History) -> Turn:
    """Learn from some tasks, then search every other one."""
    start = perf_counter()
    prior = learn_prior(known)
    learned = perf_counter() - start
    compared = tuple(compare(prior, task) for task in unseen)
    print(f"  learned from {known.m} in {learned:.1f} s, tuned the {unseen.m} others")
    return Turn(prior, compared)


def tune(prior: Prior, task: Task, journal: Path) -> Tuner:
    """The tuner as anybody uses it, with its journal; a table stands for the evaluations."""
    journal.unlink(missing_ok=True)
    rows = prior.space.decode(task.X)
    values = {prior.space.key(row): float(value) for row, value in zip(rows, task.y, strict=True)}
    tuner = Tuner(prior, journal, budget=EVALUATIONS, candidates=rows)
    for configuration in tuner:
        tuner.tell(configuration, values[prior.space.key(configuration)])
    return tuner


def compare(prior: Prior, task: Task) -> Comparison:
    """The same task with the history, with a cold GP-UCB, and at random."""
    rows = prior.space.decode(task.X)
    values = {prior.space.key(row): float(value) for row, value in zip(rows, task.y, strict=True)}
    ours = prior.optimizer(rows)
    found = [
        rehearse(ours, lambda asked: values[prior.space.key(asked.point)])
        for _ in range(EVALUATIONS)
    ]
    by_way = {"metakel": found, "cold GP-UCB": cold_values(prior, task)}
    regret = {
        way: task.y.max() - np.maximum.accumulate(np.array(values))
        for way, values in by_way.items()
    }
    return Comparison(task, {**regret, "random": random_regret(task.y, EVALUATIONS)})


def cold_values(prior: Prior, task: Task) -> list[float]:
    """GP-UCB with a squared exponential; it even knows the usual level and scale of the AUC."""
    kernel = KernelSum.uniform(squared_exponential([LENGTHSCALE], d0=task.d0))
    optimizer = GPUCB(
        FixedWidth(kernel, nu=WIDTH, noise_var=NOISE**2),
        candidates(task.X, repeat=False),
        rng=np.random.default_rng(0),
    )
    values = []
    for _ in range(EVALUATIONS):
        x = optimizer.ask()
        value = float(task.y[int(np.argmin(np.abs(task.X - x).sum(axis=1)))])
        optimizer.tell(x, (value - prior.model.level) / prior.model.scale)
        values.append(value)
    return values


def show(compared: Sequence[Comparison], typical: Comparison, tuner: Tuner) -> None:
    """Two tables and what to make of them."""
    name, best = typical.task.name, float(typical.task.y.max())
    print(
        f"Best AUC found on {name}, the new data set with the median gain (possible: {best:.4f})\n"
    )
    _table({way: best - typical.regret[way] for way in WAYS})
    means = {way: np.mean([c.regret[way] for c in compared], axis=0) for way in WAYS}
    print(f"\nDistance to the best AUC, mean over all {len(compared)} new data sets\n")
    _table(means)
    print("\nEvaluations until the others are as near\n")
    for way in WAYS[1:]:
        needed = (_reached(means[way], float(means["metakel"][t - 1])) for t in SHOWN)
        print(f"  {way:14}" + "".join(f"{count:>9}" for count in needed))
    certificate = tuner.certificate
    print(
        f"\nHow sure, on {name}: {certificate}.\n"
        f"It comes from replays on {certificate.tasks} past data sets, and holds at all times. "
        f"Alarm: {'none' if tuner.alarm is None else tuner.alarm.reason}."
    )


def _reached(curve: Array, level: float) -> str:
    """The first evaluation at which a falling curve is at most at a level."""
    below = np.flatnonzero(curve <= level)
    return str(int(below[0]) + 1) if below.size else f">{EVALUATIONS}"


def _table(rows: dict[str, Any]) -> None:
    print("  evaluations   " + "".join(f"{t:>9}" for t in SHOWN))
    for way, values in rows.items():
        print(f"  {way:14}" + "".join(f"{values[t - 1]:9.4f}" for t in SHOWN))


def draw(prior: Prior, task: Task, tuner: Tuner, compared: Sequence[Comparison], path: Path) -> str:
    """Where it looked on one new task, and how fast it was on all; where the picture is."""
    if find_spec("matplotlib") is None:
        return "none, because matplotlib is missing: pip install matplotlib"
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = prior.space.decode(task.X)
    cloud = left.scatter(
        [row["lambda"] for row in rows],
        [row["alpha"] for row in rows],
        c=task.y,
        s=12,
        cmap="viridis",
        alpha=0.8,
    )
    figure.colorbar(cloud, ax=left, label="AUC")
    for t, trial in enumerate(tuner.trials.observed[:10], start=1):
        place = (trial.point["lambda"], trial.point["alpha"])
        left.plot(*place, "o", ms=13, mfc="white", mec=CHOSEN.color, mew=1.5)
        left.annotate(str(t), place, ha="center", va="center", fontsize=8, color=CHOSEN.color)
    left.set(
        xscale="log", xlabel="lambda", ylabel="alpha",
        title=f"A new data set, {task.name}: the first 10 choices",
    )  # fmt: skip
    steps = np.arange(1, EVALUATIONS + 1)
    for way, style in STYLES.items():
        curves = np.array([c.regret[way] for c in compared])
        mean, error = curves.mean(axis=0), curves.std(axis=0) / np.sqrt(len(curves))
        low, middle, high = (np.maximum(v, 1e-4) for v in (mean - error, mean, mean + error))
        plots.curve(steps, middle, low, high, style=style, label=way, ax=right, linewidth=2.2)
    right.set(
        yscale="log", xlabel="evaluations", ylabel="distance to the best AUC",
        title=f"Mean ± standard error over {len(compared)} new data sets",
    )  # fmt: skip
    plots.tidy(right)
    right.legend()
    figure.savefig(path, dpi=110)
    return str(path)


if __name__ == "__main__":
    main()
