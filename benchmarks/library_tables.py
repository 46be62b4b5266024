"""The library's priors on data sets left out, without training.

``python -m benchmarks.library_tables [--seed 1] [--models knn ...] [--update-docs]``

Every model of the library, on its recorded runs (``library/runs``): a quarter of the data sets is
left out, a prior is learned from the others, and the search may try the configurations that were
run on the left-out set. Losses over that of the package's defaults, geometric means over data sets:
log loss, RMSE, or one minus AUC or accuracy plus .001. All methods are ours; "portfolio" is the
greedy list of configurations that a search with a prior begins with, gone through to the end;
"facts" chooses that list by data sets of similar size, features and classes. Seed 1 of the splits;
the number of configurations that are tried first was chosen on the splits of seed 0.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.docs import markdown, update_section
from library import build
from metakel.library._entries import ENTRIES
from metakel.library._priors import list_cards

PARTS, TRIALS, SHOWN, DRAWS = 4, 10, (1, 2, 3, 5, 10), 20


class Recorded:
    """All runs of a model by a metric: losses by data set and configuration."""

    def __init__(self, name: str, metric: str) -> None:
        self.entry, self.metric = ENTRIES[name], metric
        _, self.rows = build.runs_of(self.entry, metric)
        self.by_task: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        for row in self.rows:
            if row[metric] is not None and not row["size"]:
                self.by_task[row["task"]][row["k"]] = row
        self.tasks = sorted(t for t, found in self.by_task.items() if 0 in found)

    def loss(self, task: str, k: int) -> float:
        """Logarithm of the loss over that of the defaults."""
        found = self.by_task[task]
        losses = [build.log_loss(self.metric, found[j][self.metric]) for j in (k, 0)]
        return losses[0] - losses[1]

    def configuration(self, row: dict[str, Any]) -> dict[str, Any]:
        return {n: row[n] for n in self.entry.parameters if row.get(n) is not None}


def weights_by_facts(known: dict[str, dict[str, float]], task: str, past: list[str]) -> Any:
    """Weights of past data sets: those of similar rows, features and classes count more."""

    def numbers(name: str) -> list[float]:
        of = known[name]
        shape = [np.log(of["rows"]), np.log(of["features"]), 3 * of["missing"]]
        return [*shape, of.get("classes", 0.0), 3 * of.get("largest_class", 0.0)]

    found = np.array([numbers(name) for name in past])
    scaled = (found - numbers(task)) / (found.std(axis=0) + 1e-9)
    near = np.exp(-(scaled**2).sum(axis=1) / (4 * found.shape[1]))
    return 0.2 / len(past) + 0.8 * near / near.sum()


def curves(recorded: Recorded, seed: int) -> Iterator[tuple[str, list[float]]]:
    """Name of a method, and its losses in the order of trials, for every data set left out."""
    order = np.random.default_rng(seed).permutation(len(recorded.tasks))
    known = build.facts()
    for part in range(PARTS):
        left_out = [recorded.tasks[i] for i in order[part::PARTS]]
        past = [task for task in recorded.tasks if task not in left_out]
        prior = build.learned(recorded.entry, recorded.metric, set(past), replay=False)
        assert prior is not None
        ranked = build.ranked(recorded.rows, recorded.metric, set(past), TRIALS)
        for task in left_out:
            runs = recorded.by_task[task]
            rows = list(runs.values())
            yield "portfolio", [recorded.loss(task, k) for k in ranked if k in runs]
            near = weights_by_facts(known, task, past)
            weighted = dict(zip(past, near, strict=True))
            chosen = build.ranked(recorded.rows, recorded.metric, set(past), 3, weighted)
            for label, first in (("metakel", ranked[:3]), ("metakel, facts", chosen)):
                yield label, searched(recorded, prior, task, first)
            for draw in range(DRAWS):
                tried = np.random.default_rng(draw).permutation(len(rows))[:TRIALS]
                yield "random", [recorded.loss(task, rows[i]["k"]) for i in tried]


def searched(recorded: Recorded, prior: Any, task: str, first: list[int]) -> list[float]:
    """Losses of a search over the recorded configurations that begins with some of them."""
    runs = recorded.by_task[task]
    points = {k: recorded.configuration(row) for k, row in runs.items()}
    numbers = {prior.space.key(point): k for k, point in points.items()}
    optimizer, found = prior.optimizer(list(points.values()), seed=0), []
    for trial in range(TRIALS):
        told = trial < len(first) and first[trial] in points
        point = points[first[trial]] if told else optimizer.ask()
        k = numbers[prior.space.key(point)]
        optimizer.tell(point, runs[k][recorded.metric])
        found.append(recorded.loss(task, k))
    return found


def table(seed: int, only: list[str]) -> str:
    head = ["model, metric", "data sets", "method", *(f"after {t}" for t in SHOWN)]
    rows: list[list[str]] = []
    overall: dict[str, list[Any]] = defaultdict(list)

    def add(name: str, count: str, method: str, means: Any) -> None:
        rows.append([name, count, method, *(f"{np.exp(means[t - 1]):.3f}" for t in SHOWN)])
        print(" ".join(rows[-1]), flush=True)

    for card in list_cards():
        if (only and card.name not in only) or card.metric not in ("log_loss", "rmse", "auc"):
            continue
        recorded = Recorded(card.name, card.metric)
        if len(recorded.tasks) * (PARTS - 1) < build.FEWEST * PARTS:
            continue
        logs: dict[str, list[Any]] = defaultdict(list)
        for method, losses in curves(recorded, seed):
            padded = [*losses, *[np.inf] * TRIALS][:TRIALS]
            logs[method].append(np.minimum.accumulate(padded))
        for method, found in logs.items():
            overall[method].append(np.mean(found, axis=0))
            add(
                f"{card.name}, {card.metric}", str(len(recorded.tasks)), method, overall[method][-1]
            )
    for method, found in overall.items():
        add("all of them", "", method, np.mean(found, axis=0))
    return markdown(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    found = table(options.seed, options.models)
    if options.update_docs:
        update_section("library", "On recorded runs", found)


if __name__ == "__main__":
    main()
