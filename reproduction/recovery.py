"""Support recovery: does k-hat find the right base kernels, over m, n and the noise?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas

from metakel import plots
from metakel.charts import COLD, LEARNED, SERIES, TRUTH
from metakel.plots import tidy
from reproduction.drawing import legend_below, mark_values, rates
from reproduction.figure import Claim, Figure, Rows, Table, rate
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import instance, theory_lambda


@dataclass(frozen=True)
class Recovery(ExperimentSettings):
    """The values of m, n and sigma; where one varies, the others are those of the paper."""

    tasks: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    points: tuple[int, ...] = (5, 10, 20, 30, 50, 100)
    noises: tuple[float, ...] = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)


# Weights of at least 0.05: smaller ones contradict Assumption 3.1 and are missed by any method.
SETTINGS = Recovery(runs=300, fresh=True, smallest=0.05)
QUICK = replace(SETTINGS, runs=8, tasks=(2, 10, 50), points=(10, 50), noises=(0.01, 0.1, 0.5, 4.0))

# Name, style, and a width that shows one curve behind another.
RULES = {
    "0.03": ("λ = 0.03", COLD, 4.5),
    "theorem": ("λ of Theorem 4.3", LEARNED, 2.7),
    "self-normalized": ("one λ per kernel", SERIES[2], 1.0),
}


def run_once(settings: Recovery, streams: Streams) -> Rows:
    """One k*; what is found of it along the three sweeps."""
    sweeps: dict[str, tuple[Any, ...]] = {
        "m": settings.tasks,
        "n": settings.points,
        "noise_std": settings.noises,
    }
    return [
        {"sweep": name, "value": float(value), **row}
        for name, values in sweeps.items()
        for value in values
        for row in _found(replace(settings, **{name: value}), streams)
    ]


def _found(settings: Recovery, streams: Streams) -> Rows:
    drawn = instance(settings, streams)
    shown = np.flatnonzero(drawn.strength)  # the kernels that the tasks have used
    lams: dict[str, float | str] = {
        "0.03": 0.03,
        "theorem": theory_lambda(settings),
        "self-normalized": "self-normalized",
    }
    rows: Rows = []
    for rule, lam in lams.items():
        active = drawn.learn(lam).active
        rows.append(
            {
                "rule": rule,
                "found": bool(np.isin(shown, active).all()),
                "exact": bool(np.array_equal(shown, active)),
                "size": int(active.size),
            }
        )
    return rows


def measure(table: Table) -> dict[str, float]:
    """The numbers of Property F, at the worst of the noises it names."""
    means = table.groupby(["sweep", "value", "rule"])[["found", "exact", "size"]].mean()
    noisy = table[(table["sweep"] == "noise_std") & table["value"].isin([0.01, 0.1, 0.5])]
    swept = table[table["sweep"] == "noise_std"]
    noisiest = swept[swept["value"] == swept["value"].max()]
    measured: dict[str, float] = {}
    for rule in RULES:
        asked = noisy[noisy["rule"] == rule]
        for what in ("found", "exact"):
            worst = asked.groupby("value")[what].mean().idxmin()
            each = asked[asked["value"] == worst][what]
            measured |= rate(f"{what} {rule}", each)
        measured[f"found {rule}, σ = 0.01"] = float(means.loc[("noise_std", 0.01, rule), "found"])
        loudest = noisiest[noisiest["rule"] == rule]
        measured |= rate(f"found {rule}, loudest", loudest["found"])
        measured[f"size at n = 10 {rule}"] = float(means.loc[("n", 10.0, rule), "size"])
    return measured


def draw(table: Table, settings: Recovery, canvas: Canvas) -> None:
    """Recovery rate above, number of selected kernels below, for the three sweeps."""
    axes = canvas.subplots(2, 3, sharex="col", sharey="row")
    labels = {"m": "past tasks m", "n": "observations per task n", "noise_std": "noise σ"}
    for (above, below), (sweep, label) in zip(axes.T, labels.items(), strict=True):
        swept = table[table["sweep"] == sweep]
        for rule, (name, style, width) in RULES.items():
            grouped = swept[swept["rule"] == rule].groupby("value")
            x, (found, low, high) = np.array(list(grouped.groups)), rates(grouped["found"])
            marks: dict[str, Any] = {"marker": "o", "linewidth": width, "markersize": width + 2}
            plots.curve(x, found, low, high, style=style, label=name, ax=above, **marks)
            size, spread = grouped["size"].mean().to_numpy(), grouped["size"].std().to_numpy()
            plots.curve(x, size, size - spread, size + spread, style=style, ax=below, **marks)
        below.axhline(settings.sparsity, linewidth=1.2, **TRUTH.look)
        mark_values(below, sorted(set(swept["value"])))
        below.set_xlabel(label)
        tidy(above, below)
    axes[0, 0].set(ylabel="runs with all\nkernels found (Wilson 95 %)", ylim=(-0.05, 1.08))
    axes[1, 0].set(ylabel="kernels selected,\nmean ± 1 std", ylim=(0, settings.p + 1))
    legend_below(canvas, axes[0, 0], 3)


FIGURE = Figure(
    title="Support recovery over tasks, observations and noise",
    caption="Not in the paper. Theorem 4.3 says that J* is contained in the learned support "
    "with high probability.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    claims=(
        Claim("λ = 0.03: smallest rate of finding all, σ in {0.01, 0.1, 0.5}", "found 0.03", 0.97),
        Claim("λ of the theorem: the same", "found theorem", 0.97),
        Claim("λ = 0.03: smallest rate of finding exactly J*", "exact 0.03", 0.93, said=False),
        Claim("λ of the theorem: the same", "exact theorem", 0.93, said=False),
        Claim(
            "one λ per kernel (our default): smallest rate of finding all, the same σ",
            "found self-normalized",
            0.97,
            said=False,
        ),
        Claim(
            "one λ per kernel (our default): rate of finding all, σ = 0.01",
            "found self-normalized, σ = 0.01",
            0.97,
            said=False,
        ),
        Claim(
            "one λ per kernel: rate of finding all at the largest noise, where recovery fails",
            "found self-normalized, loudest",
            said=False,
        ),
        Claim(
            "not sparse for fewer points than kernels: selected at n = 10, λ = 0.03",
            "size at n = 10 0.03",
            9,
            said=False,
        ),
    ),
    size=(9, 4.8),
    comment="At σ = 0.5 a part of a function is about four times the noise, at σ = 4 half of it: "
    "the last three noises show where recovery ends. At σ = 0.5 the fixed λ = 0.03 lies below "
    "what the theorem asks for, and a kernel "
    "too many is selected now and then: finding exactly J* is at the edge of its bound (with 100 "
    "runs it was 0.92; the number of runs was then raised to 300). Counted against the kernels "
    "that the tasks have shown: with one or two tasks these are fewer than J*. With |P_j| ≤ 1 "
    "(literal), λ = 0.03 is far above what the data allow and loses the support, and the "
    "functions themselves are smaller by √(2j + 1), so that the noise hides them earlier; one λ "
    "per kernel still finds them all at the noise of the paper.",
)
