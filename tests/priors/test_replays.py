"""What replays on past tasks leave in the prior: regret after every value, beside random search."""

from __future__ import annotations

import numpy as np
import pytest
from histories import simulate

from metakel import learn_prior
from metakel.errors import ShapeError
from metakel.priors import Replays
from metakel.priors.regret_calibration import EVALUATIONS


@pytest.fixture(scope="module")
def prior():
    return learn_prior(simulate(np.random.default_rng(3), m=8))


def test_regret_falls_and_is_below_that_of_random_search(prior):
    found = prior.replays
    assert found.regret.shape == found.random.shape == (len(found.tasks), EVALUATIONS)
    assert set(found.tasks) <= set(prior.info.tasks)
    assert (np.diff(found.regret, axis=1) <= 1e-12).all()
    assert (found.regret >= 0).all()
    assert found.regret[:, :5].mean() < found.random[:, :5].mean()
    assert found.worse_than_random == ()
    assert found.within(0.9, EVALUATIONS) <= found.within(0.9, 1)


def test_without_replays_there_are_none():
    history = simulate(np.random.default_rng(3), m=8)
    assert learn_prior(history, certify="none").replays is None
    assert learn_prior(history[:3]).replays is None
    assert learn_prior(history, certify="exact").replays is not None


def test_a_row_for_every_task_is_expected():
    with pytest.raises(ShapeError, match="expected a row for every task"):
        Replays(("a", "b"), np.zeros((1, 3)), np.zeros((1, 3)))
