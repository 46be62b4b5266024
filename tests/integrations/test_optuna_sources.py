"""Source studies of a storage as they are: some do not fit, and one never blocks the rest."""

from __future__ import annotations

import logging

import optuna
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.integrations.optuna import MetaKelSampler, Studies

optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture(scope="module")
def storage():
    """Five studies of one kind, of which one has another name of its parameter; four others."""
    found = optuna.storages.InMemoryStorage()

    def study(name, objective, **options):
        made = optuna.create_study(
            study_name=name, storage=found, sampler=optuna.samplers.RandomSampler(seed=0), **options
        )
        made.optimize(objective, n_trials=8)

    for k in range(4):
        study(f"svm-{k}", lambda t, k=k: (t.suggest_float("lr", 0, 1) - 0.4) ** 2 + k)
    study("old", lambda t: (t.suggest_float("learning_rate", 0, 1) - 0.4) ** 2)
    study("up", lambda t: -((t.suggest_float("lr", 0, 1) - 0.4) ** 2), direction="maximize")
    study("two", lambda t: (t.suggest_float("lr", 0, 1), 1.0), directions=["minimize", "minimize"])
    study("other", lambda t: t.suggest_int("width", 1, 9) / 9)
    study("words", lambda t: len(t.suggest_categorical("lr", ["low", "high"])))
    return found


def test_studies_that_do_not_fit_are_left_out_with_a_line_each(storage, caplog):
    with caplog.at_level(logging.WARNING, "metakel"):
        sampler = MetaKelSampler(storage, seed=0)
    reasons = {"old": "learning_rate", "up": "maximises", "two": "2 objectives", "other": "width",
               "words": "most others have numbers"}  # fmt: skip
    assert len(sampler.skipped) == len(reasons)
    for name, why in reasons.items():
        (line,) = [text for text in sampler.skipped if repr(name) in text]
        assert why in line
        assert line in caplog.text
    assert set(sampler.prior.info.tasks) == {f"svm-{k}" for k in range(4)}
    report = str(History.from_optuna(storage).report)
    assert all(line in report for line in sampler.skipped)


def test_names_filters_and_other_names(storage):
    chosen = Studies(storage, names=["svm-*", "old"], rename={"learning_rate": "lr"})
    history = History.from_optuna(chosen)
    assert [task.name for task in history] == [*(f"svm-{k}" for k in range(4)), "old"]
    assert history.space.names == ("lr",)
    assert MetaKelSampler(chosen).skipped == ()
    few = History.from_optuna(Studies(storage, where=lambda s: s.study_name in ("svm-0", "svm-2")))
    assert [task.name for task in few] == ["svm-0", "svm-2"]
    with pytest.raises(InputError, match="no study 'tree-\\*'; found svm-0"):
        History.from_optuna(Studies(storage, names=["tree-*"]))
    with pytest.raises(InputError, match="names beside their storage"):
        MetaKelSampler(["svm-0"])


def test_a_study_with_both_names_is_left_out(storage):
    both = optuna.create_study(study_name="both", sampler=optuna.samplers.RandomSampler(seed=0))
    both.optimize(lambda t: t.suggest_float("lr", 0, 1) + t.suggest_float("a", 0, 1), n_trials=4)
    sampler = MetaKelSampler(
        Studies([both, *Studies(storage, names=["svm-*"]).load()], rename={"a": "lr"})
    )
    assert "has both 'a' and 'lr'" in sampler.skipped[0]
    assert sampler.prior is not None
