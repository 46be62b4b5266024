"""Learn the priors of ``metakel.library`` from the runs: ``python -m library.build``.

It needs the runs of ``library/runs`` and facts of the data sets (``library/datasets.csv``, written
by ``python -m library.run --facts``). Every model and metric gets a file in
``src/metakel/library/priors``, and an entry in the index of what they were learned from.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from itertools import compress
from math import log
from pathlib import Path
from typing import Any

import numpy as np

import metakel as mk
from library.run import OWN, SMALL, drawn_runs, read_runs
from metakel._files import encode
from metakel.curves import FORMAT as CURVES
from metakel.curves import CurveModel
from metakel.library._entries import ENTRIES, Entry
from metakel.library._priors import METRICS, MINIMIZED, Card
from metakel.priors.prior import FORMAT
from metakel.priors.regret_calibration import calibrate_folds
from metakel.space import Space

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "metakel" / "library"
# Errors of a regression are in units of the target, which a new task chooses as it likes.
ANY_UNIT = log(1e6)
SMALLEST_UNIT = 1e-12  # errors below count as this
FEWEST = 20  # data sets
SHARED = 31  # the defaults, and configurations that all data sets have in common
TRIED_FIRST, WORST = 3, log(2.0)  # configurations; a loss by a larger factor counts as this
DIGITS = 6  # of numbers in the files
VERSIONS = "scikit-learn 1.9, LightGBM 4.7, XGBoost 3.2 and CatBoost 1.2"


def facts() -> dict[str, dict[str, float]]:
    """Rows, features and classes of every data set."""
    with (HERE / "datasets.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["name"]: {k: float(v) for k, v in row.items() if k not in TEXTS and v}
            for row in csv.DictReader(file)
        }


TEXTS = ("name", "kind", "source", "licence")


def complete(entry: Entry, row: Mapping[str, str], known: Mapping[str, float]) -> dict[str, Any]:
    """The configuration of a run, with what the package sets where nothing is said."""
    found = json.loads(row["parameters"])
    if int(row["configuration"]):
        return dict(found)
    defaults = dict(entry.defaults)
    features = known["features"]
    if entry.name in ("random_forest", "extra_trees"):
        share = 1.0 if row["kind"] == "regression" else max(features**0.5 // 1, 1) / features
        defaults["max_features"] = float(np.clip(share, 0.05, 1.0))
    if entry.name == "svm":
        defaults["gamma"] = float(np.clip(1 / features, 1e-5, 10.0))
        del defaults["degree"]  # of polynomials
    return defaults


# Their defaults are no configurations of the library: rates that follow from the data.
UNSTATED = ("catboost", "sgd")


def runs_of(entry: Entry, metric: str) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
    """Columns of a table of all runs, and the runs, rounded as configurations are shown.

    The table has neither refined configurations nor those of few rows, which were chosen or made
    for what is tried first.
    """
    known, rows, configurations = facts(), [], []
    for size in ("", SMALL):
        for row in read_runs(f"{entry.name}{size}"):
            first = int(row["configuration"]) == 0
            if row["kind"] != METRICS[metric] or (first and entry.name in UNSTATED):
                continue
            value = float(row[metric]) if row.get(metric) else None
            configurations.append(complete(entry, row, known[row["dataset"]]))
            about = {"task": row["dataset"], "k": int(row["configuration"]), "size": size}
            rows.append({**about, metric: value})
    if not rows:
        return {"task": []}, []
    space = space_of(entry)
    rounded = space.decode(space.nearest(space.encode(configurations)))
    rows = [{**row, **found} for row, found in zip(rows, rounded, strict=True)]
    whole = {task for task, count in _counts(rows).items() if count >= SHARED - 1}
    rows = [row for row in rows if row["task"] in whole]
    names = ["task", *entry.parameters, metric]
    drawn = [row for row in rows if row["size"] == "" and row["k"] <= OWN[-1]]
    return {name: [row.get(name) for row in drawn] for name in names}, rows


def _counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in rows:
        found[row["task"]] += row["size"] == "" and row["k"] < SHARED
    return found


def space_of(entry: Entry) -> Space:
    """The ranges from which configurations were drawn."""
    from library.models import MODELS
    from metakel.space import Categorical, Float, Integer, Parameter

    parameters: list[Parameter] = []
    for name, found in MODELS[entry.name].ranges.items():
        if isinstance(found, list):
            parameters.append(Categorical(name, tuple(found)))
            continue
        low, high = found[-2:]
        whole = isinstance(low, int) and isinstance(high, int)
        kind = Integer if whole else Float
        digits = {} if whole else {"digits": 4}
        parameters.append(kind(name, low, high, log=found[0] == "log", **digits))
    space = Space(tuple(parameters))
    if entry.name == "svm":
        from metakel.space.space import Condition

        conditions = (
            Condition("gamma", "kernel", ("rbf", "poly")),
            Condition("degree", "kernel", ("poly",)),
        )
        space = Space(space.parameters, conditions)
    return space


def ranked(
    rows: list[dict[str, Any]],
    metric: str,
    tasks: set[str],
    count: int,
    weights: Mapping[str, float] | None = None,
) -> list[int]:
    """Numbers of the configurations to try first, among those that data sets have in common.

    By the mean logarithm of the smallest loss over that of the defaults, each at most a factor of
    two worse. The first did best on average, where few rows of data sets count as further data
    sets, and refined configurations compete. The next are of those drawn at random, and add most
    to what is tried before: refined ones are too much alike.
    """
    losses: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        if row["task"] in tasks and row["k"] not in OWN:
            value = np.inf if row[metric] is None else log_loss(metric, row[metric])
            losses[row["task"], row["size"]][row["k"]] = value
    for pair, of in losses.items():
        typical = of.get(0, float(np.median(list(of.values()))))
        losses[pair] = {k: min(loss - typical, WORST) for k, loss in of.items()}
    whole = [pair for pair in losses if not pair[1]]
    drawn = {k for pair in whole for k in losses[pair] if k < SHARED}
    first = [set(losses[pair]) for pair in losses if pair[1]]
    best, chosen = dict.fromkeys(losses, WORST), list[int]()
    for _ in range(min(count, len(drawn))):
        alone = bool(first) and not chosen
        candidates = set.intersection(*first) if alone else drawn - {*chosen}
        pairs = [p for p in losses if candidates <= set(losses[p])] if alone else whole
        counts = None if weights is None else [weights[task] for task, _ in pairs]
        tried = {
            k: {pair: min(best[pair], of.get(k, WORST)) for pair, of in losses.items()}
            for k in candidates
        }
        worth = {k: np.average([of[p] for p in pairs], weights=counts) for k, of in tried.items()}
        chosen.append(min((value, k) for k, value in worth.items())[1])
        best = tried[chosen[-1]]
    return chosen


def portfolio(
    rows: list[dict[str, Any]],
    metric: str,
    tasks: set[str],
    entry: Entry,
    count: int = TRIED_FIRST,
) -> list[dict[str, Any]]:
    """Configurations to try first; defaults that follow from the data are at their median."""
    found = []
    for number in ranked(rows, metric, tasks, count):
        same = [row for row in rows if row["k"] == number and row["task"] in tasks]
        typical = {}
        for name in entry.parameters:
            values = [row[name] for row in same if row.get(name) is not None]
            if values:
                exact = isinstance(values[0], str | bool | int)
                typical[name] = values[0] if exact else float(np.median(values))
        found.append(typical)
    return found


def log_loss(metric: str, value: float) -> float:
    return log(max(value if metric in MINIMIZED else 1.0 - value + 1e-3, 1e-4))


def learned(
    entry: Entry, metric: str, tasks: set[str] | None = None, *, replay: bool = True
) -> mk.Prior | None:
    """The prior of a model and a metric; None where there are too few data sets.

    From some data sets only, and without replays for certificates, where that is asked for.
    """
    table, rows = runs_of(entry, metric)
    if tasks is not None:
        kept = [task in tasks for task in table["task"]]
        table = {name: [*compress(values, kept)] for name, values in table.items()}
    if len(set(table["task"])) < FEWEST or all(v is None for v in table[metric]):
        return None
    minimize = metric in MINIMIZED
    history = mk.History.from_frame(
        table, task="task", output=metric, minimize=minimize, space=space_of(entry)
    )
    options = {"certify": "none", "log_output": True if minimize else None}

    def learn(part: mk.History) -> mk.Prior:
        prior = mk.learn_prior(part, **options)
        first = portfolio(rows, metric, {task.name for task in part}, entry)
        model = prior.model
        info = replace(prior.info, tried_first=tuple(map(prior.space.round, first)))
        if metric in ("rmse", "mae"):
            anywhere = model.level_variance + (ANY_UNIT / model.scale) ** 2
            model = replace(model, level_variance=anywhere)
            info = replace(info, log_floor=SMALLEST_UNIT)
        return replace(prior, info=info, model=model)

    prior = learn(history)
    if not replay:
        return prior
    certificate, replays = calibrate_folds(
        _as_seen(history, prior), learn_seen(learn, history), None, 1
    )
    info = replace(prior.info, model=entry.name)
    return replace(prior, certificate=certificate, replays=replays, info=info, calibration=None)


def learn_seen(learn: Any, history: mk.History) -> Any:
    """Folds are of the history as a model sees it; what is learned from is the recorded one."""
    recorded = {task.name: task for task in history}

    def of(part: mk.History) -> mk.Prior:
        return learn(replace(history, tasks=tuple(recorded[task.name] for task in part)))

    return of


def _as_seen(history: mk.History, prior: mk.Prior) -> mk.History:
    from metakel.priors.standardize import rescaled

    return rescaled(history, prior.scale)


def shortened(content: Any) -> Any:
    """Numbers with fewer digits: what was learned is not known better."""
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}")
    if isinstance(content, list | tuple):
        return [shortened(value) for value in content]
    if isinstance(content, dict):
        return {name: shortened(value) for name, value in content.items()}
    return content


def card_of(entry: Entry, metric: str, prior: mk.Prior, failed: int) -> Card:
    held, found = prior.heldout, prior.certificate
    return Card(
        name=entry.name,
        title=entry.title,
        metric=metric,
        kind=METRICS[metric],
        data_sets=len(prior.info.tasks),
        runs=prior.info.runs,
        failed=failed,
        ranges={p.name: p.describe() for p in prior.space.parameters},
        gain=round(held.log_score, 3),
        better=f"{held.better_than_cold} of {len(held.tasks)}",
        vouching=0 if found is None or isinstance(found.table, str) else found.table.tasks,
        tried_first=[prior.space.show(x) for x in prior.info.tried_first],
        versions=VERSIONS,
    )


def build(names: list[str], metrics: list[str]) -> Iterator[tuple[str, Card]]:
    """Write the files; gives the cards."""
    folder = PACKAGE / "priors"
    folder.mkdir(exist_ok=True)
    for name in names:
        entry = ENTRIES[name]
        for metric in metrics:
            prior = learned(entry, metric)
            if prior is None:
                continue
            failed = sum(bool(r["failed"]) for r in read_runs(name) if r["kind"] == METRICS[metric])
            text = json.dumps(shortened(FORMAT.dump(encode(prior))), separators=(",", ":"))
            path = folder / f"{name}-{metric}.json.gz"
            path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
            sys.stdout.write(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {prior!r}\n")
            sys.stdout.flush()
            yield f"{name}-{metric}", card_of(entry, metric, prior, failed)


PARTS = 1000  # steps of a run, whatever its number of rounds


def build_curves(name: str) -> None:
    """How the losses of a model go on, over all data sets; nothing for a model without curves."""
    tasks: dict[str, list[dict[int, float]]] = defaultdict(list)
    rng = np.random.default_rng(0)
    for row in drawn_runs(name):
        values = {int(step): v for step, v in json.loads(row["curve"] or "{}").items()}
        if len(values) > 2:
            last = max(values)
            tasks[row["dataset"]].append(
                {max(round(PARTS * s / last), 1): v for s, v in values.items()}
            )
    if len(tasks) < FEWEST:
        return
    runs = [[task[i] for i in rng.permutation(len(task))] for _, task in sorted(tasks.items())]
    model = CurveModel.learn(runs, minimize=True)
    folder = PACKAGE / "priors"
    folder.mkdir(exist_ok=True)
    text = json.dumps(shortened(CURVES.dump(encode(model))))
    (folder / f"{name}-curves.json").write_text(f"{text}\n", encoding="utf-8")
    sys.stdout.write(f"curves of {name}: {model!r}\n")


def page(cards: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of ``docs/guide/library.md``."""
    lines = [
        "| `library.load(...)` | data sets | runs | gain per run (nats) | better than cold |",
        "|---|---|---|---|---|",
    ]
    for entry in cards.values():
        name = f'`"{entry["name"]}", "{entry["metric"]}"`'
        numbers = (
            entry["data_sets"],
            f"{entry['runs']:,}",
            f"{entry['gain']:.2f}",
            entry["better"],
        )
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def write_page(cards: Mapping[str, Mapping[str, Any]]) -> None:
    path = HERE.parent / "docs" / "guide" / "library.md"
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{page(cards)}\n{END}{after}", encoding="utf-8")


BEGIN, END = "<!-- table of library.build -->", "<!-- end of table -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(ENTRIES), choices=list(ENTRIES))
    parser.add_argument("--metrics", nargs="*", default=list(METRICS), choices=list(METRICS))
    options = parser.parse_args()
    path = PACKAGE / "index.json"
    index = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in options.models:
        build_curves(name)
    for name, found in build(options.models, options.metrics):
        index[name] = asdict(found)
    order = {f"{name}-{metric}": None for name in ENTRIES for metric in METRICS}
    index = {name: index[name] for name in order if name in index}
    path.write_text(f"{json.dumps(index, indent=1)}\n", encoding="utf-8")
    write_page(index)


if __name__ == "__main__":
    main()
