"""Checks of runs that are contributed to the library of priors."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from metakel.data import History
from metakel.library._entries import Entry
from metakel.library._priors import METRICS, MINIMIZED
from metakel.priors import learn_prior
from metakel.testing.laws import law

DATA_SETS, RUNS, FAILED = 20, 30, 0.5  # at least; at least of each; at most of each
UNCLEAR = {"", "?", "unknown", "unclear"}


def check_library_entry(entry: Entry, runs: str | Path, data_sets: str | Path, metric: str) -> None:
    """Check runs of a model before a prior of the library is learned from them.

    Licences are stated, enough data sets and configurations were run, the defaults first of all,
    parameters vary and keep their names, failures say why and are not the rule, and data sets that
    are left out are predicted better by the others than as white noise.

    Parameters
    ----------
    entry : metakel.library.Entry
        The model: its names, defaults and spellings.
    runs, data_sets : path
        Tables as ``library/run.py`` writes them: ``library/runs/NAME.csv.gz`` and
        ``library/datasets.csv``.
    metric : str
        The score to look at, such as "log_loss" or "rmse".
    """
    law(metric in METRICS, f"metric is {metric!r}; expected one of {', '.join(METRICS)}")
    licences = {row["name"]: row["licence"].strip() for row in _rows(data_sets)}
    by_name: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in _rows(runs):
        if row["kind"] == METRICS[metric]:
            by_name[row["dataset"]].append(row)
    law(
        len(by_name) >= DATA_SETS,
        f"{len(by_name)} data sets for {METRICS[metric]}; expected at least {DATA_SETS}",
    )
    for name, rows in by_name.items():
        licence = licences.get(name, "")
        law(licence.lower() not in UNCLEAR, f"{name}: the licence is {licence!r}; expected one")
        _check_runs(entry, name, rows, metric)
    values = {
        n: {row.get(n) for rows in by_name.values() for row in map(_given, rows)}
        for n in entry.parameters
    }
    same = [n for n, found in values.items() if len(found - {None}) < 2]
    law(not same, f"{', '.join(same)} has one value in all runs; expected a range")
    _check_prior(entry, by_name, metric)


def _rows(path: str | Path) -> list[dict[str, str]]:
    content = Path(path).read_bytes()
    text = (gzip.decompress(content) if str(path).endswith(".gz") else content).decode()
    return list(csv.DictReader(text.splitlines()))


def _given(row: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row["parameters"])
    return found


def _check_runs(entry: Entry, name: str, rows: list[dict[str, str]], metric: str) -> None:
    law(len(rows) >= RUNS, f"{name}: {len(rows)} runs; expected at least {RUNS}")
    numbers = [int(row["configuration"]) for row in rows]
    law(0 in numbers, f"{name}: no run of the defaults; expected one with configuration 0")
    law(len(numbers) == len(set(numbers)), f"{name}: a configuration was run twice")
    unknown = {parameter for row in rows for parameter in _given(row)} - set(entry.parameters)
    law(not unknown, f"{name}: {sorted(unknown)} are no parameters of {entry.name}")
    failed = [row for row in rows if row["failed"]]
    law(len(failed) <= FAILED * len(rows), f"{name}: {len(failed)} of {len(rows)} runs failed")
    silent = [row for row in rows if not row["failed"] and not row[metric]]
    law(not silent, f"{name}: {len(silent)} runs have neither {metric} nor a reason")


def _check_prior(entry: Entry, by_name: dict[str, list[dict[str, str]]], metric: str) -> None:
    rows = [
        {"task": name, **entry.defaults, **_given(row), metric: float(row[metric])}
        for name, found in by_name.items()
        for row in found
        if row[metric]
    ]
    names = ("task", *entry.parameters, metric)
    history = History.from_frame(
        {name: [row[name] for row in rows] for name in names},
        task="task",
        output=metric,
        minimize=metric in MINIMIZED,
    )
    prior = learn_prior(history, certify="none")
    law(prior.helps, f"data sets left out are not predicted: {prior.heldout.log_score:.2f} nats")
