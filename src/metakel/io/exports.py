"""Tables that other tools export, by their columns: names without prefixes, and no bookkeeping."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from metakel.io.cleaning import normalized
from metakel.io.outputs import DONE
from metakel.io.schema import Table

SHOWN = 6


class Cells(Protocol):
    """A column: anything that gives its cells as a list."""

    def tolist(self) -> list[Any]:
        """The cells."""


C = TypeVar("C", bound=Cells | list[Any])


@dataclass(frozen=True)
class Export:
    """What a tool writes.

    Parameters
    ----------
    tool : str
    marks : tuple of str
        Columns that only this export has together, as regular expressions.
    parameter, metric : str
        Prefixes of parameters and of measured values.
    bookkeeping : str
        A regular expression of columns that say nothing of a configuration.
    state : str
        The column that says whether a run is done.
    """

    tool: str
    marks: tuple[str, ...]
    parameter: str
    metric: str
    bookkeeping: str
    state: str = ""

    def wrote(self, names: Collection[str]) -> bool:
        """Whether a table with these columns is one of its own."""
        return all(any(re.fullmatch(mark, name) for name in names) for mark in self.marks)

    def renamed(self, name: str, asked: Collection[str]) -> str:
        """A column without the prefix, unless it was asked for with it."""
        if name in asked:
            return name
        short = name.removeprefix(self.parameter)
        metric = bool(self.metric) and name.startswith(self.metric)
        wanted = name.removeprefix(self.metric) if metric else ""
        return wanted if wanted in asked else short


EXPORTS = (
    Export(
        *("Optuna", ("number", "state", "params_.+"), "params_", ""),
        "number|(datetime_|user_attrs_|system_attrs_|intermediate_).*|duration",
        "state",
    ),
    Export(
        *("MLflow", ("run_id", "experiment_id", r"params\..+"), "params.", "metrics."),
        r"run_id|experiment_id|artifact_uri|start_time|end_time|tags\..*|metrics\..*",
        "status",
    ),
    Export(
        *("MLflow", ("Run ID", "Start Time", "Source Type"), "", ""),
        "Run ID|Name|Start Time|Duration|User|Source (Type|Name)|Version",
        "Status",
    ),
    Export(
        *("scikit-learn", ("params", "param_.+", "mean_fit_time"), "param_", ""),
        r"params|(mean|std)_(fit|score)_time|(mean|std|rank|split\d+)_(test|train)_.*",
    ),
    Export(
        *("Weights & Biases", ("Name", "State", "Created", "Runtime"), "", ""),
        "ID|Name|Notes|User|Tags|Created|Runtime|Sweep|GPU.*|Hostname|_.*",
        "State",
    ),
)


def known_export(source: Table, asked: Collection[str] = ()) -> Table:
    """A table under the names of its parameters, with a note, where a tool has exported it."""
    if source.space is not None:
        return source
    columns, note = without_prefixes(source.columns, {source.task, source.output, *asked})
    return replace(source, columns=columns, notes=(*source.notes, *note)) if note else source


def without_prefixes(
    columns: Mapping[str, C], asked: Collection[str]
) -> tuple[dict[str, C], tuple[str, ...]]:
    """The columns of an export as those who ran it call them, and a note of what was done.

    Columns that are asked for stay; a table of no known tool stays as it is.
    """
    export = next((one for one in EXPORTS if one.wrote(columns)), None)
    if export is None:
        return dict(columns), ()
    names = {name: export.renamed(name, asked) for name in columns}
    parameters = {new for name, new in names.items() if new != name}  # one may be called number
    kept = {old for old, new in names.items() if new in asked and old not in parameters}
    own = {name for name in columns if re.fullmatch(export.bookkeeping, name)}
    if export.state in columns and _done(columns[export.state]):
        own.add(export.state)
    gone = [name for name in columns if name in own - kept]
    found = {new: columns[name] for name, new in names.items() if name not in gone}
    if len(found) < len(columns) - len(gone):  # a parameter has the name of another column
        return dict(columns), ()
    prefix = f"{export.parameter} is taken off the names; " if export.parameter else ""
    shown = ", ".join(gone[:SHOWN]) + (f" and {len(gone) - SHOWN} more" if gone[SHOWN:] else "")
    return found, (f"an export of {export.tool}: {prefix}left out: {shown}",)


def _done(cells: Cells | list[Any]) -> bool:
    values = cells if isinstance(cells, list) else cells.tolist()
    return {normalized(str(value)) for value in values} <= DONE
