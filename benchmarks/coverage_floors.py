"""What the chi-square part of the mixture is worth: widths, and what the alarm hears.

    python -m benchmarks.coverage_floors [--runs 30]

20 Legendre kernels, noise 1, uniform points unless said. Widths are of kernels with 10 or 4
features, coefficients of 10 times the noise, B five times the norm, over those with
``DMM(noise_weight=0)``. The noise is told as half of what it is for 4 features with coefficients of
1 and of 10. A missing kernel has 10 times the noise, and the upper bound chooses 40 points. False
alarms: nothing is wrong.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.docs import markdown, update_section
from metakel.confidence import DMM, ConfidenceSequence
from metakel.kernels import KernelSum, legendre

BASE, GRID = legendre(20, scaling="l2"), np.linspace(-1, 1, 41)[:, None]
PHI, RUNS = BASE.features(GRID), 30
PLAIN = DMM(noise_weight=0)


def told(
    active: list[int],
    theta: np.ndarray,
    rng: np.random.Generator,
    steps: int,
    *,
    methods: tuple[DMM, ...] = (DMM(),),
    noise_std: float = 1.0,
    norm_bound: float,
    greedy: bool = False,
) -> list[ConfidenceSequence]:
    """Sequences of one kernel and several methods, with the same values."""
    kernel, f = KernelSum.uniform(BASE, active=active), PHI @ theta
    known = {"noise_std": noise_std, "norm_bound": norm_bound, "points": GRID}
    made = [ConfidenceSequence(kernel, method=method, **known) for method in methods]
    for _ in range(steps):
        row = int(made[0].interval()[1].argmax()) if greedy else int(rng.integers(len(GRID)))
        value = f[row] + rng.standard_normal()
        for sequence in made:
            sequence.tell(GRID[[row]], [value])
    return made


def width(features: int, steps: int, run: int) -> float:
    rng = np.random.default_rng([run, features])
    theta = np.zeros(20)
    theta[:features] = 10 * rng.standard_normal(features)
    bound = 5 * float(np.linalg.norm(theta))
    both = told(list(range(features)), theta, rng, steps, methods=(DMM(), PLAIN), norm_bound=bound)
    now, before = (np.mean(np.subtract(*s.interval()[::-1])) for s in both)
    return float(now / before)


def heard(size: float, told_noise: float, method: DMM, run: int) -> bool:
    rng = np.random.default_rng([run, 3])
    theta = np.zeros(20)
    theta[:4] = size * rng.standard_normal(4)
    bound = 2 * float(np.linalg.norm(theta))
    options = {"methods": (method,), "noise_std": told_noise, "norm_bound": bound}
    return told([0, 1, 2, 3], theta, rng, 40, **options)[0].alarm is not None


def missing(method: DMM, run: int) -> bool:
    rng = np.random.default_rng([run, 4])
    theta = np.zeros(20)
    theta[[1, 4, 8]] = 20 * rng.standard_normal(3)
    theta[12] = 10 * rng.choice([-1, 1])
    bound = 2 * float(np.linalg.norm(theta))
    made = told([1, 4, 8], theta, rng, 40, methods=(method,), norm_bound=bound, greedy=True)
    return made[0].alarm is not None


def table(runs: int) -> str:
    """All lines, as Markdown."""
    lines = []
    for features, floor in ((10, 0.75), (4, 0.97)):
        means = [np.mean([width(features, t, r) for r in range(runs)]) for t in (15, 25, 40)]
        shown = ", ".join(f"{m:.2f}" for m in means)
        lines.append(_line(f"width, {features} features, t = 15, 25, 40", shown, f"<= {floor}", ""))
        lines[-1][3] = "yes" if np.mean(means) <= floor else "NO"
    for size in (1.0, 10.0):
        now, before = (
            np.mean([heard(size, 0.5, m, r) for r in range(runs)]) for m in (DMM(), PLAIN)
        )
        what = f"alarm, noise told x .5, coefficients of {size:g}"
        lines.append(_line(what, f"{now:.2f} (without {before:.2f})", ">= 0.95", ""))
        lines[-1][3] = "yes" if now >= 0.95 else "NO"
    now, before = (np.mean([missing(m, r) for r in range(runs)]) for m in (DMM(), PLAIN))
    what = "alarm, missing kernel of 10 times the noise, no probes"
    lines.append(_line(what, f"{now:.2f} (without {before:.2f})", ">= 0.50", ""))
    lines[-1][3] = "yes" if now >= 0.5 else "NO"
    false = sum(heard(1.0, 1.0, DMM(), r) for r in range(10 * runs))
    lines.append(_line("false alarms", f"{false} of {10 * runs}", "<= 5 %", ""))
    lines[-1][3] = "yes" if false <= 0.5 * runs else "NO"
    return markdown(["what", "measured", "asked", "met"], lines)


def _line(*cells: str) -> list[str]:
    print(cells, flush=True)
    return list(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    command = f"`python -m benchmarks.coverage_floors --runs {options.runs}`, which"
    section = f"{command}\n`make bench-coverage` runs. {about}\n\n{table(options.runs)}"
    print(section)
    if options.update_docs:
        update_section("floors", "Noise in the mixture", section)


if __name__ == "__main__":
    main()
