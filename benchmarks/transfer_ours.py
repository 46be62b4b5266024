"""Our own entries of `benchmarks.transfer`, through the public interface only."""

from __future__ import annotations

from functools import partial
from math import ceil

import numpy as np

from benchmarks.transfer_rivals import History, Look, Method, Search
from metakel import learn_prior
from metakel.data import History as Recorded
from metakel.gp.processes import ColdProcess
from metakel.optimize import Model, Score
from metakel.optimize.acquisition import Acquisition
from metakel.priors import Prior
from metakel.space import Float, Space

FOLDS, STEPS, SURE = 3, 15, 0.8  # replays that calibrate the width of an upper bound


def learned(
    history: History, rng: np.random.Generator, *, acquisition: str | None = None, **options
):
    """Learn a prior, then ask and tell over the rows of the new task."""
    return partial(search_with, prior_of(history, **options), acquisition)


def prior_of(history: History, **options) -> Prior:
    """A prior without certificates."""
    d = history[0][0].shape[1]
    space = Space(tuple(Float(f"x{i}", -1.0, 1.0) for i in range(d)))
    return learn_prior(Recorded.from_pairs(history), space, certify="none", **options)


def calibrated_width(history: History, rng: np.random.Generator) -> Search:
    """Mean plus so many standard deviations that it exceeds the optimum in 4 of 5 past tasks.

    At the best row, at all of 15 times: the upper bound that replays on past tasks certify.
    """
    needed = []
    for k in range(min(FOLDS, len(history))):
        prior = prior_of([pair for s, pair in enumerate(history) if s % FOLDS != k])
        needed += [needed_width(prior, X, y) for X, y in history[k::FOLDS]]
    width = sorted(needed)[min(ceil(SURE * (len(needed) + 1)), len(needed)) - 1]

    def upper(model: Model, best: float | None) -> Score:
        def values(Z: np.ndarray) -> np.ndarray:
            mean, sd = model.predict(Z)
            return np.asarray(mean + width * sd)

        return (model.first_score() if best is None else None) or Score(values)

    return partial(search_with, prior_of(history), upper)


def needed_width(prior: Prior, X: np.ndarray, y: np.ndarray) -> float:
    """How many standard deviations the best row was above its mean, at most, until it was tried."""
    top, widest = int(y.argmax()), 0.0
    optimizer = prior.optimizer(X)
    numbers = {tuple(row): i for i, row in enumerate(X.tolist())}
    for _ in range(min(STEPS, len(numbers))):
        asked = optimizer.ask()
        row = numbers[tuple(asked.values())]
        optimizer.tell(asked, float(y[row]))
        if row == top:
            break
        mean, sd = optimizer.predict(X[[top]])
        widest = max(widest, float((y[top] - mean[0]) / sd[0]))
    return widest


def search_with(
    prior: Prior,
    acquisition: str | Acquisition | None,
    X: np.ndarray,
    look: Look,
    horizon: int,
    rng: np.random.Generator,
) -> list[int]:
    """Rows in the order in which the optimizer asks for them."""
    numbers = {tuple(row): i for i, row in enumerate(X.tolist())}
    optimizer = prior.optimizer(X, acquisition=acquisition)
    rows = []
    for _ in range(min(horizon, len(X))):
        asked = optimizer.ask()
        rows.append(numbers[tuple(asked.values())])
        optimizer.tell(asked, look(rows[-1]))
    return rows


def hand_set(acquisition: str) -> Method:
    """A hand-set Matern kernel with level and scale from the history: the guard of our own."""

    def method(history: History, rng: np.random.Generator) -> Search:
        class Cold(Prior):
            @property
            def task_processes(self):
                return (ColdProcess.typical(self.space.d0),), (1.0,)

            @property
            def helps(self):
                return True  # or it would be refitted

        prior = learned(history, rng).args[0]
        cold = Cold(**{name: getattr(prior, name) for name in prior.__dataclass_fields__})
        return partial(search_with, cold, acquisition)

    return method


OURS: dict[str, Method] = {
    "metakel": learned,
    "metakel, EI": partial(learned, acquisition="ei"),
    "metakel, calibrated width": calibrated_width,
    "metakel, no guard": partial(learned, cold_weight=0.0),
    "metakel, zero mean (paper)": partial(learned, mean=False, cold_weight=0.0),
    "hand-set Matern": hand_set("ucb"),
}
