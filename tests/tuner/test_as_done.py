"""Whatever was really done can be recorded: new choices, numbers beyond ranges, rare values."""

from __future__ import annotations

import json
import logging
import sys
from functools import cache

import numpy as np
import pytest

import metakel as mk
from metakel.cli import main
from metakel.cli.history import with_journals
from metakel.errors import InputError
from metakel.optimize import Optimizer
from metakel.report import write_report
from metakel.report.run import replay_journal
from metakel.space import Categorical, Condition, Float, Integer, Ordinal, Space
from metakel.tuner import Store, suggest_rows

EFFECT = {"THF": -15.0, "DMF": 0.0, "MeOH": -5.0}
DONE = [
    {"Temperature": 105.0, "Solvent": "DMF", "Steps": 3},
    {"Temperature": 70.0, "Solvent": "Water", "Steps": 3},
    {"Temperature": 25.0, "Solvent": "Water", "Steps": 9},
    {"Temperature": 60.0, "Solvent": "DMF", "Steps": 2.5},
]


def yield_of(row):
    base = 80 - 0.02 * (row["Temperature"] - 70) ** 2 - (row["Steps"] - 3) ** 2
    return base + EFFECT.get(row["Solvent"], 5.0)


@cache
def history(*more: str) -> mk.History:
    rng, rows = np.random.default_rng(0), []
    for s in range(6):
        level = rng.normal(0, 4)
        for _ in range(14):
            row = {
                "Temperature": float(rng.uniform(30, 100)),
                "Solvent": str(rng.choice(list(EFFECT))),
                "Steps": int(rng.integers(1, 7)),
            }
            rows.append({"b": f"b{s}", **row, "y": yield_of(row) + level + rng.normal(0, 0.5)})
    table = {name: [row[name] for row in rows] for name in rows[0]}
    solvent = Categorical("Solvent", (*EFFECT, *more))
    space = Space((Float("Temperature", 30, 100), solvent, Integer("Steps", 1, 6)))
    return mk.History.from_frame(table, task="b", output="y", space=space)


@cache
def prior(*more: str) -> mk.Prior:
    return mk.learn_prior(history(*more), certify="none", output_range=(0, 100))


@pytest.mark.parametrize("row", DONE)
def test_every_door_records_what_was_done(row, tmp_path, monkeypatch, capsys, caplog):
    asked = []
    optimizer = prior().optimizer()
    optimizer.tell(row, yield_of(row))
    optimizer.save(tmp_path / "run.json")
    asked.append(Optimizer.load(tmp_path / "run.json").ask())

    with caplog.at_level(logging.WARNING, "metakel"):
        tuner = mk.Tuner(prior(), tmp_path / "run.jsonl", adopt_after="never")
        tuner.tell(row, yield_of(row))
    assert "recorded as it was done" in caplog.text
    assert tuner.best.x == pytest.approx(row)
    asked.append(mk.Tuner(prior(), tmp_path / "run.jsonl", adopt_after="never").ask())
    page = write_report(
        prior(), tmp_path / "page.html", run=replay_journal(prior(), tmp_path / "run.jsonl")
    )
    assert str(row["Solvent"]) in page.read_text(encoding="utf-8")

    mk.Tuner(prior(), tmp_path / "typed.jsonl", adopt_after="never")
    sets = [word for name, value in row.items() for word in ("--set", f"{name}={value}")]
    words = ["metakel", "tell", str(tmp_path / "typed.jsonl"), str(yield_of(row)), *sets]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert "recorded as it was done" in capsys.readouterr().err
    asked.append(mk.Tuner(prior(), tmp_path / "typed.jsonl", adopt_after="never").ask())

    path = tmp_path / "runs.csv"
    cells = ",".join(map(str, row.values()))
    header = ",".join([*row, "y"])
    path.write_text(f"{header}\n{cells},{yield_of(row)}\n", encoding="utf-8")
    found = suggest_rows(prior(), path)
    assert any("recorded as it was done" in note for note in found.notes)
    asked.append(found.rows[0].trial.point)

    for x in asked:  # all decide alike, within the space
        prior().space.check(x)
        np.testing.assert_allclose(
            prior().space.encode([x]), prior().space.encode([asked[0]]), atol=1e-6
        )


def test_a_new_choice_is_at_the_level_of_the_others_until_it_is_tried():
    rows = [{"Temperature": 70.0, "Solvent": s, "Steps": 3} for s in (*EFFECT, "Water")]
    before = prior("Water").optimizer()
    *known, new = before.predict(rows)[0]
    assert min(known) < new < max(known)
    assert prior("Water").helps
    assert prior("Water").heldout.log_score == pytest.approx(prior().heldout.log_score, abs=0.1)
    before.tell(rows[-1], 95.0)
    assert before.predict(rows)[0][-1] > new + 5


def test_runs_with_an_unknown_choice_say_little_of_the_known_ones():
    rows = [{"Temperature": 70.0, "Solvent": s, "Steps": 3} for s in EFFECT]
    optimizer = prior().optimizer()
    before = optimizer.predict(rows)[0]
    optimizer.tell({"Temperature": 70.0, "Solvent": "Water", "Steps": 3}, float(before.mean()))
    np.testing.assert_allclose(optimizer.predict(rows)[0], before, atol=5)


def test_a_value_far_beyond_its_range_needs_a_confirmation(tmp_path, monkeypatch, capsys):
    path = tmp_path / "run.jsonl"
    mk.Tuner(prior(), path, adopt_after="never").ask()
    with pytest.raises(InputError, match="far beyond its range"):
        Store.open(path).tell(DONE[0], 690.0)
    monkeypatch.setattr(
        sys, "argv", ["metakel", "tell", str(path), "690", "--number", "0", "--confirm", "--json"]
    )
    with pytest.raises(SystemExit):
        main()
    assert json.loads(capsys.readouterr().out)["value"] == 690
    mk.Tuner(prior(), path, adopt_after="never").ask()  # it goes on
    table = tmp_path / "runs.csv"
    table.write_text("Temperature,Solvent,Steps,y\n70,DMF,3,690\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2 of runs\.csv: y is 690.*confirmed=True"):
        suggest_rows(prior(), table)
    assert len(suggest_rows(prior(), table, confirmed=True).tuner.trials.observed) == 1


def test_where_values_are_placed():
    space = Space(
        (
            Float("a", 0, 10),
            Integer("n", 1, 5),
            Ordinal("size", (16, 32, 64)),
            Categorical("kind", ("x", "y")),
            Float("m", 0, 1),
        ),
        (Condition("m", "kind", ("x",)),),
    )
    row = {"a": 12.5, "n": 2.5, "size": 48, "kind": "z"}
    assert space.place([row])[0].tolist() == [1.5, -0.25, 0.5, 0.5, 0.5, 0.0]
    inside = {"a": 1.0, "n": 2, "size": 32, "kind": "x", "m": 0.25}
    np.testing.assert_array_equal(space.place([inside]), space.encode([inside]))
    assert space.unlike(inside) == []
    assert [text.split()[0] for text in space.unlike(row)] == ["a", "n", "size", "kind"]
    for wrong in ({"a": 1.0}, {**inside, "b": 3}, {**inside, "a": "much"}):
        with pytest.raises(InputError):
            space.place([wrong])


def test_what_was_done_in_a_journal_joins_the_history(tmp_path):
    tuner = mk.Tuner(prior(), tmp_path / "run.jsonl", adopt_after="never")
    for row in DONE:
        tuner.tell(row, yield_of(row))
    joined, _ = with_journals(history(), [tmp_path / "run.jsonl"])
    assert joined.space["Solvent"].values == (*EFFECT, "Water")
    *before, new = joined
    for old, task in zip(history(), before, strict=True):
        assert joined.space.decode(task.X) == history().space.decode(old.X)
    assert [joined.space.decode([x])[0]["Solvent"] for x in new.X] == [x["Solvent"] for x in DONE]


def test_a_parameter_may_only_lack_where_nobody_knows_if_it_is_there():
    space = Space(
        (Float("lr", 0, 1), Categorical("solver", ("sgd", "adam")), Float("momentum", 0, 1)),
        (Condition("momentum", "solver", ("sgd",)),),
    )
    for solver in ("adam", "rmsprop"):
        space.place([{"lr": 0.5, "solver": solver}])
    with pytest.raises(InputError, match="'momentum' is missing; it is there where solver is sgd"):
        space.place([{"lr": 0.5, "solver": "sgd"}])
