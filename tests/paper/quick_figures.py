"""Every figure in its quick size, run once per test process."""

from __future__ import annotations

from functools import lru_cache
from tempfile import TemporaryDirectory

import matplotlib.figure

from reproduction.figure import Figure, load_figure
from reproduction.runner import run


def results(name: str, reading: str = "resolved"):
    """The table of the figure."""
    return _results(name, reading)


@lru_cache
def _results(name: str, reading: str):
    settings = load_figure(name).configured(reading, quick=True)
    with TemporaryDirectory() as out:
        return run(name, settings, seed=0, out=out, jobs=1).table(settings)


def measured(name: str, reading: str = "resolved") -> dict[str, float]:
    return dict(load_figure(name).measure(results(name, reading)))


def failing(name: str, reading: str = "resolved", slack: dict[str, float] | None = None):
    """Keys of the claims that do not hold, each with its own slack for the small size."""
    figure: Figure = load_figure(name)
    numbers = measured(name, reading)
    allowed = slack or {}
    judged = [claim for claim in figure.claims if claim.bounded]
    return [c.key for c in judged if not c.holds(numbers, allowed.get(c.key, 0.0))]


def drawn(name: str, reading: str = "resolved"):
    """The axes of the picture."""
    figure = load_figure(name)
    canvas = matplotlib.figure.Figure(figsize=figure.size, layout="constrained")
    figure.draw(results(name, reading), figure.configured(reading, quick=True), canvas)
    canvas.canvas.draw()
    return canvas.axes


def check_picture(name: str, reading: str = "resolved") -> None:
    """Every axis says what it shows, and something tells the curves apart."""
    axes = drawn(name, reading)
    assert axes
    assert any(ax.get_ylabel() for ax in axes)
    assert any(ax.get_xlabel() for ax in axes)
    if any(len(ax.get_lines()) > 1 for ax in axes):
        assert any(ax.get_legend() is not None for ax in axes) or axes[0].figure.legends
