"""Figure 8: what the functions of the synthetic tasks look like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure as Canvas

from metakel.charts import SERIES
from metakel.plots import tidy
from reproduction.drawing import one_run
from reproduction.figure import Claim, Figure, Rows, Table
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import dictionary, domain, new_coefficients, true_kernel

SETTINGS = ExperimentSettings(runs=50, grid=201)
QUICK = replace(SETTINGS, runs=10)

SHOWN = 5


def run_once(settings: ExperimentSettings, streams: Streams) -> Rows:
    """One function of the space of k*, at the grid."""
    kernel = true_kernel(
        dictionary(settings), sparsity=settings.sparsity, rng=streams.rng("kernel")
    )
    beta = new_coefficients(settings, kernel, streams)
    Z = domain(settings)
    f = kernel.features(Z) @ beta
    used = sum(bool(beta[group].any()) for group in kernel.groups)
    return [
        {"x": float(x), "f": float(value), "used": used}
        for x, value in zip(Z[:, 0], f, strict=True)
    ]


def measure(table: Table) -> dict[str, float]:
    """Where the maxima and minima lie."""
    runs = table.groupby(["draw", "run"])
    # Even polynomials are as large at -1: equal up to rounding counts.
    at_right = runs["f"].last() >= runs["f"].max() - 1e-9
    lowest = runs.apply(lambda one: one["x"].to_numpy()[one["f"].to_numpy().argmin()])
    return {
        "maximum at x = 1": float(at_right.mean()),
        "distinct minima": float(len(np.unique(lowest))),
    }


def draw(table: Table, settings: ExperimentSettings, canvas: Canvas) -> None:
    """A few functions."""
    ax = canvas.subplots()
    for run in range(min(SHOWN, settings.runs)):
        one = one_run(table, run)
        label = f"task {run + 1}: {one['used'].iloc[0]} kernels"
        ax.plot(one["x"], one["f"], label=label, linewidth=1.2, **SERIES[run].look)
    ax.set(xlabel="x", ylabel="f_s(x)")
    ax.legend(ncols=2)
    tidy(ax)


FIGURE = Figure(
    title="Examples of the functions of the synthetic tasks",
    caption="Examples of possible functions f_s for the meta-dataset.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    claims=(
        Claim(
            "with coefficients in (0, 1) the maximum is always at x = 1: fraction of functions",
            "maximum at x = 1",
            1,
            1,
            False,
        ),
    ),
    readings=("resolved", "literal", "signed"),
    size=(6, 3.2),
    comment="All Legendre polynomials are 1 at x = 1, their largest value. A sum of them with "
    "positive coefficients therefore has its maximum there, whatever the task: maximising these "
    "functions is no problem to be solved, minimising them is.",
)
