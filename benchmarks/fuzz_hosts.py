"""Inputs for `benchmarks.fuzz`: objects of other libraries, and tables whose values are known."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import metakel as mk

ROWS = 12
ODD: tuple[Any, ...] = (
    *(None, True, 0, -7, 10**400, 1e308, float("nan"), float("inf"), "", "x", "1,5", "\ud800"),
    *(
        b"x",
        (1, 2),
        [1, 2],
        {"a": 1},
        {1},
        1j,
        np.float32(0.5),
        np.int8(3),
        np.datetime64("2026-01"),
    ),
    *(np.timedelta64(3, "s"), np.array([1, 2]), np.array(3.0), object(), range(3)),
)
STYLES: tuple[Callable[[float], str], ...] = (
    *(repr, "{:.4f}".format, "{:+.4f}".format, "{:.4e}".format, "{:.4E}".format, "{:g}".format),
    *(" {:.4f} ".format, "{:012.4f}".format, "{:,.4f}".format, "{:.0f}".format, "{:,.0f}".format),
    *("{:.4f} %".format, "{:.4f}%".format, "{:.4f} kg".format, "{:.1f}".format, '"{:.4f}"'.format),
    lambda v: f"{v:.4f}".replace(".", ","),
    lambda v: f"{v:.1f}".replace(".", ","),
    lambda v: f"{v:.3f}".replace(".", ","),
    lambda v: f"{v:,.0f}".replace(",", "."),
    lambda v: f"{v:,.4f}".translate(str.maketrans(",.", ".,")),
    lambda v: f"{v:,.4f}".replace(",", " "),
    lambda v: f"{v:,.4f}".replace(",", "'"),
    lambda v: f"{v:,.2f}".replace(",", "\u202f").replace(".", ","),
    lambda v: f"{v:.4f}".replace("-", "\u2212"),
)
DELIMITERS = (",", ";", "\t")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "cp1252", "ascii")


class ChangedValue(Exception):
    """A cell was read as another number, and no note says so."""


def seed_bytes(rng: random.Random) -> bytes:
    """What an object is made from."""
    return rng.randbytes(8)


def read_frame(data: bytes) -> object:
    """A dict or a pandas frame with a column of odd things, as a history."""
    import pandas as pd

    rng = random.Random(data)
    some = [rng.choice(ODD) for _ in range(rng.choice([1, 2, 4]))]
    cells: Any = [rng.choice(some) if rng.random() < 0.5 else rng.random() for _ in range(ROWS)]
    if rng.random() < 0.1:
        cells = rng.choice(ODD)
    table: dict[Any, Any] = {"task": [f"t{i % 3}" for i in range(ROWS)]}
    table |= {"x": [rng.random() for _ in range(ROWS)], "y": [rng.random() for _ in range(ROWS)]}
    table[rng.choice(["p", "p", "p", "x", "y", "task", 3])] = cells
    try:
        frame = pd.DataFrame(table) if rng.random() < 0.4 else table
    except Exception:  # pandas does not take it
        frame = table
    return mk.History.from_frame(frame, task="task", output="y")


def read_study(data: bytes) -> object:
    """A study of Optuna with odd choices and values, as a history and as trials of a sampler."""
    import optuna

    rng = random.Random(data)
    choices = [rng.choice(ODD) for _ in range(rng.choice([2, 3]))]
    distributions = {
        "c": optuna.distributions.CategoricalDistribution(choices),
        "x": optuna.distributions.FloatDistribution(0.0, 1.0),
    }
    try:
        studies = _studies(rng, choices, distributions)
    except Exception:  # Optuna does not take it
        return None
    return mk.History.from_optuna(studies)


def _studies(rng: random.Random, choices: list[Any], distributions: dict[str, Any]) -> list[Any]:
    import optuna
    from optuna.trial import TrialState, create_trial

    studies = []
    for name in ("a", "b"):
        study = optuna.create_study(study_name=name)
        for _ in range(4):
            value = rng.choice([rng.random(), 1e300, -1e300, 0.0, float("inf")])
            params = {"c": rng.choice(choices), "x": rng.random()}
            state = rng.choice([TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL])
            study.add_trial(
                create_trial(
                    params=params,
                    distributions=distributions,
                    value=value if state is TrialState.COMPLETE else None,
                    state=state,
                )
            )
        studies.append(study)
    return studies


def known_table(folder: Path) -> Callable[[bytes], object]:
    """A reader of tables in one of the styles, which compares what it reads with what it wrote."""

    def read(data: bytes) -> object:
        rng = random.Random(data)
        style, delimiter = rng.choice(STYLES), rng.choice(DELIMITERS)
        scale = rng.choice([1.0, 10.0, 1000.0, 1e6])
        cells = [style(rng.uniform(-1, 1) * scale) for _ in range(ROWS)]
        true = [_meant(cell, style) for cell in cells]
        lines = [delimiter.join(("task", "x", "score"))]
        for i, cell in enumerate(cells):
            quoted = f'"{cell}"' if delimiter in cell and '"' not in cell else cell
            lines.append(delimiter.join((f"t{i % 2}", f"0.{(7 * i) % 13 + 10}", quoted)))
        path = folder / "known.csv"
        text = "\n".join(lines) + "\n"
        try:
            path.write_bytes(text.encode(rng.choice(ENCODINGS)))
        except UnicodeEncodeError:
            path.write_bytes(text.encode())
        history = mk.History.from_csv(path, task="task", output="score")
        found = sorted(float(v) for task in history.tasks for v in task.y)
        said = any("score" in note for note in history.report.notes)
        same = len(found) == ROWS and np.allclose(found, sorted(true), rtol=1e-9, atol=0)
        if not same and not said and history.report.kept == ROWS:
            raise ChangedValue(f"{cells[:3]} with {delimiter!r} is read as {found[:3]}")
        return history

    return read


def _meant(cell: str, style: Callable[[float], str]) -> float:
    """The number that a cell was written for: its digits, and the sign and power of ten."""
    text = cell.strip(' "%kg').replace("\u2212", "-")
    commas = style(1234.5)
    decimal = "," if "," in commas and commas.rfind(",") > commas.rfind(".") else "."
    if decimal == "," and style(1234567.0).count(",") > 1:
        decimal = "."
    if decimal == "." and style(1234567.0).count(".") > 1:
        decimal = ","
    for mark in {",", ".", " ", "'", "\u202f"} - {decimal}:
        text = text.replace(mark, "")
    return float(text.replace(decimal, "."))
