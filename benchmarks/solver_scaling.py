"""How the cost of a solve grows with tasks m, points n, groups p and their dimension d_j."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.solver_problems import Instance, at_share, sparse_data
from benchmarks.solver_worker import Worker

BASE = {"m": 50, "n": 100, "p": 50, "d_j": 2}
SIZES = {
    "m": [25, 50, 100, 200, 400, 800, 1600],
    "n": [25, 50, 100, 200, 400, 800, 1600],
    "p": [25, 50, 100, 200, 400, 800],
    "d_j": [1, 2, 4, 8, 16, 32],
}
LABELS = {
    "m": "tasks m", "n": "points per task n", "p": "groups p", "d_j": "features per group d_j",
}  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """Median seconds over seeds at each size of one quantity, the others at their `BASE` value."""

    quantity: str
    sizes: list[int]
    seconds: list[float]

    @property
    def slope(self) -> float:
        """Exponent of growth at the large end, where overheads no longer count (last 4 sizes)."""
        return float(np.polyfit(np.log(self.sizes[-4:]), np.log(self.seconds[-4:]), 1)[0])


def random_problem(*, m: int, n: int, p: int, d_j: int, seed: int) -> Instance:
    """Random cosines of two inputs; 5 groups are active, the noise is 0.1, lam 0.1 lambda_max."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (m, 2, n))
    w, b = rng.standard_normal((p * d_j, 2)) / 0.25, rng.uniform(0, 2 * np.pi, p * d_j)
    memory = np.sqrt(2 / d_j) * np.cos(np.matmul(w, x) + b[:, None])
    y = sparse_data(rng, memory, active=5, noise=0.1, dim=d_j)
    return at_share(Instance("scaling", memory, y, p, np.array([np.nan])), 0.1)


def measure_curves(folder: Path, *, seeds: int = 5, repeat: int = 3) -> list[Curve]:
    """Solve problems of every size of every quantity; several seeds, as luck decides the steps."""
    worker, curves = Worker("metakel"), []
    file = folder / "scaling.npz"
    for quantity, sizes in SIZES.items():
        medians = []
        for size in sizes:
            seconds = []
            for seed in range(seeds):
                random_problem(**{**BASE, quantity: size}, seed=seed).save(file)
                worker.load(file)
                seconds.append(min(worker.fit(1e-10, repeat=repeat, limit=60).seconds))
            medians.append(statistics.median(seconds))
        curves.append(Curve(quantity, sizes, medians))
    worker.close()
    return curves


def draw(curves: list[Curve], file: Path) -> None:
    """Times against sizes, both logarithmic; the legend holds the measured slopes."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(9, 4.4), layout="constrained")
    for curve, marker in zip(curves, "osD^", strict=True):
        label = f"{LABELS[curve.quantity]}: slope {curve.slope:.2f}"
        milliseconds = 1e3 * np.array(curve.seconds)
        ax.loglog(curve.sizes, milliseconds, marker=marker, markersize=5, label=label)
    fixed = ", ".join(f"{name} = {value}" for name, value in BASE.items())
    ax.set_xlabel("size of the varied quantity")
    ax.set_ylabel("time of one solve, Gram included (ms)")
    ax.set_title(f"Growth of the solve to gap 1e-10; otherwise {fixed}", fontsize=10)
    ax.grid(which="both", alpha=0.25)
    ax.legend(title="slope over the 4 largest sizes", loc="upper left", bbox_to_anchor=(1, 1))
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def as_lines(curves: list[Curve]) -> str:
    """One line a quantity: the measured times and the exponent."""
    lines = []
    for curve in curves:
        times = ", ".join(
            f"{size}: {1e3 * t:.3g}" for size, t in zip(curve.sizes, curve.seconds, strict=True)
        )
        lines.append(f"- {LABELS[curve.quantity]}: slope {curve.slope:.2f} (ms at {times})")
    return "\n".join(lines)
