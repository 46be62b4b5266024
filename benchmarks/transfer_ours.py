"""Our own entries of `benchmarks.transfer`, through the public interface only."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.transfer_rivals import History, Look, Method, Search
from metakel import learn_prior
from metakel.data import History as Recorded
from metakel.gp.task_gp import DefaultGP
from metakel.priors import Prior
from metakel.space import Float, Space


def learned(history: History, rng: np.random.Generator, *, acquisition: str = "ucb", **options):
    """Learn a prior, then ask and tell over the rows of the new task."""
    d = history[0][0].shape[1]
    space = Space(tuple(Float(f"x{i}", -1.0, 1.0) for i in range(d)))
    prior = learn_prior(Recorded.from_pairs(history), space, certify="none", **options)
    return partial(search_with, prior, acquisition)


def search_with(
    prior: Prior,
    acquisition: str,
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
    """A hand-set Matern kernel with level and scale from the history: our cold start."""

    def method(history: History, rng: np.random.Generator) -> Search:
        class Cold(Prior):
            @property
            def task_processes(self):
                return (DefaultGP.typical(self.space.d0),), (1.0,)

        prior = learned(history, rng).args[0]
        cold = Cold(**{name: getattr(prior, name) for name in prior.__dataclass_fields__})
        return partial(search_with, cold, acquisition)

    return method


OURS: dict[str, Method] = {
    "metakel": learned,
    "metakel, EI": partial(learned, acquisition="ei"),
    "metakel, no guard": partial(learned, cold_weight=0.0),
    "metakel, zero mean (paper)": partial(learned, mean=False, cold_weight=0.0),
    "hand-set Matern": hand_set("ucb"),
}
