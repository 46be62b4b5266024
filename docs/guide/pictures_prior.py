"""Draw the pictures of prior.md: ``python docs/guide/pictures_prior.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import metakel as mk
from metakel import plots
from metakel.charts import COLD, LEARNED, OBSERVED, REFERENCE, SERIES

matplotlib.use("Agg")

FOLDER = Path(__file__).resolve().parents[1] / "img" / "guide"
STEPS = 20


def few_rows(history: mk.History, rows: int, rng: np.random.Generator) -> mk.History:
    """A history as people have it: a few rows of every task."""
    tasks = []
    for task in history:
        chosen = rng.choice(task.n, rows, replace=False)
        tasks.append(mk.Task(task.X[chosen], task.y[chosen], task.name))
    return mk.History(tuple(tasks), history.space, history.report)


def mirrored(history: mk.History) -> mk.History:
    """The same history with its inputs turned around: it misleads."""
    tasks = tuple(mk.Task(-task.X[:, ::-1], task.y, task.name) for task in history)
    return mk.History(tasks, history.space, history.report)


def regrets(prior: mk.Prior, tasks: list[mk.Task]) -> tuple[np.ndarray, np.ndarray]:
    """(tasks, steps) regret, and trust in the history, while searching the rows of new tasks."""
    curves, trusts = [], []
    for task in tasks:
        rows = prior.space.decode(task.X)
        values = {tuple(row.values()): y for row, y in zip(rows, task.y.tolist(), strict=True)}
        optimizer = prior.optimizer(rows)
        best, trust = [], []
        for _ in range(STEPS):
            x = optimizer.ask()
            optimizer.tell(x, values[tuple(x.values())])
            best.append(optimizer.best().value)
            trust.append(optimizer.trust)
        curves.append((task.y.max() - np.array(best)) / (task.y.max() - np.median(task.y)))
        trusts.append(trust)
    return np.array(curves), np.array(trusts)


def draw_effects(prior: mk.Prior) -> None:
    curves = prior.explain().curves
    figure, axes = plt.subplots(
        1, len(curves), figsize=(3.2 * len(curves), 2.8), sharey=True, layout="constrained"
    )
    for curve, ax in zip(curves, axes, strict=True):
        ends = curve.common - curve.spread, curve.common + curve.spread
        plots.curve(curve.values, curve.common, *ends, ax=ax)
        ax.axhline(0, color=REFERENCE.color, linewidth=0.6, zorder=0)
        ax.set(xscale="log" if curve.log else "linear", xlabel=curve.name)
    axes[0].set_ylabel("effect, in spreads of a task")
    figure.savefig(FOLDER / "prior-effects.png", dpi=110)


def draw_trust(prior: mk.Prior) -> None:
    held = prior.heldout
    _, ax = plt.subplots(figsize=(5, 3), layout="constrained")
    order = np.argsort(held.log_scores)
    places, label = range(len(order)), "prior learned from the others"
    ax.bar(places, held.log_scores[order], color=LEARNED.color, label=label)
    cold = np.maximum(held.cold_log_scores[order], -3)
    ax.plot(places, cold, "o", color=COLD.color, markersize=4.2, label="cold start (cut at -3)")
    ax.axhline(0, linewidth=1.2, **REFERENCE.look)
    ax.set(xlabel="held-out task", ylabel="nats per observation over white noise")
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)
    ax.figure.savefig(FOLDER / "prior-trust.png", dpi=110)


def draw_search(splits: list[tuple[dict[str, mk.Prior], list[mk.Task]]]) -> None:
    _, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    steps = np.arange(1, STEPS + 1)
    for style, name in zip((LEARNED, SERIES[4], COLD), splits[0][0], strict=True):
        found = [regrets(priors[name], tasks) for priors, tasks in splits]
        curves, trust = (np.concatenate(part) for part in zip(*found, strict=True))
        for below, line in ((0.05, "-"), (0.01, ":")):
            label = name if line == "-" else ""
            share = (curves <= below).mean(axis=0)
            left.plot(steps, share, line, color=style.color, label=label or None)
        if name != "cold start":
            right.plot(steps, trust.mean(axis=0), "-", color=style.color, label=name)
    left.set(xlabel="evaluations", ylabel=f"share of {len(curves)} searches", ylim=(-0.03, 1.03))
    left.set_title("regret below 0.05 (dotted: 0.01)", fontsize=10)
    right.set(xlabel="evaluations", ylim=(-0.03, 1.03))
    right.set_title("trust in the history", fontsize=10)
    left.legend(frameon=False)
    right.legend(frameon=False)
    left.figure.savefig(FOLDER / "prior-search.png", dpi=110)


def draw_band(prior: mk.Prior, task: mk.Task) -> None:
    rng = np.random.default_rng(1)
    band = prior.confidence(delta=0.3)
    lambdas = np.geomspace(2e-3, 500, 120)
    configurations = [{"alpha": 0.5, "lambda": float(value)} for value in lambdas]
    _, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
    near = np.abs(task.X[:, 0]) < 0.15
    for count in (0, 6):  # the second band lies in the first
        if count:
            rows = rng.choice(np.flatnonzero(near), count, replace=False)
            tried = prior.space.decode(task.X[rows])
            band.tell(tried, task.y[rows])
            measured = [row["lambda"] for row in tried]
            ax.plot(measured, task.y[rows], "o", color=OBSERVED.color, ms=4.2, label="measured")
        plots.shade(ax, lambdas, *band.interval(configurations), LEARNED)
    typical = prior.mean(configurations)
    ax.plot(lambdas, typical, "--", color=LEARNED.color, label="typical task")
    seen = prior.space.decode(task.X[near])
    places = [row["lambda"] for row in seen]
    ax.plot(places, task.y[near], "o", color=COLD.color, ms=1.8, label="the task")
    ax.set(xscale="log", xlabel="lambda (alpha = 0.5)", ylabel="AUC", ylim=(-1, 2.2))
    ax.legend(frameon=False)
    ax.figure.savefig(FOLDER / "prior-band.png", dpi=110)


def split(seed: int) -> tuple[dict[str, mk.Prior], list[mk.Task]]:
    """Priors from 50 rows of 25 tasks, and the 12 tasks they have not seen."""
    rng = np.random.default_rng(seed)
    whole = mk.datasets.load_glmnet()
    order = rng.permutation(whole.m)
    past = mk.History(tuple(whole[s] for s in order[12:]), whole.space, whole.report)
    history = few_rows(past, 50, rng)
    shuffled = tuple(mk.Task(t.X, rng.permutation(t.y), t.name) for t in history)
    priors = {
        "related history": mk.learn_prior(history),
        "mirrored history": mk.learn_prior(mirrored(history)),
        "cold start": mk.learn_prior(mk.History(shuffled, history.space, history.report)),
    }
    return priors, [whole[s] for s in order[:12]]


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    splits = [split(seed) for seed in range(3)]
    priors, unseen = splits[0]
    draw_effects(priors["related history"])
    draw_trust(priors["related history"])
    draw_search(splits)
    draw_band(priors["related history"], unseen[0])


if __name__ == "__main__":
    main()
