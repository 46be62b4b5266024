"""str(prior): plain sentences that say what was learned and how far to trust it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from histories import simulate

from metakel import learn_prior, library
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.priors.prior import Beside


@pytest.fixture(scope="module")
def prior():
    return learn_prior(simulate(np.random.default_rng(0), m=20))


def test_a_prior_that_helps_says_by_how_much_and_on_how_many_tasks(prior):
    text = str(prior)
    score, better = prior.heldout.log_score, prior.heldout.better_than_cold
    check = f"Held-out check passed: {score:+.2f} nats per observation over white noise"
    assert f"{check} (threshold 0.1)." in text
    assert f"Better than a cold start on {better} of 20 held-out tasks." in text
    assert "a cold start beside it has weight 0.05 at first" in text
    assert f"{prior.task_gp.eta.size} of 100 principal functions are needed" in text
    assert f"Norm bound: {prior.norm_bound(0.1):.3g} at 90% confidence" in text
    assert re.fullmatch(r"Prior from 20 tasks, 500 runs: maximise y; x0, x1\.", text.split("\n")[0])
    assert all(line.startswith("  ") for line in text.split("\n")[1:])


def test_what_could_not_be_checked_is_said(prior):
    history = simulate(np.random.default_rng(2), m=1)
    text = str(learn_prior(history))
    assert (
        "No held-out check: one task cannot be checked against others. The history is used" in text
    )
    assert "Norm bound: none, it takes at least 4 tasks that vary." in text
    flat = History((Task(history[0].X, np.ones(25), "flat"),))
    text = str(learn_prior(flat))
    assert "No past task varies, so nothing was learned" in text
    assert "Not learned from, as all values are equal: flat." in text
    few = str(learn_prior(simulate(np.random.default_rng(2), m=6)))
    assert "Norm bound: none at 90% confidence, only 3 tasks were held out." in few
    assert "without a cold start beside it" in str(replace(prior, beside=Beside(0.0)))


def test_why_there_is_no_norm_bound_is_said():
    half = learn_prior(simulate(np.random.default_rng(2), m=6), certify="exact")
    assert "at least 4 tasks that vary. Learned from: 3." in str(half)
    of_library = library.load("knn", "auc")
    assert "Norm bound: none, priors of the library are kept without it." in str(of_library)
    with pytest.raises(InputError, match="priors of the library are kept without it"):
        of_library.confidence()


def test_shares_are_parts_of_one_variance_also_with_many_parameters():
    rng = np.random.default_rng(0)
    names = [f"p{i}" for i in range(6)]
    rows: dict[str, list] = {name: [] for name in ("task", *names, "kind", "y")}
    for s in range(9):
        for _ in range(14):
            x, kind = rng.uniform(-1, 1, 6), str(rng.choice(["a", "b", "c"]))
            value = float(x @ np.arange(1, 7)) - (x[0] - 0.3) ** 2 + 3 * (kind == "a")
            for name, cell in zip(rows, (s, *x, kind, value), strict=True):
                rows[name].append(cell)
    history = History.from_frame(rows, task="task", output="y")
    found = learn_prior(history, certify="none").explain()
    for shares in (found.common, found.differences):
        assert min(shares.values()) >= 0
        assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
