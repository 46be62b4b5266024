"""The CPU time of one Optuna trial with t finished ones: MetaKelSampler, TPE and GPSampler.

``python -m benchmarks.optuna_sampler [--quick] [--rounds 7] [--update-docs]``

All samplers get the same finished trials of a noisy Branin function. One trial is ask, two
suggestions and tell on a study in memory, without the objective. One process, one thread; the
samplers take turns, and medians are compared. The first trial of a sampler that has not seen the
study yet, as after a restart, is timed by itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import optuna

from benchmarks.ask import branin
from benchmarks.command import run
from benchmarks.docs import markdown
from benchmarks.solver_table import machine
from metakel.integrations.optuna import MetaKelSampler
from metakel.priors import Prior

TIMES = (10, 50, 200)
NOISE = 0.05
FEW, MANY = (20, 60), (1000, 20)  # tasks, trials of each
TRIALS = 5  # timed one by one after the first
SPACE = {name: optuna.distributions.FloatDistribution(-1, 1) for name in ("x0", "x1")}
OURS, OURS_MANY = f"MetaKelSampler, {FEW[0]} source studies", f"MetaKelSampler, {MANY[0]:,} of them"
TPE, GP = "TPESampler", "GPSampler"
# What else is timed: the sampler, finished trials, trials of other workers.
WORKERS = ((OURS, 100, 0), (OURS, 100, 8), (OURS, 500, 0), (TPE, 500, 0))
Make = Callable[[int], optuna.samplers.BaseSampler]


def finished(count: int, shift: float, rng: np.random.Generator) -> list[optuna.trial.FrozenTrial]:
    X = rng.uniform(-1, 1, (count, 2))
    y = branin(X, shift=shift) + NOISE * rng.standard_normal(count)
    return [
        optuna.trial.create_trial(
            params={"x0": float(x[0]), "x1": float(x[1])}, distributions=SPACE, value=float(v)
        )
        for x, v in zip(X, y, strict=True)
    ]


def learned(m: int, n: int) -> tuple[Prior, float]:
    """From m studies of n trials each, and the CPU seconds that took."""
    rng = np.random.default_rng(0)
    studies = []
    for _ in range(m):
        study = optuna.create_study(direction="maximize")
        study.add_trials(finished(n, float(rng.uniform(-1, 1)), rng))
        studies.append(study)
    start = time.process_time()
    prior = MetaKelSampler(studies).prior
    assert prior is not None
    assert prior.helps
    return prior, time.process_time() - start


def time_trials(make: Make, t: int, seed: int, running: int = 0) -> tuple[float, float]:
    """CPU seconds of the first trial of a fresh sampler, and the median of the next ones.

    ``running`` trials of other workers have been asked for, and never end.
    """
    rng = np.random.default_rng(1000 + seed)
    study = optuna.create_study(direction="maximize", sampler=make(seed))
    study.add_trials(finished(t, 0.3, rng))
    for _ in range(running):
        study.ask(SPACE)
    seconds = []
    for _ in range(1 + TRIALS):
        start = time.process_time()
        trial = study.ask(SPACE)
        asking = time.process_time() - start
        x = np.array([[trial.params["x0"], trial.params["x1"]]])
        value = float(branin(x, shift=0.3)[0] + NOISE * rng.standard_normal())
        start = time.process_time()
        study.tell(trial, value)
        seconds.append(asking + time.process_time() - start)
    return seconds[0], float(np.median(seconds[1:]))


def measure(rounds: int) -> str:
    few, few_seconds = learned(*FEW)
    many, many_seconds = learned(*MANY)
    samplers: dict[str, Make] = {
        OURS: lambda seed: MetaKelSampler(prior=few, seed=seed),
        OURS_MANY: lambda seed: MetaKelSampler(prior=many, seed=seed),
        TPE: lambda seed: optuna.samplers.TPESampler(seed=seed),
        GP: lambda seed: optuna.samplers.GPSampler(seed=seed, n_startup_trials=0),
    }
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for seed in range(rounds):
        for t in TIMES:
            for name, make in samplers.items():
                found.setdefault((name, t), []).append(time_trials(make, t, seed))
        for name, t, running in WORKERS:
            key = (f"{name}, {running} running", t)
            found.setdefault(key, []).append(time_trials(samplers[name], t, seed, running))
        print(f"round {seed + 1} of {rounds}", file=sys.stderr, flush=True)
    return report(found, (few_seconds, many_seconds), rounds)


def report(
    found: dict[tuple[str, int], list[tuple[float, float]]],
    learning: tuple[float, float],
    rounds: int,
) -> str:
    medians = {key: np.median(pairs, axis=0) for key, pairs in found.items()}

    def ms(name: str, t: int, which: int) -> str:
        return f"{1e3 * medians[name, t][which]:.3g}"

    rows = [
        [name, *(ms(name, t, 1) for t in TIMES), *(ms(name, t, 0) for t in TIMES)]
        for name in (OURS, OURS_MANY, TPE, GP)
    ]
    below = {t: medians[GP, t][1] / medians[OURS, t][1] for t in TIMES}
    ratios = ", ".join(f"{ratio:.3g}x at {t}" for t, ratio in below.items())
    # Neighbours in time are compared, since a shared machine is not equally fast all the time.
    pairs = [np.array(found[OURS_MANY, t])[:, 1] / np.array(found[OURS, t])[:, 1] for t in TIMES]
    slower = float(np.median(pairs))
    alone, beside = (np.array(found[f"{OURS}, {k} running", 100])[:, 1] for k in (0, 8))
    crowd = float(np.median(beside / alone))
    late, tpe = (1e3 * medians[f"{name}, 0 running", 500][1] for name in (OURS, TPE))
    verdicts = [
        ["below GPSampler, every t", ratios, ">= 10x", _verdict(min(below.values()) >= 10)],
        [
            f"time with {MANY[0]:,} source studies",
            f"{slower:.2f}x",
            "<= 1.1x",
            _verdict(slower <= 1.1),
        ],
        ["beside 8 running trials, t = 100", f"{crowd:.2f}x", "<= 1.5x", _verdict(crowd <= 1.5)],
        ["t = 500", f"{late:.3g} ms (TPE {tpe:.2g})", "<= 20 ms", _verdict(late <= 20)],
    ]
    head = ["CPU ms", *(f"t = {t}" for t in TIMES), *(f"first, t = {t}" for t in TIMES)]
    few, many = (f"{m:,} source studies of {n} trials" for m, n in (FEW, MANY))
    return f"""\
One trial (ask, two suggestions, tell; not the objective) of a study in memory with t finished
trials of a noisy Branin function: medians of {rounds} rounds of {TRIALS} trials. "First" is the
first trial of a sampler that has not seen the study before, as after a restart. Learning took
{learning[0]:.2g} s of CPU from {few}, and {learning[1]:.2g} s from {many}, once.
TPE is faster than ours; it learns nothing from other studies.

{markdown(head, rows)}

{markdown(["goal", "measured", "floor", "verdict"], verdicts)}

{machine()}"""


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    run(
        "optuna_sampler", "optuna", __doc__, measure, rounds=7, title="The time of one Optuna trial"
    )
