"""Results on disk: one folder per figure and reading, complete or half-way.

``settings.json``  what was run: settings, seed, versions, and how long it took
``results.csv.gz`` the table of all runs
``parts/``         runs that are not in the table yet, one file each
"""

from __future__ import annotations

import gzip
import io
import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from metakel._files import writing
from metakel.errors import InputError
from reproduction.figure import Rows, Table
from reproduction.settings import ExperimentSettings, Reading

Key: TypeAlias = tuple[int, int]  # draw, run

# A run does not depend on how many others there are.
NOT_IDENTITY = ("runs", "draws")


@dataclass(frozen=True)
class Store:
    """Where the results of one figure in one reading are kept."""

    folder: Path

    def open(
        self, figure: str, settings: ExperimentSettings, seed: int, *, fresh: bool = False
    ) -> None:
        """Make the folder, or check that what it holds belongs to the same experiment."""
        described = describe(figure, settings, seed)
        if fresh:
            for path in (self._table, self._description, *self._parts()):
                path.unlink(missing_ok=True)
        if self._description.exists():
            self._check_same(described)
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "parts").mkdir(exist_ok=True)
        before = self.description() if self._description.exists() else {}
        spent = {"seconds": before.get("seconds", 0.0), "memory": before.get("memory", 0)}
        self._describe({**described, **spent})

    def done(self) -> set[Key]:
        """Runs that need not be repeated."""
        finished = {_key(path) for path in self._parts()}
        if self._table.exists():
            table = _read(self._table)
            finished |= set(zip(table["draw"].tolist(), table["run"].tolist(), strict=True))
        return finished

    def save(self, key: Key, rows: Rows) -> None:
        """Keep one run; a kill leaves either all of it or nothing."""
        draw, run = key
        table = pd.DataFrame(rows)
        table.insert(0, "draw", draw)
        table.insert(1, "run", run)
        _write(self.folder / "parts" / f"{draw:04d}-{run:06d}.csv", table)

    def finish(self, seconds: float, memory: int) -> None:
        """Put all parts into the table, in the order of their keys.

        ``seconds`` and ``memory`` (bytes, of all processes together) are what they took.
        """
        tables = [_read(path) for path in self._parts()]
        if not tables:
            return
        if self._table.exists():
            tables.append(_read(self._table))
        # Stable, so that the rows of a run stay in their order.
        table = pd.concat(tables).sort_values(["draw", "run"], kind="stable")
        _write(self._table, table)
        for path in self._parts():
            path.unlink()
        description = self.description()
        spent = {
            "seconds": description["seconds"] + seconds,
            "memory": max(description["memory"], memory),
        }
        self._describe({**description, **spent})

    def table(self, settings: ExperimentSettings) -> Table:
        """The runs that the settings ask for."""
        if not self._table.exists():
            raise InputError(f"{self.folder} holds no results; run the figure first")
        table = _read(self._table)
        wanted = (table["run"] < settings.runs) & (table["draw"] < settings.draws)
        return table[wanted].reset_index(drop=True)

    @property
    def complete(self) -> bool:
        """Whether there is a table, that is, a run that came to its end."""
        return self._table.exists()

    def settings(self, kind: type[ExperimentSettings]) -> ExperimentSettings:
        """The settings of the saved results, of the class that the figure uses."""
        values = self.description()["settings"]
        lists = {name: tuple(v) for name, v in values.items() if isinstance(v, list)}
        return kind(**{**values, **lists, "reading": Reading(**values["reading"])})

    def description(self) -> dict[str, Any]:
        """What settings.json says."""
        if not self._description.exists():
            raise InputError(f"{self.folder} holds no results; run the figure first")
        content: dict[str, Any] = json.loads(self._description.read_text(encoding="utf-8"))
        return content

    def _check_same(self, described: dict[str, Any]) -> None:
        found = self.description()
        for part in ("figure", "seed", "settings", "versions"):
            old, new = found.get(part), described[part]
            if isinstance(new, dict) and isinstance(old, dict):
                names = [n for n in new if old.get(n) != new[n] and n not in NOT_IDENTITY]
                changed = [f"{n} is {old.get(n)!r} there, {new[n]!r} now" for n in names]
            else:
                changed = [] if old == new else [f"{part} is {old!r} there, {new!r} now"]
            if changed:
                raise InputError(
                    f"{self.folder} holds results of another experiment ({changed[0]}); "
                    "choose another folder with --out, or replace them with --fresh"
                )

    def _describe(self, content: dict[str, Any]) -> None:
        _replace(self._description, json.dumps(content, indent=2).encode())

    def _parts(self) -> list[Path]:
        return sorted((self.folder / "parts").glob("*.csv"))

    @property
    def _table(self) -> Path:
        return self.folder / "results.csv.gz"

    @property
    def _description(self) -> Path:
        return self.folder / "settings.json"


def describe(figure: str, settings: ExperimentSettings, seed: int) -> dict[str, Any]:
    """Everything that the numbers depend on, in the form that JSON gives back."""
    packages = ("metakel", "numpy", "scipy")
    content = {
        "figure": figure,
        "seed": seed,
        "settings": asdict(settings),
        "versions": {"python": platform.python_version()} | {n: version(n) for n in packages},
    }
    restored: dict[str, Any] = json.loads(json.dumps(content))
    return restored


def _key(path: Path) -> Key:
    draw, run = path.stem.split("-")
    return int(draw), int(run)


def _read(path: Path) -> Table:
    return pd.read_csv(path)  # from pandas 3.1 on, every number comes back bit by bit


def _write(path: Path, table: Table) -> None:
    text = io.StringIO()
    table.to_csv(text, index=False)
    content = text.getvalue().encode()
    # No time stamp: the same results make the same file.
    _replace(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_suffix(path.suffix + ".partial")
    with writing(path):
        partial.write_bytes(content)
        os.replace(partial, path)
