"""Figure 2: the spaces of the true, the learned and the full kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import FancyBboxPatch

from metakel.charts import ALARM, BAND_OPACITY
from metakel.plots import tidy
from reproduction.drawing import STYLES, one_run, weights_label
from reproduction.figure import Claim, Figure, Rows, Table
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import instance, new_coefficients, norm_in

# Fewer points than in the other figures, so that k-hat is larger than k* and the three differ.
SETTINGS = ExperimentSettings(runs=50, n=12, fresh=True)
QUICK = replace(SETTINGS, runs=10)


def run_once(settings: ExperimentSettings, streams: Streams) -> Rows:
    """The weights of the three kernels, and the norm of a new function in each space."""
    drawn = instance(settings, streams)
    beta = new_coefficients(settings, drawn.true, streams)
    return [
        {
            "kernel": name,
            "j": j + 1,
            "eta": float(kernel.eta[j]),
            "norm": norm_in(kernel, drawn.true, beta),
        }
        for name, kernel in drawn.kernels().items()
        for j in range(settings.p)
    ]


def measure(table: Table) -> dict[str, float]:
    """How often the spaces are nested, and how large they are."""
    active = table.assign(active=table["eta"] > 0).pivot(
        index=["draw", "run", "j"], columns="kernel", values="active"
    )
    runs = active.groupby(["draw", "run"])
    missed = (active["true"] & ~active["learned"]).groupby(["draw", "run"]).any()
    size = runs.sum().mean()
    norms = table.drop_duplicates(["draw", "run", "kernel"]).pivot(
        index=["draw", "run"], columns="kernel", values="norm"
    )
    ratio = norms["full"] / norms["true"]
    return {
        "nested": float(1 - missed.mean()),
        "dimension learned": float(size["learned"]),
        "dimension full": float(size["full"]),
        "largest norm full/true": float(ratio.max()),
        "norm learned/true": float((norms["learned"] / norms["true"]).median()),
    }


def draw(table: Table, settings: ExperimentSettings, canvas: Canvas) -> None:
    """Nested boxes with the base kernels in them; the weights on the right."""
    one = one_run(table)
    eta = {
        name: one[one["kernel"] == name].set_index("j")["eta"]
        for name in ("true", "learned", "full")
    }
    inner = [j for j in eta["true"].index if eta["true"][j] > 0 and eta["learned"][j] > 0]
    middle = [j for j in eta["learned"].index if eta["learned"][j] > 0 and j not in inner]
    missed = [j for j in eta["true"].index if eta["true"][j] > 0 and j not in inner]
    outer = [j for j in eta["full"].index if j not in (*inner, *middle, *missed)]
    left, right = canvas.subplots(1, 2, width_ratios=(1.1, 1))
    boxes = (
        ("full", "$H(k_{full})$", 0.0),
        ("learned", "$H(\\hat{k})$", 0.9),
        ("true", "$H(k^*)$" + (", as far as found" if missed else ""), 1.8),
    )
    for (name, label, edge), members in zip(boxes, (outer, middle, inner), strict=True):
        box = FancyBboxPatch(
            (edge, edge * 0.8),
            8 - 2 * edge,
            5.6 - 1.6 * edge,
            boxstyle="round,pad=0.05",
            facecolor=STYLES[name].color,
            alpha=BAND_OPACITY,
            edgecolor=STYLES[name].color,
        )
        left.add_patch(box)
        left.text(
            edge + 0.15, 5.55 - edge * 0.8 - 0.38, label, fontsize=9, color=STYLES[name].color
        )
        text = _listed(members) or "(none more)"
        where = 4, edge * 0.8 + (0.3 if name != "true" else 1.2)
        left.text(*where, text, fontsize=7 if len(members) < 14 else 6, ha="center", va="center")
    if missed:
        text = f"in $k^*$, but missed by $\\hat{{k}}$: {_listed(missed)}"
        left.text(7.8, 5.17, text, fontsize=8, ha="right", color=ALARM.color)
    left.set(xlim=(-0.2, 8.2), ylim=(-0.2, 5.8))
    left.axis("off")
    for shift, name in zip((-0.27, 0.0, 0.27), eta, strict=True):
        right.bar(
            eta[name].index + shift, eta[name], width=0.27, color=STYLES[name].color, label=name
        )
    right.set_xticks([1, 5, 10, 15, 20])
    right.set(xlabel="base kernel j", ylabel=weights_label(settings.reading.scale))
    right.legend(labels=["$k^*$", "$\\hat{k}$", "$k_{full}$"])
    tidy(right)


def _listed(members: list[int]) -> str:
    return ", ".join(f"P{j}" for j in members)


FIGURE = Figure(
    title="The spaces of the true, the learned and the full kernel",
    caption="The oracle H_k*, the meta-learned H_k̂ and the hand-picked H_kfull hypothesis "
    "spaces (informal): each is contained in the next.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    claims=(
        Claim("H_k* is contained in H_k̂: fraction of runs", "nested", 0.9),
        Claim(
            "H_k̂ is smaller than H_kfull: mean number of base kernels in k̂, of 20",
            "dimension learned",
            5,
            15,
        ),
        Claim(
            "the norm in H_kfull is at most √20 times that in H_k* (printed: 20 times)",
            "largest norm full/true",
            0,
            float(np.sqrt(20)),
            False,
        ),
    ),
    size=(9, 3.6),
    comment="Drawn from a real k*, with n = 12 points per task instead of 50: with 50, k̂ finds "
    "J* exactly and the two inner boxes are one. Where a weight of k* is tiny (they are uniform "
    "draws), its kernel is missed now and then.",
)
