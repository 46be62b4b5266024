"""The coverage section of TABLES.md: tables in Markdown, and its picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.coverage_results import CELLS, GAMES, PAPER, Results, goals
from benchmarks.coverage_runs import HORIZON
from benchmarks.coverage_worlds import CONTESTANTS, NOISY
from benchmarks.docs import markdown

TIMES = (0, 5, 10, 20, 50)
SAMPLINGS = {"uniform": "uniform points", "ucb": "points where the upper bound is largest"}
SCALINGS = {"sup": "|P_j| <= 1", "l2": "orthonormal polynomials"}
INTRODUCTION = """\
The paper's example: 5 of 20 Legendre kernels, functions of norm B = 10 with coefficients of both
signs on all five, noise 0.01, delta = 0.1, a kernel learned anew in every run from 50 tasks of 50
points. Entries are half-widths after t observations, averaged over 201 points of [-1, 1] and over
the runs; *covered* is the share of runs in which the function stayed inside at all of these points
and at all t <= 50. Learned kernels keep half of delta for the learning. "paper" is Theorem 5.1 with
the weights of Eq. 9, and is told what nobody can know: the true c_1, and a perfect recovery
(epsilon = 0). With points chosen by the upper bound, every row follows its own bound: intervals are
meant to shrink near the maximum only, and rows saw different points."""
NOISE_DOMINATED = """\
Noise-dominated: polynomials of degree below d, noise 1, uniform points, up to t = 200, looked at
after every observation up to 20 and after every tenth then, on 21 points. Here intervals are hardly
wider than they must be. Entries are *covered (half-width at t = 200)*."""
GAME_TEXT = """\
GP-UCB over 40 steps on the paper's example, every kernel with the default intervals: mean
cumulative regret; *halved* is the share of seeds in which the learned kernel has less than half of
the regret of k_full; the certificate is the mean bound on the simple regret after 40 steps with
the learned kernel. "a part" draws the new function like a past task, from a random part of the
five kernels."""


def number(value: float) -> str:
    return f"{value:.3g}"


def paper_table(results: Results, setting: tuple[str, str]) -> str:
    """Widths and coverage of every contestant in one setting of the paper's example."""
    rows = []
    for name, summary in results.summaries(setting).items():
        widths = [number(summary.half_widths[t]) for t in TIMES]
        alarms = f"{summary.alarms:.3f}" if name.startswith("dmm") else "-"
        rows.append([CONTESTANTS[name], *widths, f"{summary.covered:.3f}", alarms])
    head = ["intervals", *(f"t = {t}" for t in TIMES), "covered", "alarm"]
    return markdown(head, rows)


def noisy_table(results: Results) -> str:
    """Coverage and last width of every contestant in every cell of the noise-dominated check."""
    found = {cell: results.noisy_summaries(cell) for cell in CELLS}
    rows = []
    for name in NOISY:
        cells = [(found[cell][name].covered, found[cell][name].half_widths[-1]) for cell in CELLS]
        rows.append([CONTESTANTS[name], *(f"{c:.3f} ({number(w)})" for c, w in cells)])
    return markdown(["intervals", *(f"d = {d}, B = {norm:g}" for d, norm in CELLS)], rows)


def games_table(results: Results) -> str:
    """Regret of GP-UCB by kernel."""
    rows = []
    for scaling, everything in GAMES:
        runs = results.games[scaling, everything]
        regret = {name: np.mean([run[name].regret for run in runs]) for name in runs[0]}
        halved = np.mean([run["learned"].regret < 0.5 * run["full"].regret for run in runs])
        certificate = np.mean([run["learned"].certificate for run in runs])
        rows.append(
            [
                scaling,
                "all five" if everything else "a part",
                *(number(regret[name]) for name in ("learned", "true", "full")),
                number(regret["learned"] / regret["true"]),
                f"{halved:.2f}",
                number(certificate),
            ]
        )
    head = ["scaling", "f uses", "learned", "true", "k_full", "learned / true", "halved"]
    return markdown([*head, "certificate"], rows)


def report(results: Results, *, command: str, where: str, figure: str) -> str:
    """The section of the documentation, which is also what is printed."""
    played = results.played
    parts = [
        f"Made by `{command}` on {where}.",
        markdown(["what", "floor", "measured", ""], [goal.cells() for goal in goals(results)]),
        (
            f"Learning found all kernels of k* in {results.recovered:.1%} of the runs. The "
            f"certificate was checked at 40 steps of {len(played)} runs of GP-UCB, of which "
            f"{sum(game.covered for game in played)} were covered."
        ),
        INTRODUCTION,
    ]
    for scaling, sampling in PAPER:
        runs = len(results.paper[scaling, sampling])
        title = f"{SCALINGS[scaling]} (`{scaling}`), {SAMPLINGS[sampling]}, {runs} runs"
        parts += [f"### {title}", paper_table(results, (scaling, sampling))]
    parts.append(f"![Half-width over time]({figure})")
    cell_runs = len(results.noisy[CELLS[0]])
    parts += [f"### Noise-dominated, {cell_runs} runs in every cell", NOISE_DOMINATED]
    parts += [noisy_table(results), f"### GP-UCB, {len(results.games[GAMES[0]])} runs in every row"]
    parts += [GAME_TEXT, games_table(results)]
    return "\n\n".join(parts)


STYLES = {
    "dmm": ("#0072b2", "-", 2.4),
    "amm": ("#56b4e9", "-", 1.4),
    "ay": ("#009e73", "-", 1.4),
    "paper-corrected": ("#e69f00", "-", 1.4),
    "paper": ("#d55e00", "-", 2.0),
    "oracle": ("#cc79a7", "--", 1.4),
    "dmm-true": ("#222222", "--", 1.6),
    "dmm-full": ("#888888", "-", 1.6),
    "pointwise": ("#bbbbbb", ":", 1.8),
}


def draw(results: Results, file: Path) -> None:
    """Mean half-width over time, one panel for each way to choose points."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 5.6), sharey=True, layout="constrained")
    for ax, sampling in zip(axes, SAMPLINGS, strict=True):
        for name, summary in results.summaries(("sup", sampling)).items():
            color, line, width = STYLES[name]
            ax.plot(
                range(HORIZON + 1),
                summary.half_widths,
                color=color,
                linestyle=line,
                linewidth=width,
                label=CONTESTANTS[name],
            )
        ax.set_yscale("log")
        ax.set_xlim(0, HORIZON)
        ax.set_xlabel("observations t")
        ax.set_title(SAMPLINGS[sampling], fontsize=11)
        ax.grid(which="major", alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("mean half-width of the interval")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    figure.suptitle("Anytime intervals on the paper's example (|P_j| <= 1)", fontsize=12)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    plt.close(figure)
