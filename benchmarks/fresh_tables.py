"""Tables that the method never saw while it was made, computed here with scikit-learn alone.

``python -m benchmarks.fresh_tables [--seed 1]`` computes what is missing into out/tables, task by
task, and goes on where it was interrupted. Everything is seeded: anybody gets the same tables from
the same version of scikit-learn. Another seed gives tables that nobody has looked at.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.base import ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.transfer_data import ROOT

FOLDER = ROOT / "out" / "tables"
MOST_ROWS = 250
Problem = tuple[str, np.ndarray, np.ndarray]
Configuration = dict[str, Any]

# ---------------------------------------------------------------- classification problems


def problems(seed: int = 0) -> list[Problem]:
    """36 small binary problems: parts of public data sets, and made ones of varied difficulty."""
    rng = np.random.default_rng(2026 + seed)
    found = [*_digits(rng), *_parts(rng), *_made(rng, 100 * seed)]
    return [_smaller(problem, rng) for problem in found]


def _digits(rng: np.random.Generator) -> Iterator[Problem]:
    X, y = datasets.load_digits(return_X_y=True)
    pairs = [(a, b) for a in range(10) for b in range(a)]
    for i in rng.choice(len(pairs), 12, replace=False):
        a, b = pairs[i]
        columns = rng.choice(X.shape[1], 16, replace=False)
        rows = (y == a) | (y == b)
        yield f"digits {b} or {a}", X[rows][:, columns], y[rows] == a


def _parts(rng: np.random.Generator) -> Iterator[Problem]:
    """Random columns of larger data sets."""
    sources = (
        ("cancer", *datasets.load_breast_cancer(return_X_y=True), 4, 6),
        ("diabetes", *datasets.load_diabetes(return_X_y=True), 5, 4),
        ("wine", *datasets.load_wine(return_X_y=True), 3, 3),
    )
    for name, X, y, columns, parts in sources:
        positive = y > np.median(y) if name == "diabetes" else y == 1
        for part in range(parts):
            chosen = rng.choice(X.shape[1], columns, replace=False)
            yield f"{name} part {part}", X[:, chosen], positive


def _made(rng: np.random.Generator, first: int) -> Iterator[Problem]:
    for i in range(8):
        informative = int(rng.integers(2, 8))
        X, y = datasets.make_classification(
            MOST_ROWS,
            n_features=informative + int(rng.integers(2, 20)),
            n_informative=informative,
            n_redundant=0,
            class_sep=rng.uniform(0.3, 1.2),
            flip_y=rng.uniform(0, 0.2),
            random_state=first + i,
        )
        yield f"made {i}", X, y == 1
    for i, noise in enumerate((0.2, 0.4)):
        yield (
            f"moons {noise}",
            *_binary(datasets.make_moons(MOST_ROWS, noise=noise, random_state=first + i)),
        )
    yield (
        "circles",
        *_binary(datasets.make_circles(MOST_ROWS, noise=0.2, factor=0.6, random_state=first)),
    )


def _binary(problem: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    X, y = problem
    return X, y == 1


def _smaller(problem: Problem, rng: np.random.Generator) -> Problem:
    name, X, y = problem
    rows = rng.permutation(len(y))[:MOST_ROWS]
    return name, X[rows], y[rows]


# ---------------------------------------------------------------- learners and their parameters


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def forest_configuration(rng: np.random.Generator) -> Configuration:
    """Six parameters, two of them categories."""
    return {
        "max_depth": round(_log(rng, 1, 20)),
        "max_features": rng.uniform(0.05, 1.0),
        "min_samples_leaf": round(_log(rng, 1, 60)),
        "max_samples": rng.uniform(0.1, 1.0),
        "criterion": str(rng.choice(["gini", "entropy"])),
        "class_weight": str(rng.choice(["balanced", "none"])),
    }


def forest(configuration: Configuration) -> ClassifierMixin:
    """A random forest of 20 trees."""
    weight = configuration["class_weight"]
    given = {**configuration, "class_weight": None if weight == "none" else weight}
    return RandomForestClassifier(n_estimators=20, random_state=0, **given)


def sgd_configuration(rng: np.random.Generator) -> Configuration:
    """Four parameters, one of them a category."""
    return {
        "alpha": _log(rng, 1e-6, 1.0),
        "l1_ratio": rng.uniform(),
        "eta0": _log(rng, 1e-5, 1.0),
        "loss": str(rng.choice(["hinge", "log_loss", "modified_huber"])),
    }


def sgd(configuration: Configuration) -> ClassifierMixin:
    """Linear models by stochastic gradients of constant step, ten passes."""
    return SGDClassifier(
        penalty="elasticnet",
        learning_rate="constant",
        max_iter=10,
        tol=None,
        random_state=0,
        **configuration,
    )


def network_configuration(rng: np.random.Generator) -> Configuration:
    """Five parameters, one of them a category."""
    return {
        "units": round(_log(rng, 2, 64)),
        "alpha": _log(rng, 1e-5, 10.0),
        "learning_rate_init": _log(rng, 1e-4, 0.3),
        "batch_size": round(_log(rng, 8, 128)),
        "activation": str(rng.choice(["relu", "tanh", "logistic"])),
    }


def network(configuration: Configuration) -> ClassifierMixin:
    """One hidden layer, twelve passes of Adam."""
    given = {key: value for key, value in configuration.items() if key != "units"}
    units = (configuration["units"],)
    return MLPClassifier(hidden_layer_sizes=units, max_iter=12, random_state=0, **given)


LEARNERS: dict[str, tuple[Callable, Callable, int]] = {
    "forest": (forest_configuration, forest, 250),
    "sgd": (sgd_configuration, sgd, 500),
    "network": (network_configuration, network, 250),
}


def scored(learner: str, number: int, seed: int = 0) -> pd.DataFrame:
    """AUC by three-fold cross-validation of random configurations on one problem."""
    draw, make, count = LEARNERS[learner]
    name, X, y = problems(seed)[number]
    rng = stream(number, sum(map(ord, learner)), seed)
    folds = StratifiedKFold(3, shuffle=True, random_state=number)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks that have not converged
        for _ in range(count):
            configuration = draw(rng)
            model = make_pipeline(StandardScaler(), make(configuration))
            scores = cross_val_score(model, X, y, scoring="roc_auc", cv=folds, error_score=0.5)
            rows.append({"task": name, **configuration, "value": float(scores.mean())})
    return pd.DataFrame(rows)


def stream(number: int, role: int, seed: int) -> np.random.Generator:
    """Random numbers of a task."""
    return np.random.default_rng([number, role, *([seed] if seed else ())])


# ---------------------------------------------------------------- families of test functions


def branin(number: int, seed: int = 0) -> pd.DataFrame:
    """Branin with coefficients drawn anew; its three minima move and differ in depth."""
    rng = stream(number, 1, seed)
    b, c, r = rng.uniform(0.10, 0.15), rng.uniform(1.2, 2.0), rng.uniform(5.0, 7.0)
    s, t, tilt = rng.uniform(8, 12), rng.uniform(0.03, 0.05), rng.normal(0, 1.5, size=2)
    U = rng.uniform(size=(600, 2))
    x, z = 15 * U[:, 0] - 5, 15 * U[:, 1]
    value = (z - b * x**2 + c * x - r) ** 2 + s * (1 - t) * np.cos(x) + s + U @ tilt
    return pd.DataFrame({"task": f"branin {number}", "a": U[:, 0], "b": U[:, 1], "value": -value})


HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(number: int, seed: int = 0) -> pd.DataFrame:
    """Hartmann in six dimensions with heights drawn anew and peaks moved a little."""
    rng = stream(number, 2, seed)
    heights = np.array([1.0, 1.2, 3.0, 3.2]) + rng.uniform(-1, 1, size=4) * [0.5, 0.6, 1.5, 1.6]
    peaks = HARTMANN_P + rng.normal(0, 0.03, size=HARTMANN_P.shape)
    U = rng.uniform(size=(1000, 6))
    squares = ((U[:, None] - peaks) ** 2 * HARTMANN_A).sum(axis=2)
    inputs = {name: U[:, j] for j, name in enumerate("abcdef")}
    return pd.DataFrame(
        {"task": f"hartmann {number}", **inputs, "value": np.exp(-squares) @ heights}
    )


TASKS = 36
MAKERS: dict[str, Callable[[int, int], pd.DataFrame]] = {
    **{name: partial(scored, name) for name in LEARNERS},
    "branin": branin,
    "hartmann": hartmann,
}


def table(name: str, seed: int = 0, workers: int = 2) -> Path:
    """The file of a table, computed if it is not there yet."""
    path = FOLDER / f"{name}{f'-{seed}' if seed else ''}.csv.gz"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        # Processes of a benchmark may ask for the same table at the same time.
        with (FOLDER / f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                with ProcessPoolExecutor(workers) as pool:
                    parts = list(pool.map(part, *zip(*_numbers(name, seed), strict=True)))
                _write(path, pd.concat([pd.read_csv(file) for file in parts]))
    return path


def _numbers(name: str, seed: int) -> list[tuple[str, int, int]]:
    return [(name, number, seed) for number in range(TASKS)]


def part(name: str, number: int, seed: int) -> Path:
    """The file of one task, computed if it is not there yet."""
    path = FOLDER / "tasks" / f"{name}-{seed}-{number}.csv.gz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, MAKERS[name](number, seed))
        print(f"{name}: task {number + 1} of {TASKS}", file=sys.stderr)
    return path


def _write(path: Path, frame: pd.DataFrame) -> None:
    half = path.with_name(f"half-{path.name}")
    frame.to_csv(half, index=False)
    half.rename(path)  # a file is whole or absent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default=",".join(MAKERS), help="comma-separated")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.tables.split(","):
        print(table(name, options.seed))


if __name__ == "__main__":
    main()
