"""Features by doors: whatever a search knows, it knows through every door.

A door plays the same three steps: the first suggestion gets a value, the second one fails, the
third one is pending. The law of every cell is that the door asks for the same configurations as
``prior.optimizer``, shows the same numbers and loses nothing; or that it refuses in words of ours,
with what to do instead (`REFUSED`). Cells of runs that are stopped early are in `doors_stopped`.
"""

from __future__ import annotations

import csv
import json
import shlex
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, ClassifierMixin

import doors_stopped
import metakel as mk
from doors_features import (
    FEATURES,
    STOPPED,
    Feature,
    Shell,
    called,
    prior_of,
    table_of,
    write_csv,
)
from metakel.errors import InputError
from metakel.integrations.optuna import MetaKelSampler
from metakel.integrations.sklearn import MetaKelSearchCV
from metakel.optimize import Optimizer
from metakel.report import write_report
from metakel.report.run import replay_journal
from metakel.space import Float, Integer, Space
from metakel.tuner import Store

optuna.logging.set_verbosity(optuna.logging.ERROR)
COMMANDS = ("look", "learn", "show", "suggest", "table", "tell", "status", "tune", "report")
DOORS = (
    "optimizer",
    "save and load",
    "Tuner",
    "sampler",
    "MetaKelSearchCV",
    "report",
    "notebook",
    *COMMANDS,
    *(f"{command} --json" for command in COMMANDS if command not in ("report", "learn")),
)
# Doors that a feature does not go through: what they say, which names what to do instead.
REFUSED: dict[tuple[str, str], str] = {
    ("new parameter", "Tuner"): "expected x, kind",
    **{("new parameter", door): "a name among x, kind" for door in ("tell", "tell --json")},
    ("sum", "MetaKelSearchCV"): "expected ranges and choices only",
    ("minimize", "MetaKelSearchCV"): "scoring measures 'score', which is maximised",
    # What was learned already is no table to learn from.
    **{("library", door): "library:knn:accuracy" for door in ("look", "look --json", "learn")},
}
# What a command has no words for: the same search without it, which is another cell of the table.
NO_WORDS = {
    ("new parameter", f"{command}{more}")
    for command in ("suggest", "table", "tune")
    for more in ("", " --json")
}


@dataclass(frozen=True)
class Played:
    """What became of the three steps: the configurations, and the mean expected of the third."""

    asked: list[dict[str, Any]]
    expected: float


@cache
def reference(name: str) -> Played:
    feature = FEATURES[name]
    optimizer = prior_of(name).optimizer(**feature.options)
    return play(
        feature,
        optimizer.ask,
        lambda x, value: optimizer.tell(x, value, **constraints(name)),
        lambda x: tell_failed(optimizer, x),
        lambda x: float(optimizer.explain(x).expected.value),
    )


def constraints(name: str) -> dict[str, Any]:
    return {"constraints": {"memory": -1.0}} if name == "constraints" else {}


def tell_failed(optimizer: Any, x: Any) -> None:
    optimizer.tell(x, failed=True)


def play(
    feature: Feature,
    ask: Callable[[], dict[str, Any]],
    tell: Callable[[dict[str, Any], float], None],
    fail: Callable[[dict[str, Any]], None],
    expected: Callable[[dict[str, Any]], float],
) -> Played:
    first = ask()
    tell(first, feature.value(first))
    second = ask()
    fail(second)
    third = ask()
    return Played([first, second, third], expected(third))


def assert_same(name: str, found: Played, *, points: float = 1e-6) -> None:
    """The same configurations as the optimizer's, within the feature, and the same expectation."""
    feature, wanted = FEATURES[name], reference(name)
    space = prior_of(name).space
    if "new" in feature.options:
        space = Space((*space.parameters, *feature.options["new"]))
    assert [list(x) for x in found.asked] == [list(x) for x in wanted.asked]
    assert all(map(feature.holds, found.asked))
    assert_allclose(space.encode(found.asked), space.encode(wanted.asked), atol=points)
    assert found.expected == pytest.approx(wanted.expected, rel=1e-4, abs=1e-6)


# Doors


def by_optimizer(name: str, where: Path) -> None:
    assert_same(name, reference(name))
    assert len({json.dumps(x) for x in reference(name).asked}) == 3


def by_save_and_load(name: str, where: Path) -> None:
    feature = FEATURES[name]
    prior_of(name).save(where / "prior.json")
    state = [mk.Prior.load(where / "prior.json").optimizer(**feature.options)]

    def again() -> Any:
        state[0].save(where / "run.json")
        state[0] = Optimizer.load(where / "run.json")
        return state[0]

    found = play(
        feature,
        lambda: again().ask(),
        lambda x, value: again().tell(x, value, **constraints(name)),
        lambda x: tell_failed(again(), x),
        lambda x: float(again().explain(x).expected.value),
    )
    assert_same(name, found)


def tuner_options(name: str) -> dict[str, Any]:
    options = dict(FEATURES[name].options)
    options.pop("new", None)
    return options


def by_tuner(name: str, where: Path) -> None:
    """Every step by another Tuner on the same journal."""
    feature = FEATURES[name]
    prior = feature.library if feature.library and not feature.joins else prior_of(name)

    def tuner() -> mk.Tuner:
        return mk.Tuner(prior, where / "run.jsonl", adopt_after="never", **tuner_options(name))

    if "new" in feature.options:
        tuner().tell({**reference(name).asked[0]}, 0.5)
    found = play(
        feature,
        lambda: tuner().ask(),
        lambda x, value: tuner().tell(x, value, **constraints(name)),
        lambda x: tuner().tell(x, failed=True),
        lambda x: float(tuner().explain(x).expected.value),
    )
    assert_same(name, found)
    record = tuner().trials
    assert (len(record.observed), len(record.failed), len(record.pending)) == (1, 1, 1)


def distributions(space: Space) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for p in space.parameters:
        if isinstance(p, Integer):
            found[p.name] = optuna.distributions.IntDistribution(p.low, p.high)
        elif isinstance(p, Float):
            found[p.name] = optuna.distributions.FloatDistribution(p.low, p.high, log=p.log)
        else:
            found[p.name] = optuna.distributions.CategoricalDistribution(p.choices)
    return found


def searched(name: str) -> Space:
    """What a study suggests from: parameters that are held have one value."""
    feature = FEATURES[name]
    space = feature.options.get("space", feature.space)
    return Space((*space.parameters, *feature.options.get("new", ())), space.conditions, space.sums)


def by_sampler(name: str, where: Path) -> None:
    """Define by run: a parameter is asked for where it is there."""
    feature = FEATURES[name]
    direction = "minimize" if feature.minimize else "maximize"
    sums = [str(said) for said in searched(name).sums]
    named = feature.library and not feature.joins
    prior = feature.library if named else prior_of(name)
    sampler = MetaKelSampler(prior=prior, seed=0, sums=sums)
    study = optuna.create_study(direction=direction, sampler=sampler)
    space, fixed = searched(name), feature.options.get("fixed", {})
    known, by_name = distributions(space), {c.name: c for c in space.conditions}
    pending: list[optuna.Trial] = []

    def ask() -> dict[str, Any]:
        if "candidates" in feature.options:
            study.enqueue_trial(reference(name).asked[len(study.trials)])
        trial, x = study.ask(), {}
        for p in space.parameters:
            condition = by_name.get(p.name)
            if condition and x.get(condition.parent) not in condition.values:
                continue
            held = {**fixed, **({"kind": "tree"} if "depth" in fixed else {})}
            x[p.name] = (
                trial._suggest(p.name, known[p.name]) if p.name not in held else held[p.name]
            )
        pending.append(trial)
        return x

    def tell(x: dict[str, Any], value: float) -> None:
        for key, number in constraints(name).get("constraints", {}).items():
            pending[-1].set_constraint(key, number)
        study.tell(pending[-1], value)

    found = play(
        feature,
        ask,
        tell,
        lambda x: study.tell(pending[-1], state=optuna.trial.TrialState.FAIL) and None,
        lambda x: 0.0,
    )
    assert all(map(feature.holds, found.asked))
    assert [list(x) for x in found.asked] == [list(x) for x in reference(name).asked]
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "FAIL", "RUNNING"]
    if not feature.options:
        model = prior_of(name).space
        ours, theirs = (model.encode(p.asked) for p in (found, reference(name)))
        assert_allclose(ours[0], theirs[0], atol=1e-6)


class Measured(ClassifierMixin, BaseEstimator):
    """A model whose score is what the feature measures; the second configuration fails."""

    def __init__(
        self, x=0.5, kind="tree", depth=5, rate=0.01, water=0.4, oil=0.3, salt=0.3, warm=True,
        layers=1, width=5, momentum=0.5, n_neighbors=5, weights="uniform", p=2.0,
    ):  # fmt: skip
        found = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        self.__dict__.update(found)

    def fit(self, X, y):
        found = self.get_params()
        if found not in SEEN:
            SEEN.append(found)
        if SEEN.index(found) == 1:
            raise ValueError("it fails")
        self.classes_ = np.unique(y)
        return self


SEEN: list[dict[str, Any]] = []


def by_search(name: str, where: Path) -> None:
    """The third configuration is measured, too: a search of scikit-learn leaves nothing pending.

    It has no words for candidates and constraints: those searches are the ones without.
    """
    name = {"candidates": "category", "constraints": "category"}.get(name, name)
    feature, wanted = FEATURES[name], reference(name)
    fixed, space = feature.options.get("fixed", {}), searched(name)
    given: Any = feature.options.get("space")
    if given is None and feature.options:
        given = {p.name: [fixed[p.name]] if p.name in fixed else p for p in space.parameters}

    def score(model: Any, X: Any, y: Any) -> float:
        return feature.value({key: getattr(model, key) for key in space.names})

    SEEN.clear()
    score.__name__ = "accuracy" if feature.library else "score"  # what it measures
    prior = feature.library if feature.library and not feature.joins else prior_of(name)
    search = MetaKelSearchCV(
        Measured(), given, prior=prior, scoring=score, cv=2, refit=False, n_iter=3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn tells of the fit that fails
        search.fit(np.arange(8.0)[:, None], np.arange(8) % 2)
    found = [{**fixed, **tried} for tried in search.cv_results_["params"]]
    assert all(map(feature.holds, found))
    assert list(np.isnan(search.cv_results_["mean_test_score"])) == [False, True, False]
    assert [sorted(x) for x in found] == [sorted(x) for x in wanted.asked]
    if name == "fixed value":  # of a parameter with a condition: its parent is chosen here
        return
    count = 1 if feature.options else 3
    model = Space(space.parameters, space.conditions)
    ours, theirs = (model.encode(asked[:count]) for asked in (found, wanted.asked))
    assert_allclose(ours, theirs, atol=1e-6)


def begun(name: str, where: Path) -> Path:
    """A journal in which the three steps were played."""
    feature = FEATURES[name]
    tuner = mk.Tuner(
        prior_of(name), where / "run.jsonl", adopt_after="never", **tuner_options(name)
    )
    play(
        feature,
        tuner.ask,
        tuner.tell,
        lambda x: tuner.tell(x, failed=True, reason="diverged"),
        lambda x: 0.0,
    )
    return where / "run.jsonl"


def by_report(name: str, where: Path) -> None:
    path, prior = begun(name, where), prior_of(name)
    candidates = FEATURES[name].options.get("candidates")
    run = replay_journal(prior, path, candidates)
    page = write_report(prior, where / "page.html", run=run)
    text = unescape(page.read_text(encoding="utf-8"))
    (value,) = [trial.value for trial in run.trials]
    assert f"{value:.4g}" in text
    for cell in filter(None, prior.space.cells(run.trials[0].point)):
        assert cell in text
    assert "1 failed, 1 pending" in run.record.counts


def by_notebook(name: str, where: Path) -> None:
    path, prior = begun(name, where), prior_of(name)
    tuner = mk.Tuner(prior, path, adopt_after="never", **tuner_options(name))
    for html in (prior._repr_html_(), tuner._repr_html_(), tuner.trials._repr_html_()):
        assert html.startswith("<")
    assert "1 values, 1 failed, 1 pending" in tuner._repr_html_()
    assert str(prior.space)
    assert "t=1" in repr(tuner.optimizer)
    frame = tuner.trials.to_frame()
    assert list(frame["state"]) == ["complete", "failed", "pending"]
    assert set(prior.space.names) - set(tuner.options.fixed) <= set(frame.columns)


def words_of(name: str, where: Path) -> list[str]:
    """The options of a search as they are typed."""
    options, words = FEATURES[name].options, []
    for key, value in options.get("fixed", {}).items():
        words += ["--fix", f"{key}={value}"]
    if "space" in options and name == "sum":
        words += ["--sum", "salt >= 0.2"]
    elif "space" in options:
        words += ["--range", "x=0.6..0.9"]
    if "candidates" in options:
        write_csv(where / "candidates.csv", options["candidates"])
        words += ["--candidates", "candidates.csv"]
    return words


def by_look(name: str, shell: Shell, *, as_json: bool) -> None:
    """The options that it prints say what it found; in JSON, the same ones."""
    given = ("--task", "task", "--output", "score", "--maximize")
    words = ["look", table_of(name, shell.where), *given]
    command, names = shell(*words).splitlines()[-1].strip(), set(FEATURES[name].space.names)
    if as_json:
        assert json.loads(shell(*words, "--json"))["command"] == command
        return
    assert set(command.split("--input ")[1].split()[0].split(",")) == names
    assert ("--sum" in command) == bool(FEATURES[name].space.sums)
    shell(*shlex.split(command)[1:])
    assert set(mk.Prior.load(shell.where / "prior.json").space.names) == names


def by_learn(name: str, shell: Shell, *, as_json: bool) -> None:
    feature, table = FEATURES[name], table_of(name, shell.where)
    words = ["--minimize" if feature.minimize else "--maximize"]
    if feature.joins:
        words += ["--library", feature.library]
    if feature.output_range is not None:
        words += ["--output-range", 0, 1]
    words += ["--log-output"] * feature.log_output
    shell("learn", table, "--task", "task", "--output", "score", *words)
    learned = mk.Prior.load(shell.where / "prior.json")
    assert set(learned.space.names) == set(feature.space.names)
    assert {c.name for c in learned.space.conditions} == {c.name for c in feature.space.conditions}
    assert list(map(str, learned.space.sums)) == list(map(str, feature.space.sums))
    assert learned.info.minimize == feature.minimize
    assert (learned.info.log_floor > 0) == feature.log_output
    assert learned.info.runs == prior_of(name).info.runs
    assert learned.helps


def by_show(name: str, shell: Shell, *, as_json: bool) -> None:
    text = shell("show", called(name, shell.where), *(["--json"] if as_json else []))
    for parameter in prior_of(name).space.names:
        assert parameter in text
    if as_json:
        json.loads(text)


def by_suggest(name: str, shell: Shell, *, as_json: bool) -> None:
    space, source = prior_of(name).space, called(name, shell.where)
    words = ["suggest", source, "--journal", "run.jsonl", *words_of(name, shell.where)]
    found, means = [], []
    for step in range(3):
        if as_json:
            (answer,) = json.loads(shell(*words, "--json"))
            x, mean = answer["configuration"], answer["mean"]
        else:
            text = shell(*words)
            trial = Store.open(shell.where / "run.jsonl").run.record[-1]
            x, mean = trial.point, trial.note.expected[0]
            for cell in filter(None, space.cells(x)):
                assert cell in text
        found.append(x)
        means.append(mean)
        if step == 0:
            more = ["--constraint", "memory=-1"] if constraints(name) else []
            shell("tell", "run.jsonl", FEATURES[name].value(x), "--number", 0, *more)
        elif step == 1:
            shell("tell", "run.jsonl", "--failed", "--number", 1)
    assert_same(name, Played(found, means[-1]))


def by_table(name: str, shell: Shell, *, as_json: bool) -> None:
    """One file that a person fills in, for which ``metakel suggest --table`` asks.

    It has no words for constraints: the search is the one without.
    """
    name = "failed and pending runs" if name == "constraints" else name
    path, more = shell.where / "runs.csv", ["--json"] if as_json else []
    source = called(name, shell.where)
    words = ["suggest", source, "--table", "runs.csv", *words_of(name, shell.where), *more]
    space, found, mean = prior_of(name).space, [], 0.0
    output = prior_of(name).info.output
    for step in range(3):
        text = shell(*words)
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        x = space.parse_row(rows[-1])
        found.append(x)
        if as_json:
            (answer,) = json.loads(text)
            assert space.encode([answer["configuration"]]) == pytest.approx(space.encode([x]))
            mean = answer["mean"]
        for cell in filter(None, space.cells(x)):
            assert cell in text or as_json
        rows[-1][output] = (FEATURES[name].value(x), "failed", "")[step]
        write_csv(path, rows)
    assert_same(name, Played(found, mean if as_json else reference(name).expected))


def by_tell(name: str, shell: Shell, *, as_json: bool) -> None:
    """A value of a suggestion, a failure, and a run of one's own."""
    source = called(name, shell.where)
    shell("suggest", source, "--journal", "run.jsonl", "-n", 2, *words_of(name, shell.where))
    more = ["--json"] if as_json else []
    shell("tell", "run.jsonl", "0.5", "--number", 0, *more)
    shell("tell", "run.jsonl", "--failed", "--number", 1, "--reason", "diverged", *more)
    own = reference(name).asked[2]
    sets = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
    if "candidates" in FEATURES[name].options:  # a run that is not listed is refused
        sets = [word for key, v in Store.open(shell.where / "run.jsonl").run.record[0].point.items()
                for word in ("--set", f"{key}={v}")]  # fmt: skip
    answer = shell("tell", "run.jsonl", "0.25", *sets, *more)
    assert (json.loads(answer)["value"] == 0.25) if as_json else ("0.25" in answer)
    record = Store.open(shell.where / "run.jsonl").run.record
    assert [trial.value for trial in record.observed] == [0.5, 0.25]
    assert record.failed[0].note.reason == "diverged"


def by_status(name: str, shell: Shell, *, as_json: bool) -> None:
    path, space = begun(name, shell.where), prior_of(name).space
    record = Store.open(path).run.record
    text = shell("status", path, *(["--json"] if as_json else []))
    if as_json:
        found = json.loads(text)
        assert [t["configuration"] for t in found["trials"]] == [t.point for t in record]
        assert (found["complete"], found["failed"], found["pending"]) == (1, 1, [2])
        return
    assert "1 values, 1 failed, 1 pending" in text
    for trial in record:
        for cell in filter(None, space.cells(trial.point)):
            assert cell in text


PROGRAM = "import sys; assert 'None' not in sys.argv; print(0.7)"


def by_tune(name: str, shell: Shell, *, as_json: bool) -> None:
    space, source = prior_of(name).space, called(name, shell.where)
    (shell.where / "train.py").write_text(PROGRAM, encoding="utf-8")
    places = [f"{{{parameter}}}" for parameter in space.free]
    text = shell(
        *("tune", source, "--budget", 2, *words_of(name, shell.where)),
        *(["--json"] if as_json else []),
        *("--", sys.executable, "train.py", *places),
    )
    record = Store.open(shell.where / "metakel-run.jsonl").run.record
    assert [trial.value for trial in record.observed] == [0.7, 0.7]
    assert all(FEATURES[name].holds(t.point) for t in record) or "new" in FEATURES[name].options
    assert record[0].point == pytest.approx(prior_first(name))
    if as_json:
        assert "0.7" in text.splitlines()[-1]


def prior_first(name: str) -> dict[str, Any]:
    if "new" in FEATURES[name].options:
        return prior_of(name).optimizer().ask()
    return reference(name).asked[0]


def by_report_command(name: str, shell: Shell, *, as_json: bool) -> None:
    path = begun(name, shell.where)
    source = called(name, shell.where)
    words = words_of(name, shell.where) if "candidates" in FEATURES[name].options else []
    shell("report", source, "--journal", path.name, *words)
    assert "The run" in (shell.where / "report.html").read_text(encoding="utf-8")


IN_PYTHON: dict[str, Callable[[str, Path], None]] = {
    "optimizer": by_optimizer,
    "save and load": by_save_and_load,
    "Tuner": by_tuner,
    "sampler": by_sampler,
    "MetaKelSearchCV": by_search,
    "report": by_report,
    "notebook": by_notebook,
}
BY_COMMAND: dict[str, Callable[..., None]] = {
    "look": by_look,
    "learn": by_learn,
    "show": by_show,
    "suggest": by_suggest,
    "table": by_table,
    "tell": by_tell,
    "status": by_status,
    "tune": by_tune,
    "report": by_report_command,
}


def go_through(
    name: str, door: str, where: Path, monkeypatch: Any, capsys: Any, caplog: Any
) -> None:
    if name == STOPPED and door in doors_stopped.CELLS:
        shell, more = Shell(where, monkeypatch, capsys), ["--json"] * door.endswith("--json")
        doors_stopped.CELLS[door](where, shell, caplog, *more)
    elif door in IN_PYTHON and door != "report":
        IN_PYTHON[door](name, where)
    elif door == "report":
        by_report(name, where)
        by_report_command(name, Shell(where, monkeypatch, capsys), as_json=False)
    else:
        command, _, as_json = door.partition(" ")
        BY_COMMAND[command](name, Shell(where, monkeypatch, capsys), as_json=bool(as_json))


@pytest.mark.parametrize(("name", "door"), list(product(FEATURES, dict.fromkeys(DOORS))))
def test_a_feature_goes_through_a_door(name, door, tmp_path, monkeypatch, capsys, caplog):
    if name == STOPPED and sys.platform == "win32":
        pytest.skip("metakel tune needs pread")
    if name == STOPPED and door not in doors_stopped.CELLS:
        name = "category"  # it has no words for curves: the same search without them
    if (name, door) in NO_WORDS:
        # The prior has no such parameter, so the command cannot name it; it says which it has.
        shell = Shell(tmp_path, monkeypatch, capsys)
        prior_of(name).save(tmp_path / "prior.json")
        with pytest.raises(InputError, match="momentum"):
            shell("suggest", "prior.json", "--fix", "momentum=0.5")
        return
    if (name, door) in REFUSED:
        with pytest.raises(InputError) as refusal:
            go_through(name, door, tmp_path, monkeypatch, capsys, caplog)
        assert REFUSED[name, door] in str(refusal.value)
        return
    go_through(name, door, tmp_path, monkeypatch, capsys, caplog)


@pytest.mark.parametrize("name", ["float", "candidates", "conditional parameter"])
def test_the_table_holds_at_trial_60(name, tmp_path, monkeypatch, capsys):
    """After 59 values, every door that decides asks for the same and expects the same of it."""
    feature, prior, rng = FEATURES[name], prior_of(name), np.random.default_rng(1)
    listed = feature.options.get("candidates")
    told = listed or feature.space.decode(feature.space.sample(rng, 59))
    told = [told[i] for i in rng.permutation(len(told))[:59]]
    values = [feature.value(x) + 0.01 * rng.standard_normal() for x in told]

    def answer(search: Any) -> tuple[dict[str, Any], float]:
        x = search.ask()
        return x, float(search.explain(x).expected.value)

    optimizer = prior.optimizer(**feature.options)
    optimizer.tell(told, values)
    optimizer.save(tmp_path / "optimizer.json")
    tuner = mk.Tuner(prior, tmp_path / "run.jsonl", **feature.options)
    for x, value in zip(told, values, strict=True):
        tuner.tell(x, value)
    (tmp_path / "again.jsonl").write_bytes((tmp_path / "run.jsonl").read_bytes())
    wanted, mean = answer(optimizer)
    assert wanted not in told
    shell = Shell(tmp_path, monkeypatch, capsys)
    words = ["suggest", called(name, tmp_path), "--journal", "run.jsonl", "--json"]
    (said,) = json.loads(shell(*words, *words_of(name, tmp_path)))
    found = {
        "save and load": answer(Optimizer.load(tmp_path / "optimizer.json")),
        "Tuner": answer(mk.Tuner(prior, tmp_path / "again.jsonl", **feature.options)),
        "suggest": (said["configuration"], said["mean"]),
    }
    if not listed:  # a study has no table of candidates
        study = optuna.create_study(
            direction="maximize", sampler=MetaKelSampler(prior=prior, seed=0)
        )
        known, by_name = distributions(feature.space), {c.name: c for c in feature.space.conditions}
        for x, value in zip(told, values, strict=True):
            its = {key: known[key] for key in x}
            study.add_trial(optuna.trial.create_trial(params=x, distributions=its, value=value))
        trial, asked = study.ask(), dict[str, Any]()
        for key in known:
            if key not in by_name or asked[by_name[key].parent] in by_name[key].values:
                asked[key] = trial._suggest(key, known[key])
        found["sampler"] = asked, mean
    for door, (x, expected) in found.items():
        assert list(x) == list(wanted), door
        assert_allclose(
            prior.space.encode([x]), prior.space.encode([wanted]), atol=1e-6, err_msg=door
        )
        assert expected == pytest.approx(mean, rel=1e-4, abs=1e-6), door
