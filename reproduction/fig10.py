"""Figure 10: regret and sparsity against lambda."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas

from metakel import plots
from metakel.charts import REFERENCE, TRUTH
from metakel.grouplasso import lambda_max
from metakel.plots import tidy
from reproduction.drawing import LABELS
from reproduction.figure import Claim, Figure, Rows, Table
from reproduction.play import PAPER_RULE, play_paper
from reproduction.settings import ExperimentSettings, Streams
from reproduction.synthetic import domain, instance, objective, theory_lambda


@dataclass(frozen=True)
class LambdaChoice(ExperimentSettings):
    """Figure 10: the lambdas."""

    lams: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)


SETTINGS = LambdaChoice(runs=50)
QUICK = replace(SETTINGS, runs=6, lams=(1e-4, 1e-3, 0.03, 0.1, 1.0))


def run_once(settings: LambdaChoice, streams: Streams) -> Rows:
    """One instance; the final regret for every lambda and for the oracle."""
    drawn = instance(settings, streams)
    Z = domain(settings)
    f = objective(settings, drawn.true, Z, streams)
    oracle = play_paper(settings, drawn.true, Z, f, streams).regrets()
    rows: Rows = [{"lam": 0.0, "mu": float(oracle["mu"][-1]), "reg": float(oracle["reg"][-1])}]
    for lam in settings.lams:
        learned = drawn.learn(lam)
        regrets = play_paper(settings, learned.kernel, Z, f, streams).regrets()
        rows.append(
            {
                "lam": lam,
                "mu": float(regrets["mu"][-1]),
                "reg": float(regrets["reg"][-1]),
                "size": learned.active.size,
                "found": bool(np.isin(drawn.true.active, learned.active).all()),
                "lambda_max": lambda_max(learned.problem),
            }
        )
    return rows


def measure(table: Table) -> dict[str, float]:
    """The numbers of Property E."""
    means = table.groupby("lam")[["mu", "size"]].mean()
    oracle, swept = means["mu"][0.0], means[means.index > 0]
    flat = swept[swept.index <= 0.1]
    sparse = swept[(swept.index >= 1e-3) & (swept.index <= 0.1)]["size"]
    above = table[table["lam"] >= table["lambda_max"].fillna(np.inf)]
    return {
        "mu max/min up to 0.1": float(flat["mu"].max() / flat["mu"].min()),
        "mu below the threshold / oracle": float(flat["mu"].iloc[0] / oracle),
        "mu at the largest lambda / oracle": float(swept["mu"].iloc[-1] / oracle),
        "size at the smallest lambda": float(swept["size"].iloc[0]),
        "smallest size above the threshold": float(sparse.min()),
        "largest size above the threshold": float(sparse.max()),
        "largest size above lambda_max": float(above["size"].max()) if len(above) else 0.0,
    }


def draw(table: Table, settings: LambdaChoice, canvas: Canvas) -> None:
    """Regret on the left, number of selected kernels on the right."""
    left, right = canvas.subplots(1, 2)
    oracle = table[table["lam"] == 0]["mu"]
    swept = table[table["lam"] > 0].groupby("lam")
    lam, mean = np.array(list(swept.groups)), swept["mu"].mean().to_numpy()
    error = 2 * swept["mu"].sem().fillna(0.0).to_numpy()
    marks: dict[str, Any] = {"marker": "o", "markersize": 3}
    plots.curve(lam, mean, mean - error, mean + error, label=LABELS["learned"], ax=left, **marks)
    left.axhline(oracle.mean(), label=LABELS["true"], linewidth=1.2, **TRUTH.look)
    left.set_ylabel(f"inference regret at T = {settings.horizon}\n(units of f; mean ± 2 s.e.)")
    left.set_yscale("log")
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("")
    decades = np.log10(mean[mean > 0])
    left.set_ylim(10 ** np.floor(decades.min()), 10 ** np.ceil(decades.max()) * 1.3)
    size, spread = swept["size"].mean().to_numpy(), swept["size"].std().fillna(0.0).to_numpy()
    label = "selected, $|\\hat{J}|$"
    plots.curve(lam, size, size - spread, size + spread, label=label, ax=right, **marks)
    right.axhline(settings.sparsity, label="true, $|J^*|$", linewidth=1.2, **TRUTH.look)
    right.set(ylabel="base kernels, mean ± 1 std", ylim=(0, settings.p + 1))
    right.set_yticks(range(0, settings.p + 1, 5))
    threshold = theory_lambda(settings)
    for ax in (left, right):
        limit = f"Theorem 4.3: λ ≥ {threshold:.4f}"
        ax.axvline(threshold, label=limit, linewidth=1.2, **REFERENCE.look)
        ax.set_xscale("log")
        ax.set_xlabel("λ")
        tidy(ax)
        ax.legend()


FIGURE = Figure(
    title="The choice of λ",
    caption="For m = n = 50 and p = 20, Theorem 4.3 requires that λ > 0.001. For λ that "
    "satisfies this condition, the particular choice of its value does not affect performance "
    "severely. This is only the case if λ satisfies the condition.",
    settings=SETTINGS,
    quick=QUICK,
    run_once=run_once,
    measure=measure,
    draw=draw,
    rule=PAPER_RULE,
    claims=(
        Claim(
            "little effect: largest / smallest mean regret, λ from 1e-4 to 0.1",
            "mu max/min up to 0.1",
            1,
            1.10,
        ),
        Claim(
            "only above the threshold: regret at λ = 1e-4 (a tenth of it) / oracle is clearly "
            "larger",
            "mu below the threshold / oracle",
            1.25,
        ),
        Claim(
            "dense below the threshold: base kernels at λ = 1e-4",
            "size at the smallest lambda",
            15,
            20,
            False,
        ),
        Claim(
            "sparse above: fewest base kernels, λ from 1e-3 to 0.1",
            "smallest size above the threshold",
            4.7,
            5.3,
            False,
        ),
        Claim(
            "sparse above: most base kernels, λ from 1e-3 to 0.1",
            "largest size above the threshold",
            4.7,
            5.3,
            False,
        ),
        Claim(
            "the harm is at large λ: regret at λ = 1 / oracle",
            "mu at the largest lambda / oracle",
            5,
            said=False,
        ),
        Claim(
            "from λ_max on the kernel is empty: base kernels",
            "largest size above lambda_max",
            0,
            0,
            False,
        ),
    ),
    comment="The first sentence holds. The last one does not: below the threshold the kernel is "
    "dense, but the spurious weights are tiny and the regret is that of the oracle. What harms "
    "is a λ that is too large, which the theorem does not bound.",
)
