"""Pictures: a confidence band and how it shrinks, learned weights, task functions.

Every function draws on the Axes it is given, or on new ones, and returns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_points
from metakel.charts import (
    ALARM,
    CERTIFICATE,
    CHOSEN,
    LEARNED,
    OBSERVED,
    REFERENCE,
    SERIES,
    TRUTH,
    Panel,
    new_axes,
)
from metakel.confidence.sequence import ConfidenceSequence
from metakel.errors import InputError, ShapeError
from metakel.kernels.sum import KernelSum
from metakel.learn import LearnedKernel
from metakel.optimize import CertifiedModel, Optimizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = ("-", "--", ":", "-.")


def band(
    source: ConfidenceSequence | Optimizer,
    Z: ArrayLike,
    *,
    ax: Axes | None = None,
    truth: ArrayLike | None = None,
    next_point: ArrayLike | None = None,
) -> Axes:
    """The confidence band over one input, with the data and the next point.

    Parameters
    ----------
    source : ConfidenceSequence or Optimizer
        An optimizer of `mk.GPUCB`
    Z : (n,) or (n, 1) array
        Where to draw it; sorted by the picture.
    ax : Axes, optional
    truth : (n,) or (n, 1) array, optional
        The function at ``Z``, where it is known.
    next_point : (1,) array, optional
        Where to look next, usually ``optimizer.ask()``; the pending points of an optimizer are
        marked without it.
    """
    ax = ax or new_axes()[0]
    grid = _line(Z)
    order = np.argsort(grid[:, 0])
    x = grid[order, 0]
    waiting = []
    if isinstance(source, Optimizer):
        bounds, mean, delta = source.confidence(grid), source.predict(grid)[0], source.model.delta
        seen_x, seen_y, waiting = source.X, source.y, source.pending
    else:
        bounds, mean, delta = source.interval(grid), source.mean(grid), source.delta
        batches = source.told.batches
        seen_x = np.concatenate([np.zeros((0, 1)), *(batch.X for batch in batches)])
        seen_y = np.concatenate([np.zeros(0), *(batch.y for batch in batches)])
    lower, upper = (bound[order] for bound in bounds)
    panel = Panel(ax)
    panel.band(x, lower, upper, LEARNED, label=f"{1 - delta:.0%} confidence, all x and t")
    panel.line(x, mean[order], LEARNED, label="posterior mean")
    if truth is not None:
        values = np.asarray(truth, dtype=np.float64)
        if values.shape == (len(grid), 1):
            values = values.reshape(len(grid))
        if values.shape != (len(grid),):
            raise ShapeError(f"band: truth has shape {values.shape}; expected ({len(grid)},)")
        panel.line(x, values[order], TRUTH, label="function", linewidth=1)
    if len(seen_x):
        label = f"{len(seen_x)} observation{'s' if len(seen_x) > 1 else ''}"
        panel.dots(seen_x[:, 0], seen_y, OBSERVED, label=label, clip_on=False)
    awaited = np.array(waiting, dtype=np.float64).reshape(-1, 1)
    if next_point is not None:
        awaited = np.asarray(next_point, dtype=np.float64).reshape(-1, 1)
    for i, point in enumerate(awaited[:, 0]):
        panel.rule(point, CHOSEN, "" if i else "next point")
    ax.set_xlabel("x")
    ax.set_ylabel("value")
    ax.set_xlim(x[0], x[-1])
    # Above the picture: the band fills all of it in the beginning.
    ax.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize="small", frameon=False
    )
    return ax


def trace(
    source: ConfidenceSequence | Optimizer,
    Z: ArrayLike,
    *,
    ax: Axes | None = None,
    times: Sequence[int] | None = None,
) -> Axes:
    """How the band has shrunk over time: half-widths over the points ``Z``, and the certificate.

    The history is replayed, so this takes as long as telling it did.

    Parameters
    ----------
    source : ConfidenceSequence or Optimizer
        An optimizer of `mk.GPUCB`
    Z : (n, d0) array
        Where to look; any number of inputs.
    ax : Axes, optional
    times : sequence of int, optional
        After how many calls of tell to look, by default at most 60 of them.
    """
    ax = ax or new_axes()[0]
    points = as_points(Z, "trace")
    sequence = _sequence(source)
    batches = sequence.told.batches
    if times is None:
        times = np.unique(np.linspace(0, len(batches), 61).round()).astype(int).tolist()
    replayed = sequence.fresh()
    steps, quantiles, gaps = [], [], []
    for call in range(len(batches) + 1):
        if call:
            batch = batches[call - 1]
            replayed.tell(batch.X, batch.y, batch.noise_std)
        if call in times:
            lower, upper = replayed.interval(points, refine=False)
            steps.append(replayed.t)
            # No quantile between two values: the largest may be infinite.
            share = np.quantile((upper - lower) / 2, [0.1, 0.5, 0.9], method="inverted_cdf")
            quantiles.append(share)
            gaps.append(_gap(replayed, upper))
    low, middle, high = np.where(np.isfinite(quantiles), quantiles, np.nan).T
    panel = Panel(ax)
    panel.band(steps, low, high, LEARNED, label="10 % to 90 % of x")
    panel.line(steps, middle, LEARNED, label="half-width, median over x")
    panel.line(steps, gaps, CERTIFICATE, label="certificate of the best point")
    for event in sequence.alarms:
        panel.rule(event.time, ALARM, "alarm")
    ax.set_yscale("log")
    ax.set_xlabel("observations")
    ax.set_ylabel("in units of the function")
    ax.legend(loc="best", fontsize="small", framealpha=0.9)
    return ax


def weights(source: LearnedKernel | KernelSum, *, ax: Axes | None = None, limit: int = 30) -> Axes:
    """How strong each base kernel is, by name; the bars of kernels that were dropped are empty.

    Parameters
    ----------
    source : LearnedKernel or KernelSum
        For a learned kernel the strengths found in the history, whatever weights it uses.
    ax : Axes, optional
    limit : int
        With more base kernels only the strongest that were not dropped are shown.
    """
    ax = ax or new_axes()[0]
    if isinstance(source, LearnedKernel):
        eta, names, quantity = source.solution.eta, source.kernel.base.names, "strength found"
    else:
        eta, names, quantity = source.eta, source.base.names, "weight"
    shown = np.arange(len(eta))
    if len(eta) > limit:
        shown = np.sort(np.argsort(-eta, kind="stable")[: max(1, min(limit, (eta > 0).sum()))])
    ax.bar(np.arange(len(shown)), eta[shown], color=LEARNED.colour, width=0.8)
    dropped = np.flatnonzero(eta[shown] == 0)
    if len(dropped):
        none = np.zeros(len(dropped))
        ax.plot(dropped, none, "x", color=REFERENCE.colour, markersize=4, label="dropped")
        ax.legend(loc="best", fontsize="small")
    ax.set_xticks(np.arange(len(shown)))
    long = max(len(names[j]) for j in shown) > 3 or len(shown) > 15
    ax.set_xticklabels(
        [names[j] for j in shown], rotation=90 if long else 0, fontsize="small" if long else None
    )
    every = len(shown) == len(eta)
    ax.set_xlabel(
        "base kernel" if every else f"the strongest {len(shown)} of {len(eta)} base kernels"
    )
    ax.set_ylabel(quantity)
    ax.set_ylim(bottom=0)
    ax.margins(x=0.01)
    return ax


def functions(
    Z: ArrayLike, values: ArrayLike, *, ax: Axes | None = None, names: Sequence[str] | None = None
) -> Axes:
    """A few functions of one input, such as past tasks or draws of a posterior.

    Parameters
    ----------
    Z : (n,) or (n, 1) array
    values : (m, n) array
        One function per row.
    ax : Axes, optional
    names : sequence of m str, optional
        Shown in a legend.
    """
    ax = ax or new_axes()[0]
    grid = _line(Z)
    rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if rows.shape[1:] != (len(grid),):
        raise ShapeError(f"functions: values have shape {rows.shape}; expected (m, {len(grid)})")
    if names is not None and len(names) != len(rows):
        raise ShapeError(f"functions: {len(names)} names for {len(rows)} functions")
    order = np.argsort(grid[:, 0])
    for s, row in enumerate(rows):
        style = replace(SERIES[s % len(SERIES)], line=STYLES[s // len(SERIES) % len(STYLES)])
        Panel(ax).line(grid[order, 0], row[order], style, label="" if names is None else names[s])
    ax.set_xlabel("x")
    ax.set_ylabel("value")
    ax.margins(x=0)
    if names is not None:
        ax.legend(loc="best", fontsize="small")
    return ax


def _line(Z: ArrayLike) -> Array:
    grid = as_points(Z, "plot")
    if grid.shape[1] != 1:
        raise ShapeError(f"plot: Z has {grid.shape[1]} inputs per point; a line needs one")
    return grid


def _sequence(source: ConfidenceSequence | Optimizer) -> ConfidenceSequence:
    if isinstance(source, ConfidenceSequence):
        return source
    if not isinstance(source.model, CertifiedModel):
        raise InputError("trace: the optimizer has no kernel; expected one of mk.GPUCB")
    return source.model.certified


def _gap(sequence: ConfidenceSequence, upper: Array) -> float:
    """The largest upper bound minus the largest lower bound of a told point; nan before one."""
    batches = sequence.told.batches
    if not batches or not np.isfinite(upper).all():
        return np.nan
    lower, _ = sequence.interval(np.concatenate([batch.X for batch in batches]), refine=False)
    return float(max(upper.max() - lower.max(), 0.0))
