"""Pictures of safe-search.md and contexts.md.

``PYTHONPATH=. python docs/guide/pictures_safe.py``
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")
from matplotlib import pyplot as plt

import metakel as mk
from examples.quadrotor import DOMAIN, KD, KP, PEAK, Lesson, vehicles
from metakel.charts import LEARNED, TRUTH
from metakel.space import Float, Space

IMAGES = Path(__file__).parents[1] / "img" / "guide"


def quadrotor() -> None:
    """Peak over the gains, what history allows, and what was flown."""
    rng = np.random.default_rng(0)
    lesson = Lesson.learn(rng)
    vehicle = vehicles(3, rng)[-1]
    flown = lesson.tune(vehicle, rng)
    shape = (19, 19)
    peak = vehicle.peak
    kp, kd, height = (v.reshape(shape) for v in (KP, KD, peak))
    figure, axes = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
    edge = {"clip_on": False, "zorder": 3}  # gains at the edge are tried, too
    levels = np.linspace(1.0, 2.0, 11)
    shades = axes.contourf(kp, kd, height, levels=levels, cmap="Greys", alpha=0.6)
    axes.contour(kp, kd, height, levels=[PEAK], colors="C3", linewidths=2)
    inside = lesson.start.contains(DOMAIN.X).reshape(shape).astype(float)
    axes.contour(kp, kd, inside, levels=[0.5], colors="C0", linestyles="--")
    axes.plot(KP[flown], KD[flown], "o", color="C0", ms=6, **edge, label="the 20 flights")
    axes.plot(KP[flown[0]], KD[flown[0]], "s", color="C1", ms=8, **edge, label="the first flight")
    best = int(np.argmax(np.where(peak <= PEAK, vehicle.y, -np.inf)))
    axes.plot(
        KP[best], KD[best], "*", color="C2", ms=16, **edge, label="best safe gains of this vehicle"
    )
    axes.plot([], [], color="C3", lw=2, label=f"peak of {PEAK}: the limit")
    axes.plot([], [], "--", color="C0", label="above: allowed by past vehicles")
    axes.set(xscale="log", yscale="log", xlabel="proportional gain", ylabel="derivative gain")
    axes.set_xticks([6, 10, 20, 40, 60], ["6", "10", "20", "40", "60"])
    axes.set_yticks([2, 4, 8, 14], ["2", "4", "8", "14"])
    axes.minorticks_off()
    axes.set_title("A vehicle nobody has flown")
    axes.legend(loc="lower right", fontsize=8)
    figure.colorbar(shades, label="peak of the step response")
    figure.savefig(IMAGES / "quadrotor.png", dpi=120)


def weather() -> None:
    """The supply temperature chosen for every weather, and what it can cost at most."""
    rng, noise_std = np.random.default_rng(0), 0.05
    kernel = mk.KernelSum.uniform(
        mk.kernels.tensor_product(2, 2, scaling="l2", include_constant=True)
    )

    def cost(supply: np.ndarray, outdoor: float) -> np.ndarray:
        missing = (20 - outdoor) - 1.1 * (supply - 20)
        return 0.02 * (supply - outdoor) + 0.0015 * missing**2

    control = mk.GPUCB(
        mk.ConfidenceSequence(kernel, noise_std=noise_std, norm_bound=5.0),
        Space((Float("supply", 25.0, 65.0), Float("outdoor", -15.0, 15.0))),
        minimize=True,
        rng=rng,
    )
    seen = 4 + 7 * np.sin(np.arange(20))
    for outdoor in seen:
        x = control.ask(fixed={"outdoor": outdoor})
        control.tell(x, cost(x["supply"], outdoor) + noise_std * rng.normal())
    outside, supplies = np.linspace(-15, 15, 31), np.linspace(25, 65, 401)
    found = [control.certificate(fixed={"outdoor": z}) for z in outside]
    chosen = np.array([c.x["supply"] for c in found])
    optimum = np.array([supplies[np.argmin(cost(supplies, z))] for z in outside])
    lost = [cost(x, z) - cost(supplies, z).min() for x, z in zip(chosen, outside, strict=True)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    left.plot(outside, optimum, TRUTH.line, color=TRUTH.color, label="best, unknown")
    left.plot(outside, chosen, color=LEARNED.color, label="chosen")
    left.plot(seen, np.full(20, 25.0), "|", color="0.4", ms=10, label="weather seen")
    left.set(xlabel="outdoor temperature", ylabel="supply temperature", title="What to set")
    left.legend(fontsize=8)
    right.plot(outside, [c.regret for c in found], color=LEARNED.color, label="at most (certified)")
    right.plot(outside, lost, TRUTH.line, color=TRUTH.color, label="in fact, unknown")
    right.plot(seen, np.zeros(20), "|", color="0.4", ms=10)
    right.set(xlabel="outdoor temperature", ylabel="cost above the best", title="How good it is")
    right.set_ylim(bottom=0)
    right.legend(fontsize=8)
    figure.savefig(IMAGES / "contexts.png", dpi=120)


if __name__ == "__main__":
    quadrotor()
    weather()
