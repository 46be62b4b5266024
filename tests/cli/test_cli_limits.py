"""Limits on the command line: a table of past runs in, only safe runs out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from metakel import History, InputError, Prior, Space, learn_prior
from metakel.cli.options import read_limits, read_start
from metakel.cli.program import read_result
from metakel.priors import learn_outputs
from metakel.safe import SafePrior
from metakel.space import Categorical, Float
from metakel.tuner import Store, Tuner

HOTTEST = 90.0


def plant(power: float, flow: float, a: float, b: float) -> tuple[float, float]:
    """Yield and temperature; more power gives more of both."""
    heat = 40 + 45 * power * (1 + 0.15 * a) - 12 * flow * (1 + 0.1 * b)
    return 60 + 25 * power - 6 * (flow - 0.5) ** 2 + 3 * a, heat


def table(tasks: int, runs: int = 20, seed: int = 0) -> dict[str, list]:
    rng = np.random.default_rng(seed)
    rows: dict[str, list] = {n: [] for n in ("plant", "power", "flow", "yield", "temperature")}
    for s in range(tasks):
        a, b = rng.normal(size=2)
        for _ in range(runs):
            power, flow = rng.uniform(0.2, 1.5), rng.uniform(0, 1)
            found, heat = plant(power, flow, a, b)
            cells = (f"p{s}", power, flow, found + 0.3 * rng.normal(), heat + 0.5 * rng.normal())
            for name, cell in zip(rows, cells, strict=True):
                rows[name].append(cell)
    return rows


def learned(tasks: int) -> Prior:
    rows = table(tasks)
    options = {"task": "plant", "inputs": ["power", "flow"]}
    past = {n: History.from_frame(rows, output=n, **options) for n in ("yield", "temperature")}
    prior = learn_prior(past["yield"], certify="none")
    return Prior(**{**vars(prior), "past": learn_outputs(past)})


@pytest.fixture(scope="module")
def prior() -> Prior:
    return learned(40)


@pytest.fixture
def saved(prior, metakel) -> Path:
    prior.save("prior.json")
    return Path("prior.json")


def test_journals_teach_the_prior_but_do_not_vouch_for_a_safe_start(metakel, tmp_path):
    """Runs that an optimizer chose are not exchangeable with the records of a table."""
    rows = table(6, 8)
    lines = [
        ",".join(rows),
        *(",".join(map(str, cells)) for cells in zip(*rows.values(), strict=True)),
    ]
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    words = ("learn", "runs.csv", "--task", "plant", "--output", "yield", "--maximize")
    words = (*words, "--limit-output", "temperature")
    assert metakel(*words, "-o", "p.json").code == 0
    metakel("suggest", "p.json", "--journal", "new.jsonl")
    metakel("tell", "new.jsonl", 80, "--number", 0)
    found = metakel(*words, "--journals", "new.jsonl", "-o", "q.json")
    assert found.code == 0, found.err
    after = Prior.load("q.json")
    assert (len(after.info.tasks), after.past.tasks) == (7, 6)


PROGRAM = """
import json, sys
power, flow = map(float, sys.argv[1:])
heat = 40 + 45 * power * 1.1 - 12 * flow
print("warming up")
print(json.dumps({"yield": 60 + 25 * power, "temperature": heat}))
"""


def test_a_limit_on_a_parameter_says_what_to_do_instead(metakel, saved):
    words = ["tune", saved, "--budget", 2, "--limit", "power <= 1"]
    refused = metakel(*words, "--", sys.executable, "run.py", "{power}", "{flow}")
    assert refused.code == 1
    assert "'power' is a parameter" in refused.err
    assert "--fix power=VALUE" in refused.err


def test_a_run_that_is_stuck_says_so(metakel):
    learned(4).save("prior.json")
    Path("run.py").write_text(PROGRAM)
    words = ["tune", "prior.json", "--budget", 3, "--limit", "temperature <= 90"]
    start = ["--start", "power=0.5,flow=0.5"]
    done = metakel(*words, *start, "--", sys.executable, "run.py", "{power}", "{flow}")
    assert done.code == 0, done.err
    trials = json.loads(metakel("status", "metakel-run.jsonl", "--json").out)["trials"]
    repeated = [t["number"] for t in trials[1:] if t["configuration"] == trials[0]["configuration"]]
    assert repeated, "the test is about a search that is stuck"
    for number in repeated:
        assert f"{number}: the same as 0: no other configuration is known to respect" in done.err


def test_a_command_is_tuned_without_a_run_beyond_the_limit(metakel, saved):
    Path("run.py").write_text(PROGRAM)
    words = ["tune", saved, "--budget", 6, "--limit", "temperature <= 90", "--json"]
    done = metakel(*words, "--", sys.executable, "run.py", "{power}", "{flow}")
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    measured = [event["outputs"]["temperature"] for event in events[:-1]]
    assert len(measured) == 6
    assert max(measured) <= HOTTEST
    assert "safe" in done.err or "limits" in done.err
    listed = metakel("status", "metakel-run.jsonl")
    assert "temperature at most 90" in listed.out
    assert metakel("report", saved, "--journal", "metakel-run.jsonl").code == 0
    page = Path("report.html").read_text()
    assert "at most 90" in page
    assert "of the space before the run" in page


def test_a_run_with_limits_is_not_continued_without_them(metakel, saved):
    suggested = metakel("suggest", saved, "--journal", "j.jsonl", "--limit", "temperature <= 90")
    assert suggested.code == 0, suggested.err
    assert "--output temperature=VALUE" in suggested.err
    without = metakel("suggest", saved, "--journal", "j.jsonl")
    assert without.code == 1
    assert "was begun with the limits temperature at most 90" in without.err


def test_a_result_needs_every_limited_output(metakel, saved):
    metakel("suggest", saved, "--journal", "j.jsonl", "--limit", "temperature <= 90")
    assert "no value of temperature" in metakel("tell", "j.jsonl", "80").err
    told = metakel("tell", "j.jsonl", "80", "--output", "temperature=71,5", "--json")
    assert json.loads(told.out)["outputs"] == {"temperature": 71.5}
    assert Store.open("j.jsonl").run.record.observed[0].outputs == {"temperature": 71.5}


def test_learn_keeps_the_outputs_of_a_table(metakel):
    rows = table(6, runs=14)
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    Path("runs.csv").write_text("\n".join(lines))
    done = metakel("learn", "runs.csv", "--task", "plant", "--output", "yield", "--limit-output",
                   "temperature", "--noise", "temperature=0.5")  # fmt: skip
    assert done.code == 0, done.err
    known = Prior.load("prior.json")
    assert known.space.names == ("power", "flow")
    assert known.past is not None
    assert known.past.names == ("yield", "temperature")
    assert known.past.outputs["temperature"].noise_std == 0.5
    refused = metakel("suggest", "prior.json", "--limit", "temperature <= 90")
    assert refused.code == 1
    assert "3 past tasks are left to calibrate" in refused.err
    assert "19 are needed" in refused.err
    assert "--start" in refused.err
    vouched = metakel("suggest", "prior.json", "--limit", "temperature <= 90", "--start",
                      "power=0.4,flow=0.5", "--json")  # fmt: skip
    first = json.loads(vouched.out)[0]["configuration"]
    assert first == pytest.approx({"power": 0.4, "flow": 0.5}, abs=1e-6)


def test_the_journal_gives_a_tuner_all_that_it_knew(prior, tmp_path):
    source = SafePrior(prior, {"temperature": (None, HOTTEST)})
    tuner = Tuner(source, tmp_path / "j", seed=3)
    for _ in range(3):
        x = tuner.ask()
        found, heat = plant(x["power"], x["flow"], 0.5, 0.0)
        tuner.tell(x, found, {"temperature": heat})
    again = Tuner(source, tmp_path / "j", seed=3)
    Z = again.optimizer.domain.sample(np.random.default_rng(0), 50)
    assert (again.optimizer.model.allowed(Z) == tuner.optimizer.model.allowed(Z)).all()
    assert vars(again.certificate) == vars(tuner.certificate)
    assert str(again.certificate).startswith("no safe configuration is better")
    expected = tuner.optimizer.peek()
    assert again.ask() == expected


def test_all_configurations_of_a_run_are_safe_on_fresh_tasks(prior):
    rng, unsafe = np.random.default_rng(1), 0
    for seed in range(8):
        a, b = rng.normal(size=2)
        tuner = Tuner(SafePrior(prior, {"temperature": (None, HOTTEST)}), seed=seed)
        heats = []
        for _ in range(4):
            x = tuner.ask()
            found, heat = plant(x["power"], x["flow"], a, b)
            heats.append(heat)
            noise = rng.normal(size=2)
            tuner.tell(x, found + 0.3 * noise[0], {"temperature": heat + 0.5 * noise[1]})
        unsafe += max(heats) > HOTTEST
    assert unsafe <= 5  # 1 - 1e-4 quantile of Binomial(8, 0.1)


def test_the_mixture_of_the_prior_crosses_the_limit_that_it_does_not_know(prior):
    tuner, heats = Tuner(prior, seed=0), []
    for _ in range(4):
        x = tuner.ask()
        found, heat = plant(x["power"], x["flow"], 0.5, 0.0)
        heats.append(heat)
        tuner.tell(x, found)
    assert max(heats) > HOTTEST


def test_an_alarm_stops_a_run_until_it_is_accepted(prior, tmp_path):
    tuner = Tuner(SafePrior(prior, {"temperature": (None, HOTTEST)}), tmp_path / "j")
    rng = np.random.default_rng(0)
    while tuner.alarm is None:
        x = tuner.ask()
        tuner.tell(x, 75.0, {"temperature": float(rng.uniform(-500, 500))})
    with pytest.raises(Exception, match="Nothing is asked for"):
        tuner.ask()
    tuner.accept_alarm()
    again = Tuner(SafePrior(prior, {"temperature": (None, HOTTEST)}), tmp_path / "j")
    assert again.run.accepted == tuner.alarm.time
    again.optimizer._check_alarm()


def test_nothing_is_queued_and_nothing_extrapolated_beside_limits(prior):
    source = SafePrior(prior, {"temperature": (None, HOTTEST)})
    with pytest.raises(InputError, match="enqueue in a run with the limits"):
        Tuner(source).enqueue([{"power": 1.0, "flow": 0.5}])
    with pytest.raises(InputError, match="vouch for nothing beyond"):
        Tuner(source, extrapolate=True)
    with pytest.raises(InputError, match="of which no past measurements are known"):
        Tuner(SafePrior(prior, {"pressure": (0, 1)}))


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["temperature <= 90"], {"temperature": (None, 90.0)}),
        (["t>=1", "t <= 2,5 bar"], {"t": (1.0, 2.5)}),
        (["score ≥ 0.5", "heat < 3"], {"score": (0.5, None), "heat": (None, 3.0)}),
    ],
)
def test_limits_as_people_write_them(texts, found):
    assert read_limits(texts) == found


def test_a_limit_without_a_number_is_refused():
    for text in ("temperature", "temperature <= hot", "<= 3"):
        with pytest.raises(InputError, match="expected name <= number"):
            read_limits([text])


def test_start_rows_may_hold_decimal_commas_and_choices():
    space = Space((Float("rate", 0.0, 1.0), Categorical("mode", ("a", "b"))))
    assert read_start(space, ["rate=0,5, mode=b"]) == [{"rate": 0.5, "mode": "b"}]
    with pytest.raises(InputError, match="has no mode"):
        read_start(space, ["rate=0.5"])


@pytest.mark.parametrize(
    "text",
    [
        'log\n{"score": 0.5, "heat": 71, "note": "x"}',
        "heat=12\nheat = 71\nscore: 0.5",
        "heat: 71\n0.5",
    ],
)
def test_several_outputs_of_one_run(text):
    found = read_result(text, "score", ("heat",))
    assert (found.value, found.outputs) == (0.5, {"heat": 71.0})


def test_a_run_without_a_limited_output_has_failed():
    found = read_result('{"score": 0.5}', "score", ("heat",))
    assert found.value is None
    assert "expected numbers for heat" in found.reason
    assert read_result("auc: 0.93").value == 0.93
    assert read_result("heat=nan\nscore=1", "score", ("heat",)).outputs == {}
