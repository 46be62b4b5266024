"""Ten searches whose decisions a change of structure must not change.

A fixture replays a recorded search. Every step it says what would be asked for next and what is
believed, and is then given the recorded point, whatever it would have chosen. So a difference shows
in the step in which it arises and does not grow.

``python tests/golden/decisions.py`` writes golden.json anew. That belongs in a commit of its own,
with the reason and with the benchmarks that say what the new decisions are worth.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from math import log10
from pathlib import Path
from typing import Any

import numpy as np
import optuna

import metakel as mk
from metakel.integrations.optuna import MetaKelSampler
from metakel.space import Categorical, Float, Integer, Space

GOLDEN = Path(__file__).with_name("golden.json")
STEPS = 25
SPACE = Space(
    (Float("rate", 1e-4, 1.0, log=True), Integer("depth", 2, 10), Categorical("kind", ("a", "b")))
)
POINTS = SPACE.decode(SPACE.sample(np.random.default_rng(11), 4))  # where predictions are compared


def measure(x: dict[str, Any], shift: float = 0.0) -> float:
    """Best near rate 0.01, depth 6 and kind a."""
    rate, depth = log10(x["rate"]) + 2 - shift, (x["depth"] - 6) / 4
    ripple = 0.02 * np.sin(5 * rate)
    return float(0.9 - 0.1 * rate**2 - 0.05 * depth**2 - 0.05 * (x["kind"] != "a") + ripple)


def rows(*, tasks: int, runs: int, spread: float = 0.3) -> dict[str, list[Any]]:
    rng = np.random.default_rng(3)
    found: dict[str, list[Any]] = {name: [] for name in ("task", *SPACE.names, "score")}
    for s in range(tasks):
        shift = spread * rng.standard_normal()
        for x in SPACE.decode(SPACE.sample(rng, runs)):
            for name, value in {"task": f"t{s}", **x, "score": measure(x, shift)}.items():
                found[name].append(value)
    return found


@cache
def learned_prior(certify: str = "folds") -> mk.Prior:
    history = mk.History.from_frame(
        rows(tasks=12, runs=15), task="task", output="score", space=SPACE
    )
    return mk.learn_prior(history, certify=certify)


@cache
def unrelated_prior() -> mk.Prior:
    """The values of every task are shuffled, so that the history is not used."""
    table, rng = rows(tasks=12, runs=15), np.random.default_rng(4)
    for s in range(12):
        part = slice(15 * s, 15 * (s + 1))
        table["score"][part] = list(rng.permutation(table["score"][part]))
    history = mk.History.from_frame(table, task="task", output="score", space=SPACE)
    prior = mk.learn_prior(history, certify="none")
    assert not prior.helps
    return prior


def conditional_value(x: dict[str, Any], shift: float = 0.0) -> float:
    if x["kind"] == "line":
        return -0.2 - (x["x"] - 0.3) ** 2
    return -((x["x"] - 0.3) ** 2) - (x["depth"] - 6 - shift) ** 2 / 30


@cache
def conditional_prior() -> mk.Prior:
    rng = np.random.default_rng(0)
    table: dict[str, list[Any]] = {name: [] for name in ("task", "kind", "x", "depth", "y")}
    for s in range(8):
        shift = rng.normal(0, 0.5)
        for _ in range(15):
            kind = str(rng.choice(["tree", "line"]))
            row: dict[str, Any] = {"task": f"t{s}", "kind": kind, "x": rng.uniform()}
            row["depth"] = int(rng.integers(1, 11)) if kind == "tree" else None
            row["y"] = s + conditional_value(row, shift)
            for name, value in row.items():
                table[name].append(value)
    history = mk.History.from_frame(table, task="task", output="y")
    return mk.learn_prior(history, certify="none")


@cache
def learned_kernel() -> mk.LearnedKernel:
    rng, pairs = np.random.default_rng(0), []
    for _ in range(20):
        X, (a, b) = rng.uniform(-1, 1, size=30), rng.normal(size=2)
        pairs.append((X, polynomial(X, a, b) + 0.05 * rng.normal(size=30)))
    history = mk.History.from_pairs(pairs)
    return mk.learn_kernel(
        history, mk.kernels.legendre(12, scaling="l2"), noise_std=0.05, delta=0.05
    )


def polynomial(x: Any, a: float, b: float) -> Any:
    return a * (2.5 * x**3 - 1.5 * x) + b * (7.875 * x**5 - 8.75 * x**3 + 1.875 * x)


# What a step records

Step = dict[str, Any]


def step_of(optimizer: Any, Z: Any) -> Step:
    """What an optimizer would ask for next, and what it believes."""
    mean, sd = optimizer.predict(Z)
    found = {"next": as_json(optimizer.peek()), "mean": list(mean), "sd": list(sd)}
    found["alarm"] = None if optimizer.alarm is None else optimizer.alarm.time
    if isinstance(found["next"], dict):  # named parameters: the model of a prior
        found["trust"] = optimizer.trust
    return found


def as_json(point: Any) -> Any:
    return dict(point) if isinstance(point, dict) else [float(value) for value in point]


def certified(optimizer: Any) -> float:
    return float(optimizer.certificate().regret)


def replay(
    optimizer: Any, Z: Any, tell: Callable[[int, Any], None], given: list[Step] | None
) -> list[Step]:
    """Every step of a search; with ``given`` steps their points are told instead of our own."""
    steps = []
    for i in range(STEPS):
        found = step_of(optimizer, Z)
        tell(i, found["next"] if given is None else given[i]["next"])
        steps.append({**found, "certificate": certified(optimizer)})
    return steps


def gpucb(domain: Any, given: list[Step] | None, **width: Any) -> list[Step]:
    learned, rng = learned_kernel(), np.random.default_rng(5)
    sequence = mk.ConfidenceSequence(learned, noise_std=0.4, norm_bound=3.0, delta=0.1)
    assumed: Any = sequence
    if width:
        assumed = mk.FixedWidth(learned.kernel, **width, bounds=sequence)
    optimizer = mk.GPUCB(assumed, domain, rng=np.random.default_rng(1))

    def tell(i: int, x: Any) -> None:
        point = np.array(x)
        optimizer.tell(point, float(polynomial(point[0], 1.2, -0.8)) + 0.4 * rng.normal())

    return replay(optimizer, np.linspace(-0.9, 0.9, 4)[:, None], tell, given)


def gpucb_box(given: list[Step] | None) -> list[Step]:
    return gpucb(mk.box([(-1, 1)]), given)


def gpucb_grid(given: list[Step] | None) -> list[Step]:
    return gpucb(mk.grid([(-1, 1)], 101), given)


def gpucb_fixed_width(given: list[Step] | None) -> list[Step]:
    return gpucb(mk.box([(-1, 1)]), given, nu=2.0, noise_var=0.01)


def prior_space(given: list[Step] | None) -> list[Step]:
    optimizer = learned_prior().optimizer()
    return replay(optimizer, POINTS, lambda i, x: optimizer.tell(x, measure(x, 0.4)), given)


def prior_table(given: list[Step] | None) -> list[Step]:
    table = SPACE.decode(SPACE.sample(np.random.default_rng(8), 60))
    optimizer = learned_prior().optimizer(table)
    return replay(optimizer, POINTS, lambda i, x: optimizer.tell(x, measure(x, -0.5)), given)


def prior_conditions(given: list[Step] | None) -> list[Step]:
    optimizer = conditional_prior().optimizer()
    Z = [{"kind": "line", "x": 0.5}, {"kind": "tree", "x": 0.2, "depth": 4}]
    return replay(optimizer, Z, lambda i, x: optimizer.tell(x, conditional_value(x, 1.0)), given)


def prior_constraints(given: list[Step] | None) -> list[Step]:
    optimizer = learned_prior("none").optimizer()

    def tell(i: int, x: Any) -> None:
        constraints = {"memory": x["depth"] - 5.5}
        optimizer.tell(x, measure(x, 0.2), constraints=constraints)

    return replay(optimizer, POINTS, tell, given)


def prior_cold(given: list[Step] | None) -> list[Step]:
    optimizer = unrelated_prior().optimizer()
    return replay(optimizer, POINTS, lambda i, x: optimizer.tell(x, measure(x, 0.1)), given)


ASK_AND_DIE = """
import sys
import metakel as mk
print(mk.Tuner(mk.Prior.load(sys.argv[1]), sys.argv[2]).ask())
"""


def tuner_journal(given: list[Step] | None) -> list[Step]:
    """Failures, a correction, and an evaluation whose process is gone."""
    prior = learned_prior("none")
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("prior.json", "run.jsonl")]
        prior.save(paths[0])
        tuner = mk.Tuner(prior, paths[1])

        def tell(i: int, x: Any) -> None:
            tuner.enqueue([x])
            if i == 12:
                subprocess.run([sys.executable, "-c", ASK_AND_DIE, *paths], check=True)
            asked = tuner.ask()
            assert asked == x
            failed = i % 7 == 3
            tuner.tell(asked, None if failed else measure(asked, 0.3), failed=failed)
            if i == 15:
                tuner.correct(5, measure(x, -0.2))

        steps = []
        for i in range(STEPS):
            found = step_of(tuner.optimizer, POINTS)
            tell(i, found["next"] if given is None else given[i]["next"])
            steps.append(found)
        return steps


DISTRIBUTIONS: dict[str, Any] = {
    "rate": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
    "depth": optuna.distributions.IntDistribution(2, 10),
    "kind": optuna.distributions.CategoricalDistribution(("a", "b")),
}


def optuna_sampler(given: list[Step] | None) -> list[Step]:
    """Every fifth trial was pruned, the last two are running."""
    sampler = MetaKelSampler(prior=learned_prior("none"), seed=0)
    steps: list[Step] = []
    for _ in range(STEPS):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        before = steps if given is None else given[: len(steps)]
        for k, step in enumerate(before):
            study.add_trial(past_trial(step["next"], k, running=k >= len(before) - 2))
        trust = sampler.trust(study)
        steps.append({"next": study.ask(DISTRIBUTIONS).params, "trust": trust})
    return steps


def past_trial(x: dict[str, Any], k: int, *, running: bool) -> optuna.trial.FrozenTrial:
    states = optuna.trial.TrialState
    state = states.RUNNING if running else states.PRUNED if k % 5 == 4 else states.COMPLETE
    return optuna.trial.create_trial(
        state=state,
        params=x,
        distributions=DISTRIBUTIONS,
        value=measure(x, 0.3) if state == states.COMPLETE else None,
        intermediate_values={0: 0.1} if state == states.PRUNED else {},
    )


FIXTURES: dict[str, Callable[[list[Step] | None], list[Step]]] = {
    found.__name__: found
    for found in (
        gpucb_box,
        gpucb_grid,
        gpucb_fixed_width,
        prior_space,
        prior_table,
        prior_conditions,
        prior_constraints,
        prior_cold,
        tuner_journal,
        optuna_sampler,
    )
}


# Round-off decides where a search of a flat score ends, and so do the instructions of a processor:
# the kernels of OpenBLAS and the loops of NumPy are those that every processor of today has.
SAME_EVERYWHERE = {
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}


def decided(names: list[str], given: Path | None = None) -> dict[str, list[Step]]:
    """What fixtures decide in a process of its own, as any processor with x86-64 does."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        *([str(given)] if given else ["-"]),
        *names,
    ]
    environment = {**os.environ, **SAME_EVERYWHERE}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print what the named fixtures decide, beside a file of recorded steps if one is named.

    Without any words, write golden.json.
    """
    logging.getLogger("metakel").setLevel(logging.ERROR)
    if len(sys.argv) > 1:
        recorded = {} if sys.argv[1] == "-" else json.loads(Path(sys.argv[1]).read_text("utf-8"))
        found = {name: FIXTURES[name](recorded.get(name)) for name in sys.argv[2:]}
        print(json.dumps(found))  # noqa: T201
        return
    GOLDEN.write_text(json.dumps(decided(list(FIXTURES)), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
