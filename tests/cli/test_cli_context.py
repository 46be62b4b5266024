"""``suggest --given`` and ``learn --journals``: contexts and finished runs, without Python."""

from __future__ import annotations

import json

import numpy as np
import pytest

import metakel as mk
from metakel.errors import InputError

PAST = ("past.csv", "--task", "building", "--output", "cost", "--minimize")


def cost(supply, outdoor, radiators=1.0):
    return 0.02 * (supply - outdoor) + 0.0015 * ((20 - outdoor) - radiators * (supply - 20)) ** 2


@pytest.fixture
def table(tmp_path):
    """Eight buildings: the setting, the weather, and what it cost."""
    rng, lines = np.random.default_rng(0), ["building,supply,outdoor,floors,cost"]
    for building in range(8):
        radiators = rng.uniform(0.9, 1.3)
        for supply, outdoor in rng.uniform([25, -15], [65, 15], size=(20, 2)):
            value = cost(supply, outdoor, radiators) + 0.02 * rng.normal()
            lines.append(f"b{building},{supply:.1f},{outdoor:.1f},{building % 3},{value:.4f}")
    path = tmp_path / "past.csv"
    path.write_text("\n".join(lines))
    return path


def test_one_journal_has_suggestions_for_many_contexts(metakel, table):
    assert metakel("learn", *PAST, "-o", "p.json").code == 0
    chosen = {}
    for outdoor in (-10.0, 10.0):
        said = ("suggest", "p.json", "--journal", "j.jsonl", "--given", f"outdoor={outdoor:g}")
        found = metakel(*said, "--json")
        assert found.code == 0, found.err
        (suggestion,) = json.loads(found.out)
        assert suggestion["configuration"]["outdoor"] == outdoor
        chosen[outdoor] = suggestion["configuration"]["supply"]
        value = cost(chosen[outdoor], outdoor)
        assert metakel("tell", "j.jsonl", value, "--number", suggestion["number"]).code == 0
    assert chosen[-10.0] > chosen[10.0]  # colder outside, warmer inside the pipes
    wrong = metakel("suggest", "p.json", "--given", "humidity=3")
    assert wrong.code != 0
    assert "humidity" in wrong.err


def test_a_folder_of_journals_teaches_the_next_prior(metakel, table, tmp_path):
    metakel("learn", *PAST, "-o", "p.json")
    (tmp_path / "runs").mkdir()
    for number, value in enumerate((1.25, 1.5)):
        journal = tmp_path / "runs" / f"site {number}.jsonl"
        metakel("suggest", "p.json", "--journal", journal, "-n", 2)
        metakel("tell", journal, value, "--number", 0)
    learned = metakel("learn", *PAST, "--journals", "runs", "-o", "q.json")
    assert learned.code == 0, learned.err
    assert "2 tasks with 2 runs added" in learned.err
    assert "results still to come: site 0.jsonl, site 1.jsonl" in learned.err
    shown = json.loads(metakel("show", "q.json", "--json").out)
    assert shown["tasks"][-2:] == ["site 0", "site 1"]
    assert shown["runs"] == 8 * 20 + 2


def test_journals_of_another_aim_or_without_values_are_named(metakel, table, tmp_path):
    metakel("learn", *PAST, "-o", "p.json")
    metakel("suggest", "p.json", "--journal", "empty.jsonl")
    said = metakel("learn", *PAST, "--journals", "empty.jsonl", "-o", "q.json")
    assert "without a value: empty.jsonl" in said.err
    upwards = [word if word != "--minimize" else "--maximize" for word in PAST]
    other = metakel("learn", *upwards, "--journals", "empty.jsonl", "-o", "q.json")
    assert "minimises 'cost', but the table maximises 'cost'" in other.err
    (tmp_path / "none").mkdir()
    assert "holds no journal" in metakel("learn", *PAST, "--journals", "none").err


def test_a_descriptor_is_refused_as_a_context_with_the_reason(table):
    read = {"task": "building", "output": "cost", "minimize": True}
    history = mk.History.from_csv(table, **read, given=["outdoor"])
    assert history.space.names == ("supply", "outdoor")
    for options in ({}, {"inputs": ["supply", "outdoor", "floors"]}):
        with pytest.raises(InputError, match="'floors' is constant in every task, so it describes"):
            mk.History.from_csv(table, **read, given=["floors"], **options)
    with pytest.raises(InputError, match="no column 'rain'"):
        mk.History.from_csv(table, **read, given=["rain"])
    with pytest.raises(InputError, match="expected a list of columns"):
        mk.History.from_csv(table, **read, given="outdoor")
    with pytest.raises(InputError, match="nothing is left to choose"):
        mk.History.from_csv(table, **read, given=["supply", "outdoor"])


def test_a_context_of_named_parameters_holds_for_one_question(table):
    read = {"task": "building", "output": "cost", "minimize": True}
    prior = mk.learn_prior(mk.History.from_csv(table, **read), certify="none")
    optimizer = prior.optimizer(rng=np.random.default_rng(0))
    x = optimizer.ask(fixed={"outdoor": -10.0})
    assert x["outdoor"] == -10.0
    optimizer.tell(x, cost(**x))
    assert optimizer.best(fixed={"outdoor": -10.0}).x["outdoor"] == -10.0
    with pytest.raises(InputError, match="leaves nothing to choose"):
        optimizer.ask(fixed={"outdoor": 0.0, "supply": 40.0})
