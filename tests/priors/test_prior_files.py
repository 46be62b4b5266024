"""A prior as a file: what was saved comes back, and what is damaged is refused by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
from histories import simulate
from named_runs import run, table

from metakel import Prior, learn_prior
from metakel.data import History
from metakel.errors import InputError
from metakel.space import Categorical, Float, Space


@pytest.fixture(scope="module")
def prior():
    rows = table(np.random.default_rng(0))
    return learn_prior(History.from_frame(rows, task="task", output="loss", minimize=True))


def test_save_and_load_give_the_same_decisions(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    again = Prior.load(tmp_path / "prior.json")
    one, other = (run(p.optimizer(rng=np.random.default_rng(7)), 8) for p in (prior, again))
    assert [t.point for t in one.record.trials] == [t.point for t in other.record.trials]
    assert str(again) == str(prior)
    assert again.norm_bound(0.2) == prior.norm_bound(0.2)
    rows = prior.space.decode(prior.space.sample(np.random.default_rng(0), 4))
    for mine, theirs in zip(
        prior.confidence(delta=0.5).interval(rows),
        again.confidence(delta=0.5).interval(rows),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_foreign_and_damaged_files_are_refused(prior, tmp_path):
    file = tmp_path / "prior.json"
    prior.save(file)
    content = json.loads(file.read_text())
    for change, message in (
        ({"version": 99}, "expected"),
        ({"format": "other"}, "expected"),
        ({"task_gp": {}}, "prior.json.task_gp has no entry 'basis'"),
        (
            {"info": {**content["info"], "runs": "many"}},
            r"prior.json.info.runs is 'many'; expected int",
        ),
    ):
        file.write_text(json.dumps({**content, **change}))
        with pytest.raises(InputError, match=message):
            Prior.load(file)
    file.write_text("not json")
    with pytest.raises(InputError, match="not a saved prior"):
        Prior.load(file)
    with pytest.raises(InputError, match="no file"):
        Prior.load(tmp_path / "none.json")


def test_priors_without_shape_or_calibration_are_saved_too(tmp_path):
    for history in (
        History.from_pairs([([[0.0], [1.0]], [2.0, 2.0])]),
        History(simulate(np.random.default_rng(0), m=2).tasks),
    ):
        prior = learn_prior(history)
        prior.save(tmp_path / "prior.json")
        assert str(Prior.load(tmp_path / "prior.json")) == str(prior)


def places(content, path=()):
    """Where something stands in a file: keys of tables, and the first of a list."""
    entries = content.items() if isinstance(content, dict) else enumerate(content[:1])
    for key, entry in entries:
        yield (*path, key)
        if isinstance(entry, (dict, list)):
            yield from places(entry, (*path, key))


def changed(content, path, value):
    copy = json.loads(json.dumps(content))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


# Texts and lists of texts, of which any is as good as another.
FREE = {("info", name) for name in ("tasks", "notes", "output", "lam", "constant", "model")}
FREE |= {("space", "parameters", 0, "name"), ("best_runs", "output")}
FREE |= {("certificate", part) for part in ("table", "space")}  # why there are no scores


@pytest.mark.parametrize("junk", ["junk", {"a": 1}, [[1], [2, 3]], -7, None], ids=str)
def test_damage_anywhere_is_refused_with_the_name_of_the_file(prior, tmp_path, junk):
    file = tmp_path / "prior.json"
    prior.save(file)
    content = json.loads(file.read_text())
    for path in places(content):
        # A part may be absent as a whole, a level may be negative, and names are anyone's.
        fits = path[:2] in FREE or path in FREE or (junk is None and path[-1] in MAY_BE_NONE)
        if fits or (junk == -7 and path[-1] in MAY_BE_NEGATIVE):
            continue
        if path[:2] == ("replays", "tasks") and len(path) == 3 and isinstance(junk, str):
            continue  # a task that was left out of learning has a name of its own
        file.write_text(json.dumps(changed(content, path, junk)))
        with pytest.raises(InputError, match=r"prior\.json"):
            Prior.load(file)


MAY_BE_NONE = {
    "task_gp",
    "calibration",
    "step",
    "certificate",
    "past",
    "best_runs",
    "success",
    "library",
}
MAY_BE_NONE |= {"output_range", "replays"}
MAY_BE_NEGATIVE = {"level", "low", "runs", "winsorized", 0}


def test_arrays_with_flags_constants_and_tuples_are_saved_and_decide_alike(tmp_path):
    rng = np.random.default_rng(0)
    layers = [((64,), (64, 64))[i] for i in rng.integers(2, size=120)]
    columns = {
        "task": np.repeat(np.arange(6), 20),
        "x": rng.uniform(0, 1, 120),
        "flag": rng.random(120) < 0.5,
        "epochs": np.full(120, 10),
        "layers": layers,
        "y": rng.standard_normal(120),
    }
    history = History.from_frame(columns, task="task", output="y")
    prior = learn_prior(history, cold_weight=np.float32(0.25), certify="none")
    prior.save(tmp_path / "prior.json")
    again = Prior.load(tmp_path / "prior.json")
    assert again.space == prior.space
    assert again.beside.cold_weight == 0.25
    one, other = (p.optimizer(rng=np.random.default_rng(7)).ask() for p in (prior, again))
    assert one == other
    assert one["layers"] in ((64,), (64, 64))


def test_a_choice_that_no_file_can_hold_is_named(tmp_path):
    history = simulate(np.random.default_rng(0), m=2)
    points = tuple(t.X for t in history)
    space = Space((Float("x", -1, 1), Categorical("when", (np.datetime64("2020"), "later"))))
    tasks = [(np.column_stack([X[:, 0], np.eye(2)[(X[:, 1] > 0) * 1]]), X[:, 0]) for X in points]
    prior = learn_prior(History(History.from_pairs(tasks).tasks, space))
    with pytest.raises(InputError, match=r"'when' has the value .*2020.*a file cannot hold"):
        prior.save(tmp_path / "prior.json")
    assert not (tmp_path / "prior.json").exists()
