"""Figure 6, right: tuning GLMNET with a kernel learned from other data sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure as Canvas

from metakel._arrays import Array
from metakel.theory import noise_var_paper
from reproduction.drawing import curves, legend_below
from reproduction.evidence import refitted
from reproduction.figure import Claim, Figure, Rows, Table, ratio
from reproduction.glmnet import TESTS, Learner, TuningSettings, learner, smooth_kernel
from reproduction.play import Model, OnGrid, Trajectory, play
from reproduction.settings import Streams

SETTINGS = TuningSettings(runs=10, draws=TESTS, p=500, m=24)
QUICK = replace(SETTINGS, runs=1, draws=4, horizon=40)

GOOD = 0.01  # of AUC below the best configuration


def run_once(settings: TuningSettings, streams: Streams) -> Rows:
    """Tune one test task with every kernel, and at random; regrets in units of AUC."""
    made = learner(settings, streams.seed, streams.run)
    task = made.tests[streams.draw]
    rng = streams.rng("objective")
    chosen = rng.choice(task.n, min(settings.configurations, task.n), replace=False)
    Z, f = task.X[chosen], (task.y[chosen] - made.center) / made.spread
    noise_var = _regularizer(settings)
    models: dict[str, Model] = {
        "learned": OnGrid(made.learned, Z),
        "full": OnGrid(made.full, Z),
        "se": OnGrid(smooth_kernel(made.smooth), Z),
        "se-fit": refitted(Z, lengthscale=made.smooth, noise_var=settings.noise_var),
    }
    played = {
        name: play(
            model,
            f,
            nu=np.full(settings.horizon, settings.nu),
            noise_var=noise_var,
            noise_std=0.0,  # the values of a table
            noise=streams.rng("noise"),
            ties=streams.rng("ties"),
        )
        for name, model in models.items()
    }
    return _rows(settings, played, f, made, streams, task.name)


def _regularizer(settings: TuningSettings) -> Array:
    steps = np.arange(1, settings.horizon + 1)
    if settings.reading.centered:
        return np.full(len(steps), settings.noise_var)
    return np.array([noise_var_paper(t=int(t)) for t in steps])


def _rows(
    settings: TuningSettings,
    played: dict[str, Trajectory],
    f: Array,
    made: Learner,
    streams: Streams,
    name: str,
) -> Rows:
    regrets = {name: game.regrets() for name, game in played.items()}
    visited = streams.rng("points").permutation(len(f))[: settings.horizon]
    regrets["random"] = {
        "simple": f.max() - np.maximum.accumulate(f[visited]),
        "reg": np.cumsum(f.max() - f[visited]),
    }
    return [
        {
            "task": name,
            "kernel": kernel,
            "t": t + 1,
            "simple": float(made.spread * curves["simple"][t]),
            "reg": float(made.spread * curves["reg"][t]),
            "size": made.learned.active.size,
            "lam": made.lam,
            "lengthscale": made.lengthscale,
            "se lengthscale": made.smooth,
        }
        for kernel, curves in regrets.items()
        for t in range(len(visited))
    ]


def measure(table: Table) -> dict[str, float]:
    """Regrets of k-hat relative to the others, and how long each takes to a good configuration."""
    end = table["t"].max()
    wide = table[table["t"] == end].set_index(["draw", "run", "task", "kernel"])
    reg, simple = wide["reg"].unstack(), wide["simple"].unstack()
    # The same data set is a test task in several splits.
    task = reg.index.get_level_values("task")
    measured = {
        "kernels selected": float(table["size"].mean()),
        "median lam": float(table["lam"].median()),
        "median lengthscale": float(table["lengthscale"].median()),
        "median se lengthscale": float(table["se lengthscale"].median()),
    }
    for other in ("full", "se", "se-fit", "random"):
        measured |= ratio(f"reg learned/{other}", reg["learned"], reg[other], task)
        gain = simple["learned"] - simple[other]
        measured |= ratio(f"final simple learned - {other}", gain, np.ones(len(gain)), task)
    curve = table.groupby(["kernel", "t"])["simple"].mean()
    for name in ("learned", "full", "se", "se-fit", "random"):
        good = curve[name] <= GOOD
        measured[f"steps to good {name}"] = float(good.idxmax()) if good.any() else float(end)
        measured[f"final simple {name}"] = float(simple[name].mean())
    return measured


def draw(table: Table, settings: TuningSettings, canvas: Canvas) -> None:
    """Simple regret with quantiles, cumulative regret with standard errors over tasks and seeds."""
    left, right = canvas.subplots(1, 2)
    curves(left, table, "simple", spread="quantiles")
    curves(right, table, "reg", spread="sem", clusters="task")
    left.set(yscale="log", xlabel="step t", ylabel="simple regret (AUC), mean, 10 to 90 %")
    left.set_ylim(max(table["simple"].mean() / 300, 1e-4), 0.5)
    right.set(xlabel="step t", ylabel="cumulative regret (AUC), mean ± 2 s.e.")
    top = table[(table["kernel"] != "random") & (table["t"] == table["t"].max())]
    right.set_ylim(0, 1.25 * top.groupby("kernel")["reg"].mean().max())
    legend_below(canvas, left, 3)


FIGURE = Figure(
    title="Tuning GLMNET with a kernel learned from other data sets",
    caption="Cumulative regret of GP-UCB, hyper-parameter tuning of GLMNET. Utilizing k̂ "
    "results in a sample-efficient GP-UCB that rapidly approaches an optimal choice of "
    "hyper-parameters, in contrast to the SE kernel, which takes about 50 iterations.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    rule="GP-UCB with the ν and the regulariser of the settings (literal: 1 + 2/t)",
    claims=(
        Claim(
            "less cumulative regret than the squared exponential: k̂ / SE", "reg learned/se", 0, 0.95
        ),
        Claim(
            "less than the squared exponential with refitted hyper-parameters: k̂ / SE refitted",
            "reg learned/se-fit",
            0,
            0.95,
        ),
        Claim("less than k_full: k̂ / k_full", "reg learned/full", 0, 0.95),
        Claim(
            "finds a good configuration rapidly: steps to a mean simple regret of 0.01",
            "steps to good learned",
            0,
            10,
        ),
        Claim(
            "the squared exponential takes about 50 iterations: its steps to the same",
            "steps to good se",
            30,
            70,
        ),
        Claim(
            "ends no further from the optimum than SE: difference of the simple regrets",
            "final simple learned - se",
            high=0.0005,
            said=False,
        ),
        Claim(
            "the same against SE refitted: difference of the simple regrets",
            "final simple learned - se-fit",
            said=False,
        ),
        Claim("λ of k̂, median over the splits (literal: fixed)", "median lam", said=False),
        Claim("lengthscale of k̂, the same", "median lengthscale", said=False),
        Claim("lengthscale of SE, the same", "median se lengthscale", said=False),
        Claim("base kernels selected, of 500: mean", "kernels selected", said=False),
    ),
    size=(9, 4.0),
    comment="Data: a re-computation on public data sets, not the table of Kuehn et al. 2018 "
    "that the paper used (37 tasks, of which 24 are past and 13 new, split by seed; the paper "
    "lists 20 and 13 of 38, and 10 of these 33 are in the bundled table; `--table FILE` runs "
    "on the published one). λ, n, lengthscale, ν and the centring of AUC are not stated in the "
    "paper. Here n = 50 as in its other experiments, ν = 2 and the regulariser 0.01 for all "
    "kernels, values centred and scaled by the past tasks. λ in {0.1, 0.03, 0.01, 0.003} and the "
    "lengthscale in {0.03, 0.1, 0.3, 1} are chosen anew in every split, on its past tasks alone: "
    "those whose k̂ gives past tasks that were left out (three folds) the largest likelihood. The "
    "squared exponential and k_full get their lengthscale in the same way. An earlier version of "
    "this figure fixed λ = 0.03 and lengthscale 0.3 after a look at test tasks; it showed half of "
    "the regret of SE, and less than that of SE refitted. Chosen without that look, k̂ still has "
    "less cumulative regret than SE and k_full, by a smaller margin, and ends nearer to the "
    "optimum than all others; but a squared exponential that is refitted before every step has "
    "less cumulative regret (and stays farther from the optimum: it exploits early). That SE "
    "takes about 50 iterations does not come out: on this table every kernel is within 0.01 of "
    "the best AUC after about ten steps. The literal reading takes AUC as it is with the "
    "regulariser 1 + 2/t, and keeps λ = 0.03 and lengthscale 0.3.",
)
