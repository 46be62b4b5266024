"""Coverage after learning where kernels are as weak as the noise: what selection may bet on.

    python -m benchmarks.coverage_selection [--runs 60] [--setting 1 7] [--only alarm]

One dimension, five of twenty Legendre kernels. Every past task and the new one use each of the
five with probability 0.85, with Gaussian coefficients of size 0.1, within norm B. GP-UCB chooses
the points of the new task. All bands of a run see its points; "width" is their mean half-width
over that of the true kernels at the end.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import coverage_alarm
from benchmarks.coverage_runs import inside
from benchmarks.docs import PAGES, markdown, update_section
from metakel._arrays import Array
from metakel.confidence import ConfidenceSequence
from metakel.data import History
from metakel.kernels import KernelSum, legendre
from metakel.learn import LearnedKernel, as_problem, learn_kernel
from metakel.learn.rules import Eigenvalues
from reproduction.figure import rate

BASE = legendre(20, scaling="l2")
TRUE, SIZE, USED = 5, 0.1, 0.85
DELTA, HORIZON, RUNS = 0.1, 25, 60
GRID = np.linspace(-1, 1, 101)[:, None]


@dataclass(frozen=True)
class Setting:
    """Sizes of the past tasks, noise, whether it is known, and how the loss weighs tasks."""

    name: str
    sizes: tuple[int, ...]
    noise_std: float
    known: bool = True
    loss: str = "points"

    @property
    def norm_bound(self) -> float:
        """Passed by the norm of a task with probability 1e-4."""
        return 5.1 * SIZE


SETTINGS = (
    Setting("sigma .1, 20 x 30", (30,) * 20, 0.1),
    Setting("sigma .1, 10 x 25", (25,) * 10, 0.1),
    Setting("sigma .05, 20 x 30", (30,) * 20, 0.05),
    Setting("sigma .02, 20 x 30", (30,) * 20, 0.02),
    Setting("sigma .1, 20 x 30, noise unknown", (30,) * 20, 0.1, known=False),
    Setting("sigma .02, 20 x 30, noise unknown", (30,) * 20, 0.02, known=False),
    Setting("sigma .1, 40 x 15", (15,) * 40, 0.1),
    Setting("sigma .2, 20 x 30", (30,) * 20, 0.2),
    Setting("sigma .02, 3 x 30", (30,) * 3, 0.02),
    Setting("sigma .02, sizes 1 to 80, by tasks", tuple(range(1, 81, 4)), 0.02, loss="tasks"),
)


def single_rho(history: History, noise_std: float, delta: float, loss: str) -> Array:
    """(p,) lambda with one rho for the worst case, as before the grid."""
    problem = as_problem(history, BASE, loss)  # type: ignore[arg-type]
    v, log_term = Eigenvalues(problem), 2 * np.log(problem.p / delta)
    energy = problem.task_weights**2 * problem.sizes
    a, u = energy / energy.max(), np.geomspace(1e-3, 1e3, 2001)
    worst = (1 + u) * (np.log1p(a[:, None] / u).sum(axis=0) + log_term)
    rho = energy.max() * u[worst.argmin()] * np.asarray(BASE.sup)
    return 4 * noise_std / problem.total * np.sqrt((v.top + rho) * (v.log_det(rho) + log_term))


def before(history: History, setting: Setting) -> LearnedKernel:
    """Version 0.1: a single rho, the whole lambda, the square-root lasso for unknown noise."""
    if not setting.known:
        return learn_kernel(
            history, BASE, lam="square-root", strength=1.0, delta=DELTA / 2, loss=setting.loss
        )
    lam = single_rho(history, setting.noise_std, DELTA / 2, setting.loss)
    return learn_kernel(history, BASE, lam=lam, noise_std=setting.noise_std, loss=setting.loss)


def after(history: History, setting: Setting) -> LearnedKernel:
    """The defaults of `learn_kernel`."""
    noise_std = setting.noise_std if setting.known else None
    return learn_kernel(history, BASE, noise_std=noise_std, delta=DELTA / 2, loss=setting.loss)


Rule = tuple[Callable[[History, Setting], LearnedKernel], float | None]
RULES: dict[str, Rule] = {
    "0.1": (before, 0.0),
    "hard": (after, 0.0),
    "c = .25": (after, 0.25),
    "default": (after, None),
    "c = 1": (after, 1.0),
    "all": (after, np.inf),
}


@dataclass
class Outcome:
    """One rule in one run."""

    covered: bool
    width: float
    found: bool
    kept: int
    alarm: bool
    certificate: bool


def coefficients(support: Array, bound: float, rng: np.random.Generator) -> Array:
    """(p,) of one task."""
    while True:
        theta = np.zeros(BASE.p)
        used = support[rng.uniform(size=TRUE) < USED]
        theta[used] = rng.normal(0, SIZE, len(used))
        if np.linalg.norm(theta) <= bound:
            return theta


def run_once(setting: Setting, run: int, seed: int) -> dict[str, Outcome]:
    """All rules on one history and one new task."""
    rng = np.random.default_rng([seed, run])
    support = np.sort(rng.choice(BASE.p, TRUE, replace=False))
    bound, sigma = setting.norm_bound, setting.noise_std
    pairs = []
    for n in setting.sizes:
        X = rng.uniform(-1, 1, (n, 1))
        f = BASE.features(X) @ coefficients(support, bound, rng)
        pairs.append((X, f + sigma * rng.standard_normal(n)))
    history = History.from_pairs(pairs)
    Phi = BASE.features(GRID)
    f = Phi @ coefficients(support, bound, rng)
    noise = sigma * rng.standard_normal(HORIZON)
    known: dict[object, LearnedKernel] = {}
    out = {}
    true = KernelSum.uniform(BASE, active=support)
    for name, (learn, c) in RULES.items():
        if learn not in known:
            known[learn] = learn(history, setting)
        learned = known[learn]
        kernel = learned.kernel if c == 0 else learned.confidence_kernel(bound, c=c)
        out[name] = _follow(kernel, true, learned, f, noise, setting, soft=c != 0)
    for outcome in out.values():
        outcome.found = bool(np.isin(support, known[after].active).all())
    out["0.1"].found = bool(np.isin(support, known[before].active).all())
    return out


def _follow(
    kernel: KernelSum,
    true: KernelSum,
    learned: LearnedKernel,
    f: Array,
    noise: Array,
    setting: Setting,
    *,
    soft: bool,
) -> Outcome:
    """GP-UCB with one kernel; the true kernels' band is shown the same points."""
    common = {"norm_bound": setting.norm_bound, "points": GRID}
    sequence = ConfidenceSequence(
        kernel if len(kernel.active) else KernelSum.uniform(BASE, weight=1.0),
        noise_std=learned.noise_std,
        delta=DELTA,
        delta_learning=DELTA / 2,
        norm_of="kernel" if soft else "truth",
        **common,
    )
    oracle = ConfidenceSequence(true, noise_std=setting.noise_std, delta=DELTA / 2, **common)
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
        row = int(upper.argmax())
        rows.append(row)
        y = f[row] + noise[t]
        sequence.tell(GRID[[row]], [y])
        oracle.tell(GRID[[row]], [y])
    low, high = oracle.interval()
    width = float((upper - lower).mean() / (high - low).mean())
    kept = len(learned.active)
    return Outcome(covered, width, False, kept, sequence.alarm is not None, certificate)


# Of the default, by setting: least coverage, and largest width over that of the true kernels, as
# floor and goal. Wrong certificates: at most delta, and half of it.
Asked = tuple[float, float]
ASKED: dict[str, tuple[Asked, Asked | None]] = {
    "sigma .1, 20 x 30": ((0.95, 0.98), (1.5, 1.1)),
    "sigma .02, 20 x 30": ((0.90, 0.95), (1.5, 1.05)),
    "sigma .1, 20 x 30, noise unknown": ((0.90, 0.95), None),
    "sigma .02, 20 x 30, noise unknown": ((0.90, 0.95), None),
    "sigma .1, 10 x 25": ((0.90, 0.95), None),
    "sigma .02, 3 x 30": ((0.90, 0.95), None),
    "sigma .02, sizes 1 to 80, by tasks": ((0.90, 0.95), None),
}


def asked_lines(name: str, outcomes: Sequence[Outcome]) -> list[list[str]]:
    """What was asked for of the default in one setting."""
    least, widest = ASKED.get(name, (None, None))
    lines = []
    if least is not None:
        share = rate("covered", [o.covered for o in outcomes])
        low, high = share["covered low"], share["covered high"]
        shown = f"{share['covered']:.3f} ({low:.2f} to {high:.2f})"
        what = f"covered, {name}"
        lines.append(_asked(what, shown, share["covered"], *least, sign=">= "))
    if widest is not None:
        width = float(np.median([o.width for o in outcomes]))
        lines.append(_asked(f"width, {name}", f"{width:.2f}", width, *widest))
    wrong = float(np.mean([not o.certificate for o in outcomes]))
    what = f"wrong certificates, {name}"
    return [*lines, _asked(what, f"{wrong:.3f}", wrong, DELTA, DELTA / 2)]


def _asked(
    what: str, shown: str, value: float, floor: float, goal: float, *, sign: str = ""
) -> list[str]:
    """Smaller is better, unless the sign says otherwise."""

    def met(limit: float) -> bool:
        return value >= limit if sign else value <= limit

    word = "goal" if met(goal) else "floor" if met(floor) else "NO"
    return [what, shown, f"{sign}{floor:g}", f"{sign}{goal:g}", word]


def selection_table(chosen: Sequence[int], runs: int, seed: int) -> str:
    """All rules in the chosen settings, and what was asked for, as Markdown."""
    lines, asked = [], []
    for i in chosen:
        found = [run_once(SETTINGS[i], run, seed) for run in range(runs)]
        asked += asked_lines(SETTINGS[i].name, [run["default"] for run in found])
        pair = [[run[name] for run in found] for name in ("0.1", "hard")]
        lines.append(
            [
                SETTINGS[i].name,
                *(_cell([run[name] for run in found]) for name in RULES),
                ", ".join(f"{np.mean([o.found for o in of]):.2f}" for of in pair),
                ", ".join(f"{np.mean([o.kept for o in of]):.1f}" for of in pair),
            ]
        )
        print(lines[-1], flush=True)
    table = markdown(["setting", *RULES, "J* found, 0.1 and now", "kernels kept"], lines)
    return f"""{table}

What was asked for, of the default, with 95 % intervals of shares:

{markdown(["what", "measured", "floor", "goal", "met"], asked)}"""


def _cell(outcomes: Sequence[Outcome]) -> str:
    covered = np.mean([o.covered for o in outcomes])
    wrong = np.mean([not o.certificate for o in outcomes])
    return f"{covered:.2f} ({np.median([o.width for o in outcomes]):.2f}; {wrong:.2f})"


def selection_section(table: str, runs: int, seed: int) -> str:
    """The table, with what its columns are."""
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    return f"""`python -m benchmarks.coverage_selection --runs {runs} --seed {seed}`, which
`make bench-coverage` runs. {about}

Covered at all points and times (width over that of the true kernels; wrong certificates), nominal
0.9. "0.1" is version 0.1; "default" is `confidence_kernel`; "hard" is `learned.kernel`. With fewer
than 9 past tasks the default keeps all kernels, and `learned.report()` says so.

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
    page = PAGES / "confidence.md"
    if options.only != "selection":
        section = alarm_section(coverage_alarm.alarm_table(options.seed), options.seed)
        print(section)
        if options.update_docs:
            update_section(page, "alarm", "What the alarm can detect", section)
    if options.only != "alarm":
        chosen = range(len(SETTINGS)) if options.setting is None else options.setting
        table = selection_table(chosen, options.runs, options.seed)
        section = selection_section(table, options.runs, options.seed)
        print(section)
        if options.update_docs:
            update_section(page, "selection", "Confidence after learning", section)


if __name__ == "__main__":
    main()
