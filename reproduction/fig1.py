"""Figure 1: from past tasks to a kernel to decisions, one instance from end to end."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure as Canvas

from metakel.charts import LEARNED, SERIES, TRUTH
from metakel.plots import tidy
from reproduction.drawing import estimate, observations, one_run, weights_label
from reproduction.figure import Claim, Figure, Rows, Table
from reproduction.play import PAPER_RULE, band_after, play_paper
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import domain, instance, objective

SETTINGS = ExperimentSettings(runs=10, horizon=15, grid=201)
QUICK = replace(SETTINGS, runs=3)

TASKS = 3


def run_once(settings: ExperimentSettings, streams: Streams) -> Rows:
    """Some past tasks, the weights learned from all of them, and a new task optimised with them."""
    drawn = instance(settings, streams)
    Z = domain(settings)
    f = objective(settings, drawn.true, Z, streams)
    kernel = drawn.learn().kernel
    game = play_paper(settings, kernel, Z, f, streams)
    t = settings.horizon - 1
    mean, width = band_after(settings, kernel, Z, game, t)
    sign = settings.reading.sign
    rows: Rows = []
    for s in range(TASKS):
        task = drawn.history[s]
        pairs = zip(task.X[:, 0].tolist(), task.y.tolist(), strict=True)
        rows += [{"part": f"task {s + 1}", "x": x, "value": y, "other": 0.0} for x, y in pairs]
    for j in range(settings.p):
        weights = float(kernel.eta[j]), float(drawn.true.eta[j])
        rows.append({"part": "eta", "x": j + 1.0, "value": weights[0], "other": weights[1]})
    for i, x in enumerate(Z[:, 0].tolist()):
        rows.append({"part": "f", "x": x, "value": float(sign * f[i]), "other": 0.0})
        rows.append(
            {"part": "band", "x": x, "value": float(sign * mean[i]), "other": float(width[i])}
        )
    for i, index in enumerate(game.queries[:t]):
        rows.append(
            {
                "part": "observed",
                "x": float(Z[index, 0]),
                "value": float(sign * game.y[i]),
                "other": 0.0,
            }
        )
    regret = game.regrets()["simple"][t] / (f.max() - f.min())
    return [*rows, {"part": "regret", "x": 0.0, "value": float(regret), "other": 0.0}]


def measure(table: Table) -> dict[str, float]:
    """Whether the chain works from end to end."""
    eta = table[table["part"] == "eta"]
    right = (eta["value"] > 0) == (eta["other"] > 0)
    return {
        "kernels rightly kept or dropped": float(right.mean()),
        "simple regret / range": float(table[table["part"] == "regret"]["value"].mean()),
    }


def draw(table: Table, settings: ExperimentSettings, canvas: Canvas) -> None:
    """Past tasks, weights, new task."""
    one = one_run(table)
    past, learned, new = canvas.subplots(1, 3, gridspec_kw={"wspace": 0.12})
    for s, marker in zip(range(1, TASKS + 1), "o^s", strict=True):
        task = one[one["part"] == f"task {s}"]
        marks = {"marker": marker, "markersize": 3, "linestyle": ""}
        past.plot(task["x"], task["value"], color=SERIES[s].color, label=f"task {s}", **marks)
    past.set(title=f"past tasks ({TASKS} of {settings.m})", xlabel="x", ylabel="y")
    eta = one[one["part"] == "eta"]
    for shift, column, style, label in (
        (-0.2, "value", LEARNED, "$\\hat{k}$"),
        (0.2, "other", TRUTH, "$k^*$"),
    ):
        learned.bar(eta["x"] + shift, eta[column], width=0.4, color=style.color, label=label)
    learned.set(
        title="learned kernel", xlabel="base kernel j", ylabel=weights_label(settings.reading.scale)
    )
    learned.margins(y=0.3)  # room for the legend
    f, spread = one[one["part"] == "f"], one[one["part"] == "band"]
    x, mean, width = (spread[c].to_numpy() for c in ("x", "value", "other"))
    estimate(new, x, f["value"].to_numpy(), mean, width, label="confidence band")
    seen = one[one["part"] == "observed"]
    observations(new, seen["x"], seen["value"], label="observed")
    new.set(title=f"a new task after {settings.horizon - 1} steps", xlabel="x", ylabel="f(x)")
    for ax in (past, learned, new):
        ax.legend()
        tidy(ax)


FIGURE = Figure(
    title="From past tasks to a kernel to decisions",
    caption="Overview of the described framework with k* as the true kernel function and k̂ as "
    "the solution to Meta-KeL.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    rule=PAPER_RULE,
    claims=(
        Claim(
            "k̂ keeps the right base kernels: fraction rightly kept or dropped",
            "kernels rightly kept or dropped",
            0.95,
        ),
        Claim(
            "a new task is solved in 15 steps: mean simple regret / range of f",
            "simple regret / range",
            0,
            0.02,
            False,
        ),
    ),
    size=(10, 3.2),
    comment="The paper's overview is a diagram; this is the same chain run for real.",
)
