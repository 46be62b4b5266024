"""Train every model on every data set: ``make library``, or ``python -m library.run``.

It can be stopped and started again at any time: a run that was written is not made again. One
line of ``library/runs/<model>.csv.gz`` is one configuration on one data set.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import signal
import sys
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from library.datasets import DataSet, data_sets, small_data_sets
from library.models import EPOCHS, MODELS, Model

RUNS = Path(__file__).with_name("runs")
REFINED = Path(__file__).with_name("refined.json")
SHARED = 30  # configurations after the defaults; as many of each data set's own come next
OWN = range(SHARED + 1, 2 * SHARED + 1)
SMALL = "-small"  # after the name of a model: the best configurations on few rows of each data set
RUN_SMALL = ("lightgbm", "xgboost", "random_forest", "extra_trees")
FOLDS, SEED = 3, 0
SECONDS = 90  # of all folds together; then a run counts as failed
CLASSIFICATION = ("log_loss", "auc", "balanced_accuracy", "accuracy")
REGRESSION = ("rmse", "mae", "r2")
STEPS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 64, 85, 113, 150, 200, 265, 350, 500)


class TooSlow(Exception):
    """A run took longer than `SECONDS`."""


def configurations(model: Model, data: DataSet) -> list[dict[str, Any]]:
    """The defaults first; then those of all data sets, those of this one, and the refined."""
    shared = np.random.default_rng([SEED, zlib.crc32(model.name.encode())])
    own = np.random.default_rng([SEED, zlib.crc32(f"{model.name} {data.name}".encode())])
    drawn = [model.sample(shared) for _ in range(SHARED)]
    drawn += [model.sample(own) for _ in range(SHARED)]
    return [dict(model.defaults), *drawn, *refined(model.name, data.kind)["configurations"]]


def refined(name: str, kind: str) -> dict[str, Any]:
    """Further configurations that all data sets of a kind share, and the best of the others."""
    known = json.loads(REFINED.read_text(encoding="utf-8"))
    found: dict[str, Any] = known.get(f"{name}, {kind}", {"configurations": [], "best": []})
    return found


def run(model: Model, data: DataSet, parameters: dict[str, Any], arrays: Any) -> dict[str, Any]:
    """Scores of one configuration: means over folds, seconds of fitting, and its curve."""
    from sklearn.model_selection import KFold, StratifiedKFold

    X, y = arrays
    classes = data.kind == "classification"
    splitter = (StratifiedKFold if classes else KFold)(FOLDS, shuffle=True, random_state=SEED)
    scores: list[dict[str, float]] = []
    curves: list[dict[int, float]] = []
    seconds = 0.0
    for train, test in splitter.split(X, y):
        fold = prepared(model, X[train], X[test])
        start = time.process_time()
        estimator, curve = fitted(model, data.kind, parameters, *fold, y[train], y[test])
        seconds += time.process_time() - start
        curves.append(curve)
        scores.append((classified if classes else regressed)(estimator, fold[1], y[test], y))
    found: dict[str, Any] = {
        name: float(np.mean([score[name] for score in scores])) for name in scores[0]
    }
    if not all(np.isfinite(value) for name, value in found.items() if name != "log_loss"):
        raise ValueError("a score is not finite")
    common = sorted(set(curves[0]).intersection(*curves))
    found["curve"] = {step: float(np.mean([c[step] for c in curves])) for step in common}
    return {**found, "seconds": seconds}


def prepared(model: Model, train: Any, test: Any) -> tuple[Any, Any]:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not model.scaled and not (np.isnan(train).any() or np.isnan(test).any()):
        return train, test
    steps = [SimpleImputer(), StandardScaler()] if model.scaled else [SimpleImputer()]
    transform = make_pipeline(*steps).fit(train)
    return transform.transform(train), transform.transform(test)


def fitted(
    model: Model, kind: str, parameters: dict[str, Any], X: Any, Z: Any, y: Any, z: Any
) -> tuple[Any, dict[int, float]]:
    """A trained estimator, and its loss on the held-out fold after some of its steps."""
    estimator = model.make(kind, SEED, **parameters)
    if model.name in ("mlp", "sgd"):
        return estimator, by_epochs(estimator, kind, X, Z, y, z)
    if model.name == "lightgbm":
        estimator.fit(X, y, eval_set=[(Z, z)])
        losses = next(iter(estimator.evals_result_.values()))
        losses = losses.get("multi_logloss") or losses.get("binary_logloss") or losses["l2"]
        return estimator, at_steps(losses, kind)
    if model.name == "xgboost":
        estimator.fit(X, y, eval_set=[(Z, z)], verbose=False)
        (losses,) = next(iter(estimator.evals_result().values())).values()
        return estimator, at_steps(np.square(losses) if kind == "regression" else losses, kind)
    estimator.fit(X, y)
    if model.name == "hist_gradient_boosting":
        staged = estimator.staged_predict_proba if kind == "classification" else None
        staged = staged or estimator.staged_predict
        losses = {}
        for step, found in enumerate(staged(Z), 1):
            if step in STEPS:
                losses[step] = loss_of(found, z, kind, estimator)
        return estimator, losses
    return estimator, {}


def by_epochs(estimator: Any, kind: str, X: Any, Z: Any, y: Any, z: Any) -> dict[int, float]:
    order = np.random.default_rng(SEED).permutation(len(y))
    more = {"classes": np.unique(y)} if kind == "classification" else {}
    losses = {}
    for epoch in range(1, EPOCHS + 1):
        estimator.partial_fit(X[order], y[order], **more)
        found = estimator.predict_proba(Z) if kind == "classification" else estimator.predict(Z)
        losses[epoch] = loss_of(found, z, kind, estimator)
    return losses


def loss_of(found: Any, z: Any, kind: str, estimator: Any) -> float:
    from sklearn.metrics import log_loss

    if kind == "classification":
        return float(log_loss(z, found, labels=estimator.classes_))
    return float(np.sqrt(np.mean((found - z) ** 2)))


def at_steps(losses: Any, kind: str) -> dict[int, float]:
    values = np.asarray(losses, dtype=float)
    if kind == "regression":
        values = np.sqrt(values)
    return {step: float(values[step - 1]) for step in STEPS if step <= len(values)}


def classified(estimator: Any, X: Any, z: Any, y: Any) -> dict[str, float]:
    from scipy.special import softmax
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, roc_auc_score

    predicted = np.asarray(estimator.predict(X)).ravel()
    found = {
        "accuracy": accuracy_score(z, predicted),
        "balanced_accuracy": balanced_accuracy_score(z, predicted),
        "log_loss": np.nan,
    }
    if hasattr(estimator, "predict_proba"):
        chances = estimator.predict_proba(X)
        found["log_loss"] = log_loss(z, chances, labels=np.unique(y))
    else:
        margins = estimator.decision_function(X)
        margins = np.column_stack([-margins, margins]) if margins.ndim == 1 else margins
        chances = softmax(margins, axis=1)
    if chances.shape[1] == 2:
        found["auc"] = roc_auc_score(z, chances[:, 1])
    else:
        found["auc"] = roc_auc_score(z, chances, multi_class="ovr", labels=np.unique(y))
    return {name: float(value) for name, value in found.items()}


def regressed(estimator: Any, X: Any, z: Any, y: Any) -> dict[str, float]:
    from sklearn.metrics import mean_absolute_error, r2_score

    predicted = np.asarray(estimator.predict(X)).ravel()
    error = float(np.sqrt(np.mean((predicted - z) ** 2)))
    return {
        "rmse": error,
        "mae": float(mean_absolute_error(z, predicted)),
        "r2": float(r2_score(z, predicted)),
    }


# What is written

FIELDS = ("dataset", "kind", "configuration", "parameters", "failed", "seconds")
COLUMNS = (*FIELDS, *CLASSIFICATION, *REGRESSION, "curve")


def packed(name: str) -> Path:
    return RUNS / f"{name}.csv.gz"


def loose(name: str) -> Path:
    """Where new runs are appended; `pack` moves them into the compressed table."""
    return RUNS / f"{name}.jsonl"


def read_runs(name: str) -> list[dict[str, str]]:
    """All runs of a model, packed and loose."""
    found: list[dict[str, str]] = []
    if packed(name).exists():
        with gzip.open(packed(name), "rt", encoding="utf-8", newline="") as file:
            found += csv.DictReader(file)
    if loose(name).exists():
        for line in loose(name).read_text(encoding="utf-8").splitlines():
            try:
                found.append({key: str(value) for key, value in json.loads(line).items()})
            except ValueError:  # cut off while it was written: made again
                continue
    return found


def drawn_runs(name: str) -> list[dict[str, str]]:
    """Those of the defaults and of configurations that were drawn, without the refined ones."""
    return [row for row in read_runs(name) if int(row["configuration"]) <= OWN[-1]]


def pack(name: str) -> None:
    """Every run once, in a fixed order, so that the same runs give the same bytes."""
    by_key = {(row["dataset"], int(row["configuration"])): row for row in read_runs(name)}
    if not by_key:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(by_key[key] for key in sorted(by_key))
    content = gzip.compress(text.getvalue().encode(), mtime=0)
    part = packed(name).with_suffix(".part")
    part.write_bytes(content)
    part.replace(packed(name))
    loose(name).unlink(missing_ok=True)


def row_of(
    data: DataSet, k: int, parameters: dict[str, Any], found: dict[str, Any]
) -> dict[str, Any]:
    row = {
        "dataset": data.name,
        "kind": data.kind,
        "configuration": k,
        "parameters": json.dumps(parameters),
        "failed": found.pop("failed", ""),
        "seconds": round(found.pop("seconds", 0.0), 4),
    }
    curve = found.pop("curve", {})
    row["curve"] = json.dumps({step: float(f"{v:.5g}") for step, v in curve.items()})
    return {**row, **{n: float(f"{v:.6g}") if np.isfinite(v) else "" for n, v in found.items()}}


def attempt(model: Model, data: DataSet, parameters: dict[str, Any], arrays: Any) -> dict[str, Any]:
    """A run, or why it failed; failures are results, too."""

    late = []

    def give_up(number: int, frame: Any) -> None:
        late.append(f"TooSlow: more than {SECONDS} s")
        raise TooSlow

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(4 * SECONDS)  # the machine may be busy
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return run(model, data, parameters, arrays)
    except Exception as error:
        return {"failed": "".join(late) or f"{type(error).__name__}: {error}"[:120]}
    except KeyboardInterrupt:  # which CatBoost makes of any signal
        if not late:
            raise
        return {"failed": late[0]}
    finally:
        signal.alarm(0)


def compute(names: list[str], minutes: float) -> None:
    end = time.monotonic() + 60 * minutes
    RUNS.mkdir(exist_ok=True)
    for name in names:
        model, small = MODELS[name.removesuffix(SMALL)], name.endswith(SMALL)
        done = {(row["dataset"], int(row["configuration"])) for row in read_runs(name)}
        sets = small_data_sets() if small else data_sets()
        chosen = [data for data in sets if data.kind in model.kinds]
        with loose(name).open("a", encoding="utf-8") as file:
            for position, data in enumerate(chosen, 1):
                tried = configurations(model, data)
                numbers = [*range(len(tried))]
                if small:
                    best = refined(model.name, data.kind)["best"]
                    numbers = [0, *best, *numbers[OWN[-1] + 1 :]]
                todo = [k for k in numbers if (data.name, k) not in done]
                if not todo:
                    continue
                arrays, start = data.arrays(), time.monotonic()
                for k in todo:
                    if time.monotonic() > end:
                        sys.stdout.write(f"{minutes:g} minutes are over; the next call goes on\n")
                        return
                    found = attempt(model, data, tried[k], arrays)
                    file.write(json.dumps(row_of(data, k, tried[k], found)) + "\n")
                    file.flush()
                took = time.monotonic() - start
                sys.stdout.write(f"{name} {position}/{len(chosen)} {data.name}: {took:.0f} s\n")
                sys.stdout.flush()
        pack(name)


def write_facts() -> None:
    """``library/datasets.csv``: source, licence, size and shape of every data set."""
    names = ("rows", "features", "missing", "classes", "largest_class")
    path = Path(__file__).with_name("datasets.csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        fields = ("name", "kind", "source", "licence", *names)
        writer = csv.DictWriter(file, fields, restval="", lineterminator="\n")
        writer.writeheader()
        for data in data_sets():
            said = {name: getattr(data, name) for name in fields[:4]}
            writer.writerow(said | {name: round(v, 4) for name, v in data.facts.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*MODELS, *(f"{name}{SMALL}" for name in RUN_SMALL)]
    parser.add_argument("--models", nargs="*", default=names, choices=names)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin nothing new after this")
    parser.add_argument("--pack", action="store_true", help="only compress what there is")
    parser.add_argument("--facts", action="store_true", help="only write datasets.csv")
    options = parser.parse_args()
    if options.facts:
        write_facts()
        return
    if not options.pack:
        compute(options.models, options.minutes)
    for name in options.models:
        pack(name)


if __name__ == "__main__":
    main()
