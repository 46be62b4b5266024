"""Figure 7: the group lasso behind Meta-KeL, as one regression on a block-diagonal matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from metakel._arrays import Array
from metakel.charts import ALARM, SERIES
from metakel.data import History
from metakel.kernels import KernelDictionary, random_fourier
from metakel.learn import EtaWeights, learn_kernel
from reproduction.drawing import one_run
from reproduction.figure import Claim, Figure, Rows, Table
from reproduction.settings import ExperimentSettings, Streams

# Three tasks, few points and two features per kernel, to be seen by eye.
SETTINGS = ExperimentSettings(runs=10, m=3, n=6, p=4, noise_std=0.1, lam=0.15)
QUICK = replace(SETTINGS, runs=4)


def run_once(settings: ExperimentSettings, streams: Streams) -> Rows:
    """Entries of the block-diagonal Phi, y and beta; and how well beta solves that regression."""
    base = random_fourier(settings.p, 1, lengthscales=0.4, rng=streams.rng("features"))
    history = _history(settings, base, streams)
    weights = EtaWeights("raw")
    learned = learn_kernel(
        history, base, lam=settings.lam, noise_std=settings.noise_std, weights=weights
    )
    Phi, y = stacked(history, base)
    beta = learned.solution.beta
    assert beta is not None  # the base kernels have features
    gap = duality_gap(Phi, y, beta, base, settings.lam)
    rows: Rows = [
        {"part": "Phi", "row": i, "column": j, "value": float(Phi[i, j])}
        for i, j in np.argwhere(Phi != 0)
    ]
    rows += [{"part": "y", "row": i, "column": 0, "value": float(v)} for i, v in enumerate(y)]
    rows += [
        {"part": "beta", "row": i, "column": 0, "value": float(v)}
        for i, v in enumerate(beta.ravel())
    ]
    rows += [
        {"part": "eta", "row": j, "column": 0, "value": float(v)}
        for j, v in enumerate(learned.kernel.eta)
    ]
    return [*rows, {"part": "gap", "row": 0, "column": 0, "value": gap}]


def _history(settings: ExperimentSettings, base: KernelDictionary, streams: Streams) -> History:
    rng = streams.rng("history")
    pairs = []
    for _ in range(settings.m):
        X = rng.uniform(-1, 1, size=(settings.n, 1))
        w = np.zeros(base.dim)
        w[base.groups[1]] = rng.standard_normal(2)  # the second kernel is the true one
        pairs.append(
            (X, base.features(X) @ w + settings.noise_std * rng.standard_normal(settings.n))
        )
    return History.from_pairs(pairs)


def stacked(history: History, base: KernelDictionary) -> tuple[Array, Array]:
    """(N, m d) block-diagonal matrix and (N,) values of Eq. 8, which the solver never forms."""
    ends = np.cumsum(history.sizes)
    Phi = np.zeros((history.total, history.m * base.dim))
    for s, task in enumerate(history):
        columns = slice(s * base.dim, (s + 1) * base.dim)
        Phi[ends[s] - task.n : ends[s], columns] = base.features(task.X)
    return Phi, np.concatenate([task.y for task in history])


def duality_gap(Phi: Array, y: Array, beta: Array, base: KernelDictionary, lam: float) -> float:
    """How far (m, d) beta can be from the minimum of the big regression (Eq. 8), over ||y||^2/N."""
    N = len(y)
    r = y - Phi @ beta.ravel()
    slope = (2 / N * Phi.T @ r).reshape(beta.shape)
    pulls = [float(np.linalg.norm(slope[:, group])) for group in base.groups]
    sizes = [float(np.linalg.norm(beta[:, group])) for group in base.groups]
    primal = r @ r / N + lam * sum(sizes)
    most = lam / max(pulls) if max(pulls) > 0 else np.inf  # the dual point is feasible up to it
    share = np.clip(y @ r / (r @ r), -most, most)
    dual = (2 * share * (y @ r) - share**2 * (r @ r)) / N
    return float((primal - dual) / (y @ y / N))


def measure(table: Table) -> dict[str, float]:
    """How well the solution of m small problems solves the big one."""
    eta = table[table["part"] == "eta"]
    shared = eta.groupby("row")["value"].mean()
    return {
        "largest gap": float(table[table["part"] == "gap"]["value"].max()),
        "share of the true kernel": float(shared[1] / shared.sum()),
    }


def draw(table: Table, settings: ExperimentSettings, canvas: Canvas) -> None:
    """y = Phi beta + noise, with one task and one kernel marked."""
    one = one_run(table)
    m, n, d = settings.m, settings.n, 2 * settings.p
    parts = {"y": (m * n, 1), "Phi": (m * n, m * d), "beta": (m * d, 1)}
    titles = {"y": "y", "Phi": "Φ: one block per task", "beta": "$\\hat{\\beta}$"}
    axes = canvas.subplots(1, 3, width_ratios=(1, 9, 1))
    for ax, (part, shape) in zip(axes, parts.items(), strict=True):
        entries = one[one["part"] == part]
        image = np.full(shape, np.nan)
        image[entries["row"], entries["column"]] = entries["value"]
        norm = TwoSlopeNorm(0, -np.nanmax(np.abs(image)) - 1e-9, np.nanmax(np.abs(image)) + 1e-9)
        ax.imshow(image, cmap="RdBu", norm=norm, aspect="auto", interpolation="nearest")
        ax.set_title(titles[part])
        ax.set_xticks([])
        ax.set_yticks([])
    _mark(axes, m, n, d)
    axes[1].set_xlabel(
        f"columns: {settings.p} kernels × 2 features for each of {m} tasks; green frame: one task, "
        "red frames: kernel k₂ in all tasks\n"
        "cells: blue positive, red negative, white 0, darkest the largest of each part",
        fontsize=8,
    )
    axes[0].set_ylabel(f"{m} tasks × {n} observations", fontsize=8)


def _mark(axes: Array, m: int, n: int, d: int) -> None:
    frame: dict[str, Any] = {"fill": False, "linewidth": 2, "clip_on": False}
    task, group = ({**frame, "edgecolor": style.color} for style in (SERIES[2], ALARM))
    axes[0].add_patch(Rectangle((-0.5, -0.5), 1, n, **task))
    axes[1].add_patch(Rectangle((-0.5, -0.5), d, n, **task))
    axes[2].add_patch(Rectangle((-0.5, -0.5), 1, d, **task))
    for s in range(m):
        axes[1].add_patch(Rectangle((s * d + 1.5, s * n - 0.5), 2, n, **group))
        axes[2].add_patch(Rectangle((-0.5, s * d + 1.5), 1, 2, **group))


FIGURE = Figure(
    title="The group lasso behind Meta-KeL",
    caption="Visual guide for the group lasso formulation: the features of each task come "
    "together on the diagonal of the multi-task feature matrix, and the coefficients of kernel "
    "k_j in all tasks form a group.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    claims=(
        Claim(
            "the coefficients from one small matrix per task solve this regression: largest "
            "duality gap / (‖y‖²/N), against the tolerance of the solver",
            "largest gap",
            high=1e-10,
            said=False,
        ),
        Claim(
            "the true kernel gets most of the weight: its share",
            "share of the true kernel",
            0.5,
            1.0,
            False,
        ),
    ),
    readings=("resolved",),
    size=(9, 4.2),
    comment="Drawn from real features, values and coefficients. The big matrix is formed for "
    "this picture only: tasks are coupled through the norms of the groups alone, so the solver "
    "works with one small matrix per task.",
)
