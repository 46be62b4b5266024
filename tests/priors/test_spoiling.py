"""A column that spoils the held-out check is named, and nothing is blamed by chance."""

from __future__ import annotations

import numpy as np
import pytest

import metakel as mk


def runs(seed: int, weather: int, *, shuffled: bool = False) -> mk.History:
    """Eight tasks of twelve runs: two settings that matter, and columns that do not."""
    rng = np.random.default_rng(seed)
    others = [f"weather {i}" for i in range(weather)]
    rows: dict[str, list] = {name: [] for name in ("task", "a", "b", *others, "score")}
    best = rng.uniform(-0.5, 0.5, 2)
    for s in range(8):
        shift = 0.2 * rng.standard_normal(2)
        for _ in range(12):
            x = rng.uniform(-1, 1, 2)
            value = -((x - best - shift) ** 2).sum() + 0.3 * rng.standard_normal()
            cells = (s, *x, *rng.uniform(-1, 1, weather), value)
            for name, cell in zip(rows, cells, strict=True):
                rows[name].append(cell)
    if shuffled:
        rows["score"] = rng.permutation(rows["score"]).tolist()
    return mk.History.from_frame(rows, task="task", output="score")


def blamed(prior: mk.Prior) -> list[str]:
    return [note for note in prior.info.notes if "the held-out check passes" in note]


def test_the_column_that_turns_the_check_is_named_and_leaving_it_out_passes():
    history = runs(3, 1)
    prior = mk.learn_prior(history, certify="none")
    assert not prior.helps
    (note,) = blamed(prior)
    assert note.startswith("without weather 0 the held-out check passes")
    assert "--exclude 'weather 0'" in note
    assert note in str(prior)
    kept = mk.History(tuple(mk.Task(t.X[:, :2], t.y, t.name) for t in history))
    assert mk.learn_prior(kept, certify="none").helps


def test_a_check_that_passes_blames_nothing():
    prior = mk.learn_prior(runs(0, 1), certify="none")
    assert prior.helps
    assert not blamed(prior)


@pytest.mark.parametrize("seed", range(6))
def test_where_the_outputs_say_nothing_no_column_is_blamed(seed):
    prior = mk.learn_prior(runs(seed, 2, shuffled=True), certify="none")
    assert not prior.helps
    assert not blamed(prior)


def test_what_is_named_does_not_matter_in_most_cases():
    """Also two columns; a setting that matters is hardly ever named with them."""
    named = [
        note.split(" the held-out")[0]
        for seed in range(12)
        for note in blamed(mk.learn_prior(runs(seed, 2), certify="none"))
    ]
    assert len(named) >= 2
    assert all(note.startswith("without weather") for note in named)
