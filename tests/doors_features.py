"""What a search can have, the past of each, and a shell: for the table of `test_doors`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metakel as mk
from metakel import library
from metakel.cli import main
from metakel.errors import InputError
from metakel.space import Categorical, Condition, Float, Integer, Space

X = Float("x", 0.0, 1.0)
KIND = Categorical("kind", ("tree", "line"))
DEPTH = Integer("depth", 1, 10)


@dataclass(frozen=True)
class Feature:
    """Something that a search can have.

    Parameters
    ----------
    space : Space
        Of the history.
    value : callable
        From a configuration to what is measured; best inside of the space.
    holds : callable
        What every suggestion respects.
    options : dict
        Of ``prior.optimizer``.
    minimize : bool
    missing : bool
        Whether some cells of the past are empty.
    library : str
        A prior of the library, beside which the history is learned if ``joins``.
    joins : bool
    output_range : pair, optional
        Limits of the output.
    log_output : bool
        Whether it is learned on a log scale.
    """

    space: Space
    value: Callable[[Mapping[str, Any]], float]
    holds: Callable[[Mapping[str, Any]], bool] = lambda x: True
    options: Mapping[str, Any] = field(default_factory=dict)
    minimize: bool = False
    missing: bool = False
    output_range: tuple[float, float] | None = None
    library: str = ""
    joins: bool = False
    log_output: bool = False


def bowl(x: Mapping[str, Any]) -> float:
    return 0.8 - (float(x["x"]) - 0.4) ** 2


def with_choice(x: Mapping[str, Any]) -> float:
    return bowl(x) - 0.2 * (x["kind"] == "line")


def with_depth(x: Mapping[str, Any]) -> float:
    return bowl(x) - 0.004 * (float(x.get("depth", 5)) - 6) ** 2


def conditional(x: Mapping[str, Any]) -> float:
    if x["kind"] == "line":
        return bowl(x) - 0.1
    return with_depth(x)


def on_log(x: Mapping[str, Any]) -> float:
    return 0.8 - 0.05 * (np.log10(x["rate"]) + 2) ** 2


def blended(x: Mapping[str, Any]) -> float:
    return 0.8 - (float(x["water"]) - 0.5) ** 2 - (float(x["oil"]) - 0.4) ** 2


def with_switch(x: Mapping[str, Any]) -> float:
    return bowl(x) - 0.1 * (not x["warm"])


def by_parent(x: Mapping[str, Any]) -> float:
    # The second layer is there only where there are two.
    return bowl(x) - 0.05 * (x["layers"] == 1) - 0.004 * (float(x.get("width", 6)) - 6) ** 2


def by_neighbors(x: Mapping[str, Any]) -> float:
    far = 0.01 * (x["weights"] == "uniform") + 0.005 * (x["p"] - 2.0) ** 2
    return 0.8 - 0.01 * (np.log(x["n_neighbors"]) - 2) ** 2 - far


NEAR = library.load("knn", "accuracy").space
TABLE = [{"x": round(0.03 * i, 2), "kind": kind} for i in range(33) for kind in ("tree", "line")]
WIDE = Space((X, KIND))
DEEP = Space((X, KIND, DEPTH), (Condition("depth", "kind", ("tree",)),))
LAYERED = Space(
    (X, Integer("layers", 1, 2), Integer("width", 2, 10)), (Condition("width", "layers", (2,)),)
)
SWITCHED = Space((X, Categorical("warm", (False, True))))

PARTS = (Float("water", 0.0, 1.0), Float("oil", 0.0, 1.0), Float("salt", 0.0, 1.0))

STOPPED = "runs that are stopped early"
FEATURES: dict[str, Feature] = {
    "float": Feature(Space((X,)), bowl),
    "log float": Feature(Space((Float("rate", 1e-4, 1.0, log=True),)), on_log),
    "integer": Feature(
        Space((X, DEPTH)), with_depth, lambda x: isinstance(x["depth"], int) and x["depth"] >= 1
    ),
    "category": Feature(WIDE, with_choice, lambda x: x["kind"] in ("tree", "line")),
    "boolean": Feature(SWITCHED, with_switch, lambda x: isinstance(x["warm"], bool)),
    "conditional parameter": Feature(
        DEEP, conditional, lambda x: ("depth" in x) == (x["kind"] == "tree")
    ),
    "numeric parent": Feature(LAYERED, by_parent, lambda x: ("width" in x) == (x["layers"] == 2)),
    "fixed value": Feature(
        DEEP,
        conditional,
        lambda x: x["depth"] == 2 and x["kind"] == "tree",
        options={"fixed": {"depth": 2}},
    ),
    "narrowed range": Feature(
        WIDE,
        with_choice,
        lambda x: 0.6 <= x["x"] <= 0.9,
        options={"space": Space((Float("x", 0.6, 0.9), KIND))},
    ),
    "sum": Feature(
        Space(PARTS, sums=("water + oil + salt = 1",)),
        blended,
        lambda x: abs(x["water"] + x["oil"] + x["salt"] - 1) < 1e-6 and x["salt"] >= 0.2 - 1e-6,
        options={"space": Space(PARTS, sums=("salt >= 0.2",))},
    ),
    "excluded choice": Feature(
        WIDE,
        with_choice,
        lambda x: x["kind"] == "line",
        options={"fixed": {"kind": "line"}},
    ),
    "candidates": Feature(WIDE, with_choice, lambda x: x in TABLE, options={"candidates": TABLE}),
    "constraints": Feature(WIDE, with_choice),
    "failed and pending runs": Feature(WIDE, with_choice),
    "minimize": Feature(WIDE, lambda x: -with_choice(x), minimize=True),
    "log output": Feature(WIDE, lambda x: 10 ** (3 * with_choice(x)), log_output=True),
    STOPPED: Feature(WIDE, with_choice),
    "output range": Feature(WIDE, with_choice, output_range=(0.0, 1.0)),
    "new parameter": Feature(
        WIDE,
        with_choice,
        lambda x: 0 <= x["momentum"] <= 1,
        options={"new": (Float("momentum", 0.0, 1.0),)},
    ),
    "missing values": Feature(Space((X, DEPTH)), with_depth, missing=True),
    "library": Feature(NEAR, by_neighbors, library="library:knn:accuracy"),
    "history beside the library": Feature(
        NEAR, by_neighbors, library="library:knn:accuracy", joins=True
    ),
}


@cache
def history(name: str) -> mk.History:
    feature, table = FEATURES[name], rows_of(name)
    return mk.History.from_frame(
        table, task="task", output="score", minimize=feature.minimize, space=feature.space
    )


@cache
def rows_of(name: str) -> dict[str, list[Any]]:
    """Eight tasks that differ by a level and a little noise."""
    feature, rng = FEATURES[name], np.random.default_rng(0)
    columns = ("task", *feature.space.names, "score")
    table: dict[str, list[Any]] = {column: [] for column in columns}
    for s in range(8):
        level = 0.02 * rng.standard_normal()
        for k, x in enumerate(feature.space.decode(feature.space.sample(rng, 14))):
            row = {"task": f"t{s}", **x}
            row["score"] = feature.value(x) + level + 0.001 * rng.standard_normal()
            if feature.missing and k == 3:
                row["depth"] = None
            for column in columns:
                table[column].append(row.get(column))
    return table


@cache
def prior_of(name: str) -> mk.Prior:
    feature = FEATURES[name]
    if feature.library and not feature.joins:
        return library.as_prior(feature.library)
    return mk.learn_prior(
        history(name),
        output_range=feature.output_range,
        log_output=feature.log_output or None,
        library=feature.library or None,
        certify="none",
    )


def called(name: str, where: Path) -> str:
    """The prior as a command takes it: its file, or its name in the library."""
    feature = FEATURES[name]
    if feature.library and not feature.joins:
        return feature.library
    prior_of(name).save(where / "prior.json")
    return "prior.json"


def write_csv(path: Path, rows: list[Any]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(rows)


def table_of(name: str, where: Path) -> str:
    """The file of past runs; what was learned already has none."""
    feature, table = FEATURES[name], rows_of(name)
    if feature.library and not feature.joins:
        return feature.library
    rows = [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]
    write_csv(where / "past.csv", rows)
    return "past.csv"


class Shell:
    """``metakel ...`` in this process, in a folder of its own."""

    def __init__(self, where: Path, monkeypatch: Any, capsys: Any) -> None:
        self.where, self._patch, self._capsys = where, monkeypatch, capsys
        monkeypatch.chdir(where)

    def __call__(self, *words: object) -> str:
        self._patch.setattr(sys, "argv", ["metakel", *map(str, words)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = self._capsys.readouterr()
        if stop.value.code:
            raise InputError(f"{err}{stop.value.code}")
        return out
