"""What a figure is: settings, one run, a drawing, and the claims of its caption as bounds."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, TypeAlias

import matplotlib.figure

from metakel.errors import InputError
from metakel.paper.settings import READINGS, Settings
from metakel.paper.streams import Streams

Rows: TypeAlias = list[dict[str, Any]]
Table: TypeAlias = Any  # pandas.DataFrame: what `run_once` returned, with columns draw and run
Measured: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Claim:
    """A sentence about a figure, and the interval in which a measured number must lie for it.

    Parameters
    ----------
    text : str
    key : str
        Name of the measured number.
    low, high : float
    said : bool
        Whether the paper says it; otherwise it is our own observation.
    sure : bool
        Whether the confidence interval of the number ("low" and "high") must lie in it, too.
    """

    text: str
    key: str
    low: float = -inf
    high: float = inf
    said: bool = True
    sure: bool = False

    def holds(self, measured: Measured, slack: float = 0.0) -> bool:
        """Whether the number lies in the interval, widened on both sides by ``slack``."""
        ends = ("", " low", " high") if self.sure else ("",)
        numbers = [measured[self.key + end] for end in ends]
        return bool(self.low - slack <= min(numbers) and max(numbers) <= self.high + slack)

    @property
    def bounded(self) -> bool:
        """Whether it can fail; otherwise the number is only reported."""
        return isfinite(self.low) or isfinite(self.high)

    @property
    def bound(self) -> str:
        """The interval in words."""
        if not self.bounded:
            return "–"
        if self.low == self.high:
            return f"{self.low:g}"
        if isfinite(self.low) and isfinite(self.high):
            return f"{self.low:.4g} to {self.high:.4g}"
        return f"at least {self.low:g}" if isfinite(self.low) else f"at most {self.high:g}"


@dataclass(frozen=True)
class Figure:
    """One figure.

    Parameters
    ----------
    title : str
        What it shows.
    caption : str
        What the paper says it shows.
    settings, quick : Settings
        At the size of the paper, and small enough for a test.
    run_once : callable(settings, streams) -> rows
        Pure: one instance, as rows of a table.
    measure : callable(table) -> mapping
        The numbers that the claims are about.
    draw : callable(table, settings, figure)
        Draws the saved table; computes no experiment.
    claims : tuple of Claim
    comment : str
        What a reader should know before comparing with the paper.
    readings : tuple of str
        Those that differ for this figure; the first is the default.
    """

    title: str
    caption: str
    settings: Settings
    quick: Settings
    run_once: Callable[[Any, Streams], Rows]
    measure: Callable[[Table], Measured]
    draw: Callable[[Table, Any, matplotlib.figure.Figure], None]
    claims: tuple[Claim, ...]
    comment: str = ""
    readings: tuple[str, ...] = ("resolved", "literal")
    size: tuple[float, float] = (8.0, 3.2)

    def configured(
        self, reading: str | None = None, *, quick: bool = False, runs: int | None = None
    ) -> Settings:
        """Its settings in a reading, full size or quick."""
        name = self.readings[0] if reading is None else reading
        if name not in READINGS:
            raise InputError(f"reading is {name!r}; expected one of {', '.join(READINGS)}")
        settings = replace(self.quick if quick else self.settings, reading=READINGS[name])
        if runs is None:
            return settings
        if runs < 1:
            raise InputError(f"runs is {runs}; expected at least 1")
        return replace(settings, runs=runs)


def load_figure(name: str) -> Figure:
    """The figure of this name (`metakel.paper.FIGURES`)."""
    from metakel.paper import FIGURES

    if name not in FIGURES:
        raise InputError(f"there is no figure {name!r}; known: {', '.join(FIGURES)}")
    figure = importlib.import_module(f"metakel.paper.{FIGURES[name]}").FIGURE
    assert isinstance(figure, Figure)
    return figure
