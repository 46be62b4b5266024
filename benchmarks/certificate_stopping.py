"""When to stop: `stop_at` against other rules, on the same sequences of values.

Three quarters of the tasks teach, 50 rows each; the others are searched on 50 of their own rows, 40
steps, on four splits of glmnet, two of xgboost and one of every other table. Every rule sees the
sequence of `prior.optimizer` and stops it at a tolerance of 5 % of the usual spread of a task, if
it is sure. Optuna's evaluators stop at values below the tolerance, from 20 trials on as its
`Terminator` does. "Probability of regret" stops when, in 512 joint draws of the calibrated Gaussian
process given the values, the best value is within the tolerance of all candidates in a share of
1 - delta.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.certificate_runs import (
    BUDGET,
    DELTAS,
    TOLERANCE,
    plain_space,
    split_of,
    stops_now,
)
from benchmarks.docs import markdown
from benchmarks.seeds import Bench
from benchmarks.transfer_data import load_table
from metakel import learn_prior
from metakel.data import History
from metakel.gp import posterior
from metakel.priors import Prior

ROWS, PATIENCE, DRAWS = 50, 10, 512
OPTUNA_FEWEST = 20  # trials before a Terminator decides, by default
SPLITS = {"glmnet": 4, "xgboost": 2}  # one split of other tables
FIRST_SPLIT = 100  # smaller ones were looked at while certificates were made


@dataclass(frozen=True, eq=False)
class Sequence:
    """One search.

    Parameters
    ----------
    prior : Prior
    X, y : (n, d0) and (n,) arrays
        All candidates of the task.
    rows : (t,) array
        Which of them were tried.
    stops : dict of int
        After how many values ``stop_at`` ends the search, by delta; 0 if it does not.
    tolerance : float
    """

    prior: Prior
    X: np.ndarray
    y: np.ndarray
    rows: np.ndarray
    stops: dict[float, int]
    tolerance: float

    @property
    def regret(self) -> np.ndarray:
        """(t,) of the best value so far."""
        return self.y.max() - np.maximum.accumulate(self.y[self.rows])


Rule = Callable[[Sequence], int]


def sequences(table: str, split: int) -> list[Sequence]:
    """The searches of the new tasks of a split."""
    taught, new = split_of(load_table(table), ROWS, split, 8)
    prior = learn_prior(History.from_pairs(taught), plain_space(taught[0][0].shape[1]))
    return [_search(prior, X, y) for X, y in new]


def _search(prior: Prior, X: np.ndarray, y: np.ndarray) -> Sequence:
    rows_of = {tuple(x): i for i, x in enumerate(X.tolist())}
    optimizer, rows = prior.optimizer(X, delta=DELTAS[0]), []
    stops = dict.fromkeys(DELTAS, 0)
    for _ in range(min(BUDGET, len(rows_of))):
        x = optimizer.ask()
        rows.append(rows_of[tuple(x.values())])
        optimizer.tell(x, y[rows[-1]])
        for delta in DELTAS:
            if not stops[delta] and stops_now(optimizer, delta):
                stops[delta] = len(rows)
    tolerance = TOLERANCE * prior.certificate.spread
    return Sequence(prior, X, y, np.array(rows), stops, tolerance)


def first(sure: np.ndarray) -> int:
    """The first time at which a rule is sure; all if it never is."""
    return int(sure.argmax()) + 1 if sure.any() else len(sure)


def by_stop_at(delta: float) -> Rule:
    return lambda s: s.stops[delta] or len(s.rows)


def no_improvement(s: Sequence) -> int:
    best = np.maximum.accumulate(s.y[s.rows])
    same = [t >= PATIENCE and best[t] <= best[t - PATIENCE] for t in range(len(best))]
    return first(np.array(same))


def by_probability(delta: float) -> Rule:
    """Wilson 2024, with the Gaussian process that the prior calibrates its bands with."""

    def rule(s: Sequence) -> int:
        about = s.prior.calibration
        rng, sure = np.random.default_rng(0), []
        center = about.center(s.X)
        for t in range(1, len(s.rows) + 1):
            rows = s.rows[:t]
            known = posterior(
                about.kernel, s.X[rows], s.y[rows] - center[rows], noise_var=about.noise_std**2
            )
            draws = known.sample(s.X, rng, DRAWS) + center  # (DRAWS, n)
            best = rows[int(s.y[rows].argmax())]
            within = draws.max(axis=1) - draws[:, best] <= s.tolerance
            sure.append(within.mean() >= 1 - delta)
            if sure[-1]:
                break
        return first(np.array(sure)) if sure[-1] else len(s.rows)

    return rule


def by_optuna(name: str) -> Rule:
    """An improvement evaluator of Optuna, compared with the tolerance."""

    def rule(s: Sequence) -> int:
        import optuna
        import optuna.terminator

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = getattr(optuna.terminator, name)(seed=0)
        ranges = {
            f"x{i}": optuna.distributions.FloatDistribution(-1, 1) for i in range(s.X.shape[1])
        }
        study = optuna.create_study(direction="maximize")
        for t, row in enumerate(s.rows):
            params = {f"x{i}": float(v) for i, v in enumerate(s.X[row])}
            trial = optuna.trial.create_trial(
                params=params, distributions=ranges, value=float(s.y[row])
            )
            study.add_trial(trial)
            if t + 1 >= OPTUNA_FEWEST and (
                evaluator.evaluate(study.trials, study.direction) < s.tolerance
            ):
                return t + 1
        return len(s.rows)

    return rule


RULES: dict[str, Rule] = {
    "fixed budget": lambda s: len(s.rows),
    f"no improvement in {PATIENCE}": no_improvement,
    "Optuna RegretBoundEvaluator": by_optuna("RegretBoundEvaluator"),
    "Optuna EMMREvaluator": by_optuna("EMMREvaluator"),
    **{f"probability of regret, delta {delta:g}": by_probability(delta) for delta in DELTAS},
    **{f"metakel stop_at, delta {delta:g}": by_stop_at(delta) for delta in DELTAS},
}


def stops_of_split(table: str, split: int) -> dict[str, Any]:
    """Where every rule stops in every search of a split; JSON."""
    logging.disable(logging.WARNING)  # alarms are part of what is measured
    found = []
    for s in sequences(table, split):
        stops = {label: rule(s) for label, rule in RULES.items()}
        found.append({"stops": stops, "regret": s.regret.tolist(), "tolerance": s.tolerance})
    return {"searches": found}


def stopping_table(place: Bench, names: Iterable[str], *, quick: bool = False) -> str:
    """All rules on all tables, as Markdown."""
    lines = []
    for name in names:
        end = FIRST_SPLIT + (1 if quick else SPLITS.get(name, 1))
        once = partial(stops_of_split, name)
        results = place.measured(f"stopping-{name}", once, range(FIRST_SPLIT, end))
        found = [search for result in results for search in result["searches"]]
        lines += [_line(name, label, found) for label in RULES if found]
    head = ["table", "rule", "evaluations", "stopped early", "above tolerance", "worst regret"]
    return markdown(head, lines)


def _line(name: str, label: str, found: list[dict[str, Any]]) -> list[str]:
    stops = np.array([search["stops"][label] for search in found])
    regret = np.array([s["regret"][stop - 1] for s, stop in zip(found, stops, strict=True)])
    early = np.array([stop < len(s["regret"]) for s, stop in zip(found, stops, strict=True)])
    above = regret > np.array([search["tolerance"] for search in found])
    return [
        name,
        label,
        f"{stops.mean():.1f}",
        f"{early.sum()} of {len(found)}",
        f"{above.mean():.2f}",
        f"{regret.max():.4f}",
    ]
