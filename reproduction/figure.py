"""What a figure is: settings, one run, a drawing, and the claims of its caption as bounds.

Measured numbers come with 95 % intervals: `ratio` of means (bootstrap) and `rate` (Wilson).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, Literal, TypeAlias

import matplotlib.figure
import numpy as np
from numpy.typing import ArrayLike

from metakel.errors import InputError
from reproduction.settings import READINGS, ExperimentSettings, Streams

Rows: TypeAlias = list[dict[str, Any]]
Table: TypeAlias = Any  # pandas.DataFrame: what `run_once` returned, with columns draw and run
Measured: TypeAlias = Mapping[str, float]
State: TypeAlias = Literal["holds", "undecided", "fails"]

LEVEL = 0.95
RESAMPLES = 2000
Z = 1.959964  # quantile of the normal distribution for LEVEL


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
    """

    text: str
    key: str
    low: float = -inf
    high: float = inf
    said: bool = True

    def holds(self, measured: Measured, slack: float = 0.0) -> bool:
        """Whether the number lies in the interval, widened on both sides by ``slack``."""
        return bool(self.low - slack <= measured[self.key] <= self.high + slack)

    def state(self, measured: Measured) -> State:
        """Undecided where the confidence interval of the number reaches over a bound."""
        ends = [measured.get(self.key + end, measured[self.key]) for end in (" low", " high")]
        inside = [self.low <= end <= self.high for end in ends]
        if all(inside):
            return "holds"
        apart = max(ends) < self.low or min(ends) > self.high or np.isnan(measured[self.key])
        return "fails" if apart else "undecided"

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
    settings, quick : ExperimentSettings
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
    rule : str
        How points are chosen and what the posterior assumes, where the settings do not say it.
    readings : tuple of str
        Those that differ for this figure; the first is the default.
    """

    title: str
    caption: str
    settings: ExperimentSettings
    quick: ExperimentSettings
    run_once: Callable[[Any, Streams], Rows]
    measure: Callable[[Table], Measured]
    draw: Callable[[Table, Any, matplotlib.figure.Figure], None]
    claims: tuple[Claim, ...]
    comment: str = ""
    rule: str = ""
    readings: tuple[str, ...] = ("resolved", "literal")
    size: tuple[float, float] = (8.0, 3.2)

    def configured(
        self, reading: str | None = None, *, quick: bool = False, runs: int | None = None
    ) -> ExperimentSettings:
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
    """The figure of this name (`reproduction.FIGURES`)."""
    from reproduction import FIGURES

    if name not in FIGURES:
        raise InputError(f"there is no figure {name!r}; known: {', '.join(FIGURES)}")
    figure = importlib.import_module(f"reproduction.{FIGURES[name]}").FIGURE
    assert isinstance(figure, Figure)
    return figure


def ratio(
    key: str, over: ArrayLike, under: ArrayLike, clusters: ArrayLike | None = None
) -> dict[str, float]:
    """Mean of ``over`` / mean of ``under`` as ``key``, and its interval as "low" and "high".

    Parameters
    ----------
    over, under : (N,) arrays
        Paired: entry i of both belongs to the same instance.
    clusters : (N,) array, optional
        Labels of what was drawn independently, where several instances share something.
    """
    pairs = np.column_stack([np.asarray(over, dtype=float), np.asarray(under, dtype=float)])
    labels = np.arange(len(pairs)) if clusters is None else np.asarray(clusters)
    names, where = np.unique(labels, return_inverse=True)
    sums = np.zeros((len(names), 2))
    np.add.at(sums, where, pairs)
    total = sums.sum(axis=0)
    value = float(total[0] / total[1]) if total[1] else np.nan
    rng = np.random.default_rng(0)
    counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES)
    drawn = counts @ sums  # (RESAMPLES, 2)
    drawn = drawn[drawn[:, 1] != 0]  # a resample of zeros says nothing
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    edges = np.quantile(drawn[:, 0] / drawn[:, 1], tails) if len(drawn) else (np.nan, np.nan)
    return {key: value, f"{key} low": float(edges[0]), f"{key} high": float(edges[1])}


def rate(key: str, successes: ArrayLike) -> dict[str, float]:
    """Fraction of successes as ``key``, and its Wilson interval, which is honest at 0 and 1."""
    values = np.asarray(successes, dtype=float)
    n, p, z = len(values), float(values.mean()), Z
    center = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = (0.0 if p == 0 else center - half), (1.0 if p == 1 else center + half)
    return {key: p, f"{key} low": float(low), f"{key} high": float(high)}


def shown(measured: Measured, key: str) -> str:
    """The number, with its interval where there is one."""
    if np.isnan(measured[key]):
        return "–"
    text = f"{measured[key]:.3g}"
    if f"{key} low" not in measured:
        return text
    return f"{text} ({measured[f'{key} low']:.3g} to {measured[f'{key} high']:.3g})"
