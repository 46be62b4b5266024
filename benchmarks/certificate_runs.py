"""Searches whose certificates are compared with the true regret, for `benchmarks.certificate`.

One search serves all deltas: what is tried does not depend on delta, only when it ends does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

import numpy as np

from benchmarks.certificate_worlds import FAMILIES, GRID, maximum
from benchmarks.transfer_data import Pairs, load_table
from metakel import learn_prior
from metakel.data import History
from metakel.optimize import Optimizer
from metakel.optimize.replays import RegretScores
from metakel.priors import Prior
from metakel.space import Float, Space

BUDGET, SPACE_BUDGET = 40, 25
DELTAS = (0.1, 0.2)
TOLERANCE = 0.05
TAUGHT = 0.75
TEACHING, NEW = 20, 8


@dataclass(frozen=True, eq=False)
class Search:
    """One search: true regrets (t,), certificates (t,) by delta, and the spread of a task.

    A certificate is inf where nothing is promised. ``alarm`` is after how many values an alarm
    ended it; 0 if none did. ``stops`` is after how many values ``stop_at`` ends the search, by
    delta; 0 if it does not.
    """

    regret: np.ndarray
    certificates: dict[float, np.ndarray]
    spread: float
    alarm: int
    stops: dict[float, int]

    def wrong(self, delta: float) -> bool:
        """Whether a certificate was below the true regret."""
        return bool((self.regret > self.certificates[delta] + 1e-9).any())

    def lasted(self, delta: float) -> bool:
        """Whether something was promised to the end."""
        return isfinite(self.certificates[delta][-1])

    def small(self, delta: float) -> int:
        """Evaluations until the certificate itself is at most 5 % of the spread, or all."""
        sure = np.flatnonzero(self.certificates[delta] <= TOLERANCE * self.spread)
        return int(sure[0]) + 1 if len(sure) else len(self.regret)

    def evaluations(self, delta: float) -> int:
        """Evaluations until ``stop_at`` ends the search, or all."""
        return self.stops[delta] or len(self.regret)

    def missed(self, delta: float) -> bool:
        """Whether the regret at the end exceeds the tolerance."""
        return bool(self.regret[self.evaluations(delta) - 1] > TOLERANCE * self.spread)

    def to_json(self) -> dict[str, Any]:
        found = {
            str(delta): [value if isfinite(value) else None for value in bounds]
            for delta, bounds in self.certificates.items()
        }
        return {
            "regret": self.regret.tolist(),
            "certificates": found,
            "spread": self.spread,
            "alarm": self.alarm,
            "stops": {str(delta): stop for delta, stop in self.stops.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Search:
        found = {
            float(delta): np.array([inf if value is None else value for value in bounds])
            for delta, bounds in data["certificates"].items()
        }
        stops = {float(delta): stop for delta, stop in data["stops"].items()}
        return cls(np.array(data["regret"]), found, data["spread"], data["alarm"], stops)


def bound(optimizer: Optimizer, scores: RegretScores | str, delta: float) -> float:
    """The certificate of an optimizer at another delta than its own."""
    if isinstance(scores, str) or scores.missing(delta) or optimizer.alarm is not None:
        return inf
    model = optimizer.model
    factor, best = scores.factor(delta), float(optimizer.y.max())
    if scores.basis == "emulated":
        row, regret = model.trace.last(optimizer.y, factor, scores.horizon)
        best = float(optimizer.y[row])
    else:
        regret = model.trace.ceiling(factor, scores.horizon) - best
    return max(min(regret, model.output_range[1] - best), 0.0)


def stops_now(optimizer: Optimizer, delta: float) -> bool:
    """Whether ``stop_at`` ends the search at 5 % of the spread, at another delta than its own."""
    certificate = optimizer.certificate()
    rule = certificate.stopping
    if rule is None:
        return False
    asked = replace(certificate, delta=delta, stopping=replace(rule, delta=delta))
    return bool(asked.reached(f"{TOLERANCE:.0%}"))


class Watch:
    """What is known after every value of a search."""

    def __init__(self, prior: Prior, scores: RegretScores | str) -> None:
        self._prior, self._scores = prior, scores
        self._regret: list[float] = []
        self._bounds: dict[float, list[float]] = {delta: [] for delta in DELTAS}
        self._stops = dict.fromkeys(DELTAS, 0)

    def look(self, optimizer: Optimizer, regret: float) -> None:
        self._regret.append(regret)
        for delta, bounds in self._bounds.items():
            bounds.append(bound(optimizer, self._scores, delta))
            if not self._stops[delta] and stops_now(optimizer, delta):
                self._stops[delta] = len(self._regret)

    def search(self, optimizer: Optimizer, spread: float) -> Search:
        found = {delta: np.array(bounds) for delta, bounds in self._bounds.items()}
        alarm = 0 if optimizer.alarm is None else optimizer.alarm.time
        return Search(np.array(self._regret), found, spread, alarm, self._stops)


def split_of(tasks: Pairs, rows: int, split: int, stream: int) -> tuple[Pairs, Pairs]:
    """Tasks that teach and new ones, each with as many rows."""
    rng = np.random.default_rng([split, rows, stream])
    chosen = [rng.choice(len(y), min(rows, len(y)), replace=False) for _, y in tasks]
    part = [(X[i] + 0.0, y[i]) for (X, y), i in zip(tasks, chosen, strict=True)]
    order = rng.permutation(len(part))
    taught, new = np.split(order, [round(TAUGHT * len(part))])
    return [part[s] for s in taught], [part[s] for s in new]


def plain_space(d: int) -> Space:
    """Numeric columns in [-1, 1]."""
    return Space(tuple(Float(f"x{i}", -1.0, 1.0) for i in range(d)))


def table_split(table: str, rows: int, split: int) -> dict[str, Any]:
    """Learn from one split of a table and search its new tasks; JSON."""
    logging.disable(logging.WARNING)  # alarms are part of what is measured
    taught, new = split_of(load_table(table), rows, split, 5)
    start = time.process_time()
    prior = learn_prior(History.from_pairs(taught), plain_space(taught[0][0].shape[1]))
    seconds = time.process_time() - start
    scores = prior.certificate.table
    searches = [_search_table(prior, scores, X, y).to_json() for X, y in new]
    return {"seconds": seconds, "honest": _honest(scores), "searches": searches}


def _honest(scores: RegretScores | str) -> list[float]:
    """How often promises may fail with this very history, with confidence 0.9, by delta."""
    if isinstance(scores, str):
        return [1.0 for _ in DELTAS]
    return [scores.failure_probability(delta) for delta in DELTAS]


def _search_table(prior: Prior, scores: RegretScores | str, X: np.ndarray, y: np.ndarray) -> Search:
    optimizer, watch = prior.optimizer(X, delta=DELTAS[0]), Watch(prior, scores)
    values = {tuple(x): value for x, value in zip(X.tolist(), y.tolist(), strict=True)}
    for _ in range(min(BUDGET, len(values))):
        x = optimizer.ask()
        optimizer.tell(x, values[tuple(x.values())])
        watch.look(optimizer, max(values.values()) - float(optimizer.y.max()))
    return watch.search(optimizer, prior.certificate.spread)


def space_repeat(family: str, rows: int, noise: float, repeat: int) -> dict[str, Any]:
    """Learn from 20 functions of a family and search new ones over the whole space; JSON."""
    logging.disable(logging.WARNING)
    rng = np.random.default_rng([repeat, rows, 6])
    pairs = []
    for _ in range(TEACHING):
        f, X = FAMILIES[family](rng), rng.uniform(-1, 1, (rows, 2))
        pairs.append((X, f(X) + noise * f(GRID).std() * rng.standard_normal(rows)))
    space = Space((Float("a", -1.0, 1.0), Float("b", -1.0, 1.0)))
    prior = learn_prior(History.from_pairs(pairs), space)
    searches = [_search_space(prior, FAMILIES[family](rng), noise, rng) for _ in range(NEW)]
    return {"searches": [search.to_json() for search in searches]}


def _search_space(prior: Prior, f: Any, noise: float, rng: np.random.Generator) -> Search:
    optimizer, watch = prior.optimizer(delta=DELTAS[0]), Watch(prior, prior.certificate.space)
    best, size, true = maximum(f), noise * f(GRID).std(), []
    for _ in range(SPACE_BUDGET):
        x = optimizer.ask()
        true.append(float(f(np.array([list(x.values())]))[0]))
        optimizer.tell(x, true[-1] + size * rng.standard_normal())
        watch.look(optimizer, max(best - true[int(np.argmax(optimizer.y))], 0.0))
    return watch.search(optimizer, float(np.ptp(f(GRID))))


def searches_of(results: Sequence[dict[str, Any]]) -> list[Search]:
    """Of all splits or repeats."""
    return [Search.from_json(entry) for result in results for entry in result["searches"]]
