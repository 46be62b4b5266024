"""Figure 9: how GP-UCB with the learned kernel samples the domain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from matplotlib.figure import Figure as Canvas

from metakel.plots import tidy
from reproduction.drawing import estimate, observations, one_run
from reproduction.figure import Claim, Figure, Rows, Table, ratio
from reproduction.play import PAPER_RULE, band_after, play_paper
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import domain, instance, objective


@dataclass(frozen=True)
class Trace(ExperimentSettings):
    """Figure 9: the times that are shown."""

    times: tuple[int, ...] = (5, 55)


SETTINGS = Trace(runs=20, horizon=56, grid=201)
QUICK = replace(SETTINGS, runs=4)

SHOWN = 1
ROOT_RATE = sqrt(SETTINGS.times[0] / SETTINGS.times[1])


def run_once(settings: Trace, streams: Streams) -> Rows:
    """One optimisation; at the grid, f, mean and half-width at each of the times.

    In the sign of the problem: f is minimised where the reading says so.
    """
    drawn = instance(settings, streams)
    Z = domain(settings)
    f = objective(settings, drawn.true, Z, streams)
    kernel = drawn.learn().kernel
    game = play_paper(settings, kernel, Z, f, streams)
    sign = settings.reading.sign
    rows: Rows = []
    for t in settings.times:
        mean, width = band_after(settings, kernel, Z, game, t)
        seen = np.bincount(game.queries[:t], minlength=len(Z))
        for i in range(len(Z)):
            rows.append(
                {
                    "t": t,
                    "x": float(Z[i, 0]),
                    "f": float(sign * f[i]),
                    "mean": float(sign * mean[i]),
                    "width": float(width[i]),
                    "seen": int(seen[i]),
                    "gap": float(f.max() - f[i]),
                }
            )
    return rows


def measure(table: Table) -> dict[str, float]:
    """How the estimate and the band change, and how close to the optimum the later points are."""
    runs = [_changes(one) for _, one in table.groupby(["draw", "run"])]
    part = {key: np.array([run[key] for run in runs]) for key in runs[0]}
    return {
        **ratio("error late/early", part["error late"], part["error early"]),
        **ratio("width late/early", part["width late"], part["width early"]),
        **ratio("width late/early at the optimum", part["best late"], part["best early"]),
        **ratio("regret of later points / range", part["later"], part["range"]),
        **ratio("regret of early points / range", part["first"], part["range"]),
        "covered": float(part["covered"].mean()),
    }


def _changes(one: Table) -> dict[str, float]:
    """The same for one run."""
    early, late = (one[one["t"] == t] for t in (one["t"].min(), one["t"].max()))
    gap, width = late["gap"].to_numpy(), [each["width"].to_numpy() for each in (early, late)]
    first = early["seen"].to_numpy()
    later = late["seen"].to_numpy() - first
    error = (one["f"] - one["mean"]).abs()
    return {
        "error early": float(np.sqrt(np.square(early["f"] - early["mean"]).mean())),
        "error late": float(np.sqrt(np.square(late["f"] - late["mean"]).mean())),
        "width early": float(width[0].mean()),
        "width late": float(width[1].mean()),
        "best early": float(width[0][gap.argmin()]),
        "best late": float(width[1][gap.argmin()]),
        "first": float(first @ gap / first.sum()),
        "later": float(later @ gap / later.sum()),
        "range": float(gap.max()),
        "covered": float((error <= one["width"]).mean()),
    }


def draw(table: Table, settings: Trace, canvas: Canvas) -> None:
    """Function, band and points of one run."""
    one = one_run(table, SHOWN)
    axes = np.atleast_1d(canvas.subplots(1, len(settings.times), sharey=True))
    for ax, t in zip(axes, settings.times, strict=True):
        now = one[one["t"] == t]
        drawn = (now[column].to_numpy() for column in ("x", "f", "mean", "width"))
        estimate(ax, *drawn, label="confidence band of $\\hat{k}$")
        seen = now[now["seen"] > 0]
        sizes = 12 + 3 * seen["seen"].to_numpy()
        observations(ax, seen["x"], seen["f"], sizes, label="observed (area: how often)")
        ax.set(title=f"after {t} observations", xlabel="x")
        tidy(ax)
    axes[0].set_ylabel("f(x)")
    axes[0].legend()


FIGURE = Figure(
    title="How GP-UCB with the learned kernel samples the domain",
    caption="BO (minimization) with Meta-KeL, the state at t = 5 and at t = 55. As the function "
    "estimate improves, the confidence sets rapidly shrink and the learner only samples points "
    "close to the minimum.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    rule=PAPER_RULE,
    claims=(
        Claim(
            "the estimate improves, surely: error of the mean, t = 55 / t = 5",
            "error late/early",
            0,
            1,
        ),
        Claim(
            "the band shrinks, surely: mean width over x, t = 55 / t = 5",
            "width late/early",
            0,
            1,
        ),
        Claim(
            "only points close to the minimum: mean regret after t = 5 / range of f",
            "regret of later points / range",
            0,
            0.05,
        ),
        Claim(
            "rapidly, at the minimum: width at t = 55 / t = 5, against √(5/55)",
            "width late/early at the optimum",
            0,
            ROOT_RATE,
            False,
        ),
        Claim("rapidly, on average over x: the same", "width late/early", 0, ROOT_RATE, False),
        Claim("f lies in the band: fraction of points and times", "covered", 0.99, said=False),
    ),
    comment='The text says that the confidence sets "rapidly shrink", without a number. That they '
    'shrink is tested as it stands. For "rapidly" the yardstick is 1/√t, at which an interval '
    "narrows with plain averaging of t values: from t = 5 to 55 that is √(5/55) = 0.30. At the "
    "minimum, where the later points are, the band is faster; on average over the domain it is "
    "much slower (and here and there it stays as it was), because nothing is sampled there any "
    "more, which is what the learner wants. Both lines are ours; before, one asked for 0.6 on "
    "average over the domain, a guess with no reason behind it, and failed. The band is that of "
    "Theorem 5.1 with ε = 0 and the regulariser 1 + 2/t, ten thousand times the noise variance; "
    "figure `anytime` has sharper ones. The picture shows the second run, whose function is less "
    "symmetric than the first.",
)
