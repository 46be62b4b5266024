"""Coverage after learning where kernels are as weak as the noise: what selection may bet on.

    python -m benchmarks.coverage_selection [--runs 200] [--setting 1 7] [--only alarm]

The settings are those of `benchmarks.coverage_settings`: in some of them the selection alone was
known not to cover, ten others were written down before anything was measured in them. The upper
bound chooses 20 points of the new task on a grid. Each rule has its own points; "width" is the mean
half-width at the end over that of the true kernels with the same points.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import coverage_alarm
from benchmarks.coverage_runs import inside
from benchmarks.coverage_settings import AUDITED, OWN, Drawn, Setting, draw
from benchmarks.docs import markdown, update_section
from metakel._arrays import Array
from metakel.confidence import ConfidenceSequence
from metakel.kernels import KernelSum
from metakel.learn import LearnedKernel, learn_kernel
from reproduction.figure import rate

SETTINGS = AUDITED + OWN
DELTA, HORIZON, RUNS = 0.1, 20, 60
RULES = ("selection", "default")


@dataclass(frozen=True)
class Outcome:
    """One rule in one run."""

    covered: bool
    width: float
    alarm: bool
    certificate: bool


@dataclass(frozen=True)
class Run:
    """One history and one new task."""

    rules: dict[str, Outcome]
    found: bool  # whether all true kernels were selected
    noise: float  # estimate over truth


def points_of(setting: Setting) -> Array:
    """(n, d0) the grid on which bounds are looked at."""
    d0 = setting.base.d0 or 1
    axis = np.linspace(-1, 1, 41 if d0 == 1 else 9)
    return np.stack(np.meshgrid(*[axis] * d0), axis=-1).reshape(-1, d0)


def run_once(setting: Setting, run: int, seed: int, rules: Sequence[str] = RULES) -> Run:
    """All rules on one history and one new task."""
    rng = np.random.default_rng([seed, run])
    drawn = draw(setting, rng)
    learned = learn_kernel(
        drawn.history,
        setting.base,
        noise_std=1.0 if setting.known else None,
        delta=DELTA / 2,
        loss=setting.loss,  # type: ignore[arg-type]
    )
    noise = setting.noise(rng, HORIZON)
    found = bool(np.isin(drawn.support, learned.active).all())
    outcomes = {rule: _follow(rule, learned, drawn, noise) for rule in rules}
    return Run(outcomes, found, learned.noise_std)


def band(rule: str, learned: LearnedKernel, norm_bound: float, points: Array) -> ConfidenceSequence:
    """The confidence sequence of a rule."""
    common = {"norm_bound": norm_bound, "points": points, "delta": DELTA}
    if rule == "default":
        return ConfidenceSequence(learned, **common)
    split = {"noise_std": learned.noise_std, "delta_learning": learned.delta}
    everything = KernelSum.uniform(learned.kernel.base, weight=1.0)
    kernel = learned.kernel if rule == "selection" and learned.active.size else everything
    return ConfidenceSequence(kernel, **split, **common)


def _follow(rule: str, learned: LearnedKernel, drawn: Drawn, noise: Array) -> Outcome:
    """GP-UCB with one rule; the true kernels' band is shown the same points."""
    points, base = points_of(drawn.setting), drawn.setting.base
    f = base.features(points) @ drawn.theta
    sequence = band(rule, learned, drawn.norm_bound, points)
    true = KernelSum.uniform(base, active=np.sort(drawn.support))
    oracle = ConfidenceSequence(
        true, noise_std=1.0, norm_bound=drawn.norm_bound, delta=DELTA / 2, points=points
    )
    covered, certificate = True, True
    rows: list[int] = []
    for t in range(HORIZON + 1):
        lower, upper = sequence.interval()
        covered = covered and inside(f, lower, upper)
        if rows:
            best = rows[int(lower[rows].argmax())]
            certificate = certificate and f.max() - f[best] <= upper.max() - lower[best] + 1e-9
        if t == HORIZON:
            break
        rows.append(int(upper.argmax()))
        told = points[[rows[-1]]], [f[rows[-1]] + noise[t]]
        sequence.tell(*told)
        oracle.tell(*told)
    low, high = oracle.interval()
    width = float((upper - lower).mean() / (high - low).mean())
    return Outcome(covered, width, sequence.alarm is not None, certificate)


# Of the default: least coverage, and largest width over that of the true kernels.
FLOORS = {setting.name: 0.9 if setting.name.startswith("30") else 0.88 for setting in SETTINGS}
WIDEST = {"30 kernels, 20 tasks, SNR 1": 1.7}


def selection_table(chosen: Sequence[int], runs: int, seed: int) -> str:
    """All rules in the chosen settings, as Markdown."""
    lines = []
    for i in chosen:
        setting = SETTINGS[i]
        found = [run_once(setting, run, seed + 1000 * i) for run in range(runs)]
        default = [run.rules["default"] for run in found]
        share = rate("covered", [o.covered for o in default])
        met = share["covered"] >= FLOORS[setting.name]
        width = float(np.median([o.width for o in default]))
        low, high = share["covered low"], share["covered high"]
        wide = WIDEST.get(setting.name, np.inf)
        floor = f">= {FLOORS[setting.name]:.2f}" + (f", width <= {wide:g}" if wide < 99 else "")
        lines.append(
            [
                ("" if i < len(AUDITED) else "* ") + setting.name,
                f"{share['covered']:.3f} ({low:.2f} to {high:.2f})",
                floor,
                "yes" if met and width <= wide else "NO",
                f"{width:.2f}",
                f"{np.mean([not o.certificate for o in default]):.2f}",
                _cell([run.rules["selection"] for run in found]),
                f"{np.mean([run.found for run in found]):.2f}",
                f"{np.median([run.noise for run in found]):.2f}",
            ]
        )
        print(lines[-1], flush=True)
    head = ["setting", "covered (95 %)", "asked", "met", "width", "wrong certificates"]
    return markdown([*head, "selection alone", "all found", "noise"], lines)


def _cell(outcomes: Sequence[Outcome]) -> str:
    covered = np.mean([o.covered for o in outcomes])
    return f"{covered:.2f} ({np.median([o.width for o in outcomes]):.2f})"


def selection_section(table: str, runs: int, seed: int) -> str:
    """The table, with what its columns are."""
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    return f"""`python -m benchmarks.coverage_selection --runs {runs} --seed {seed}`, which
`make bench-coverage` runs. {about}

Covered at all points and times, nominal 0.9: by the default, `ConfidenceSequence(learned)`, and by
the selection alone (`learned.kernel`), with its width in brackets.
"all found": how often all true kernels were selected; "noise": the median of its estimate over the
truth. Settings with a star were written down in advance.

{table}"""


def alarm_section(table: str, seed: int) -> str:
    """The table of alarms, with what its rows are."""
    about = " ".join((coverage_alarm.__doc__ or "").split("\n\n")[1].split())
    return f"""`python -m benchmarks.coverage_selection --only alarm --seed {seed}`, which
`make bench-coverage` runs, too. {about}

{table}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--setting", type=int, nargs="*", default=None)
    parser.add_argument("--only", choices=["selection", "alarm"])
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # alarms are part of what is measured
    warnings.simplefilter("ignore")
    if options.only != "selection":
        section = alarm_section(coverage_alarm.alarm_table(options.seed), options.seed)
        print(section)
        if options.update_docs:
            update_section("alarm", "What the alarm can detect", section)
    if options.only != "alarm":
        chosen = range(len(SETTINGS)) if options.setting is None else options.setting
        table = selection_table(chosen, options.runs, options.seed)
        section = selection_section(table, options.runs, options.seed)
        print(section)
        if options.update_docs:
            update_section("selection", "Confidence after learning", section)


if __name__ == "__main__":
    main()
