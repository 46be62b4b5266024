"""The pictures of decide.md: ``python docs/guide/pictures_decide.py``.

Runs the code of the page, so that they show the very objects that the page talks about.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from metakel import plots
from metakel.charts import ALARM, REFERENCE, TRUTH

HERE = Path(__file__).parent
PICTURES = HERE.parent / "img" / "guide"


def names_of_the_page() -> dict[str, Any]:
    """Everything that the Python blocks of decide.md define."""
    page = (HERE / "decide.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "decide"}
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)  # the page saves a file
        for code in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M):
            exec(code, names)
        os.chdir(before)
    return names


def one_legend(figure: Figure) -> None:
    """One legend below all panels, with everything that any of them shows."""
    shown = {}
    for ax in figure.axes:
        ax.get_legend().remove()
        ax.set_xticks(np.linspace(-1, 1, 5))
        handles, labels = ax.get_legend_handles_labels()
        # Numbers of observations differ by panel and stand in the titles.
        names = ["observations" if "observation" in label else label for label in labels]
        shown.update(zip(names, handles, strict=True))
    figure.legend(
        shown.values(), shown, loc="outside lower center", ncols=5, fontsize=9, frameon=False
    )


def draw_band(page: dict[str, Any]) -> Figure:
    """The band of the page, after the first few of its results."""
    figure, axes = plt.subplots(
        2, 2, figsize=(9, 6), sharex=True, sharey=True, layout="constrained"
    )
    batches = page["band"].told.batches
    for ax, t in zip(axes.flat, (0, 2, 5, 12), strict=True):
        band = page["band"].fresh()
        for batch in batches[:t]:
            band.tell(batch.X, batch.y, batch.noise_std)
        plots.band(band, page["Z"], ax=ax, truth=page["f"](page["Z"]))
        ax.set_title(f"after {t} results", fontsize=11)
        ax.label_outer()
    one_legend(figure)
    return figure


def draw_alarm(page: dict[str, Any]) -> Figure:
    """What the surprising task does to a band that ignores the alarm, and to one that listens."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.9), sharey=True, layout="constrained")
    truth = page["surprise"](page["Z"])
    for ax, on_alarm in zip(axes, ("ignore", "widen"), strict=True):
        band = page["watch"](on_alarm)
        plots.band(band, page["Z"], ax=ax, truth=truth)
        lower, upper = band.interval(page["Z"])
        outside = (truth < lower) | (truth > upper)
        if outside.any():
            label = "function outside of the band"
            places = page["Z"][outside]
            ax.plot(places, truth[outside], "o", color=ALARM.color, markersize=2.4, label=label)
        share = f"outside at {np.mean(outside):.0%} of the points" if outside.any() else "inside"
        ax.set_title(f'on_alarm="{on_alarm}", 40 results: {share}', fontsize=11)
        ax.set_ylim(-6, 5)
        ax.label_outer()
    one_legend(figure)
    return figure


def draw_certificate(page: dict[str, Any]) -> Figure:
    """The band when the optimizer stops, and the way there."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    optimizer, f, Z = page["optimizer"], page["f"], page["Z"]
    plots.band(optimizer.model.sequence, Z, ax=left, truth=f(Z))
    left.set_title(f"when it stops, after {optimizer.t} results", fontsize=11)
    distance = np.maximum(f(Z).max() - np.maximum.accumulate(f(optimizer.X)), 1e-3)
    label = "true distance to the optimum (unknown in practice)"
    right.step(np.arange(1, optimizer.t + 1), distance, where="post", label=label, **TRUTH.look)
    right.axhline(optimizer.stop_at, label="stop_at", linewidth=1.2, **REFERENCE.look)
    right.set(yscale="log", xlabel="observations")
    right.set_title("the path to it", fontsize=11)
    for ax in (left, right):
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=8.5, frameon=False)
    return figure


def main() -> None:
    page = names_of_the_page()
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, draw in (
        ("band", draw_band),
        ("alarm", draw_alarm),
        ("certificate", draw_certificate),
    ):
        draw(page).savefig(PICTURES / f"{name}.png", dpi=120)


if __name__ == "__main__":
    main()
