"""The picture of safe-search.md: ``PYTHONPATH=. python docs/guide/pictures_safe.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")
from matplotlib import pyplot as plt

import metakel as mk
from examples.quadrotor import DOMAIN, KD, KP, LIMITS, NOISES, PEAK, Lesson, vehicles

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Peak over the gains, what history allows, and what was flown."""
    rng = np.random.default_rng(0)
    lesson = Lesson.learn(rng)
    vehicle = vehicles(3, rng)[-1]
    flown = mk.replay(lesson.tune, [vehicle], limits=LIMITS, noise_std=NOISES, rng=rng).rows[0]
    shape = (19, 19)
    peak = vehicle.outputs["peak"]
    kp, kd, height = (v.reshape(shape) for v in (KP, KD, peak))
    figure, axes = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
    levels = np.linspace(1.0, 2.0, 11)
    shades = axes.contourf(kp, kd, height, levels=levels, cmap="Greys", alpha=0.6)
    axes.contour(kp, kd, height, levels=[PEAK], colors="C3", linewidths=2)
    inside = lesson.start.contains(DOMAIN.X).reshape(shape).astype(float)
    axes.contour(kp, kd, inside, levels=[0.5], colors="C0", linestyles="--")
    axes.plot(KP[flown], KD[flown], "o", color="C0", ms=6, label="the 20 flights")
    axes.plot(KP[flown[0]], KD[flown[0]], "s", color="C1", ms=8, label="the first flight")
    best = int(np.argmax(np.where(peak <= PEAK, vehicle.y, -np.inf)))
    axes.plot(KP[best], KD[best], "*", color="C2", ms=16, label="best safe gains of this vehicle")
    axes.plot([], [], color="C3", lw=2, label=f"peak of {PEAK}: the limit")
    axes.plot([], [], "--", color="C0", label="above: allowed by past vehicles")
    axes.set(xscale="log", yscale="log", xlabel="proportional gain", ylabel="derivative gain")
    axes.set_xticks([6, 10, 20, 40, 60], ["6", "10", "20", "40", "60"])
    axes.set_yticks([2, 4, 8, 14], ["2", "4", "8", "14"])
    axes.minorticks_off()
    axes.set_title("A vehicle nobody has flown")
    axes.legend(loc="lower right", fontsize=8)
    figure.colorbar(shades, label="peak of the step response")
    figure.savefig(ROOT / "docs" / "img" / "guide" / "quadrotor.png", dpi=120)


if __name__ == "__main__":
    main()
