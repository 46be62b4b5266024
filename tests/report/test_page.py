"""The report: honest, escaped, offline, and a page that a real browser shows without complaint."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from dataclasses import replace
from functools import cache
from html import escape, unescape
from itertools import combinations
from math import log10
from xml.etree import ElementTree

import numpy as np
import pytest
from chromium import browser, chromium

from metakel import History, Prior, learn_prior
from metakel.charts import number, short
from metakel.optimize import Certificate
from metakel.priors.regret_calibration import random_regret
from metakel.priors.summary import promise
from metakel.report import RunReplay, replay_journal, replay_run, write_report
from metakel.report.run import as_csv
from metakel.tuner import Tuner

EVIL = "<script>document.title = 'owned'</script>\"'&"
SIZES = [(390, False), (390, True), (1200, False), (1200, True)]


@cache
def some_history() -> History:
    """Names that attack, an integer and a category."""
    rng = np.random.default_rng(0)
    rows: dict[str, list] = {name: [] for name in ("task", "rate", "depth", EVIL, "score")}
    for s in range(20):
        shift = 0.3 * rng.standard_normal()
        for _ in range(16):
            rate, depth = float(10 ** rng.uniform(-4, 0)), int(rng.integers(2, 11))
            kind = str(rng.choice(["<b>adam", "sgd"]))
            value = 0.9 - 0.1 * (log10(rate) + 2 - shift) ** 2 - 0.02 * (depth - 6) ** 2
            for name, cell in zip(rows, (f"{EVIL}{s}", rate, depth, kind, value), strict=True):
                rows[name].append(cell)
    return History.from_frame(rows, task="task", output="score")


@cache
def some_report() -> tuple[Prior, RunReplay]:
    prior = learn_prior(some_history())
    tuner = Tuner(prior, budget=10)
    for i, x in enumerate(tuner):
        value = -0.1 * (log10(x["rate"]) + 2) ** 2 - 0.02 * (x["depth"] - 6) ** 2
        tuner.tell(x, 0.9 + value, failed=i == 3, reason="oom")
    return prior, replay_run(prior, tuner.trials, tuner.options)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    prior, run = some_report()
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(prior, path, run=run, title=f"Tuning {EVIL}")


def test_no_name_becomes_markup_and_nothing_is_fetched(page):
    text = page.read_text(encoding="utf-8")
    assert "<script>document" not in text
    assert "<b>adam" not in text
    assert not re.search(r"(src|href)=[\"'](?!data:)", text)
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    assert "default-src 'none'" in text


def test_only_the_style_and_script_of_the_page_are_allowed(page):
    text = page.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "unsafe" not in policy
    assert "base-uri 'none'; form-action 'none'" in policy
    for element in ("style", "script"):
        (content,) = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert " style=" not in text, "the policy would ignore it"


def test_a_long_run_makes_a_small_page(tmp_path, monkeypatch):
    monkeypatch.setattr("metakel.report.run.DOTS", 60)
    prior, _ = some_report()
    rng = np.random.default_rng(0)
    rows = prior.space.decode(rng.uniform(-1, 1, (150, prior.space.d0)))
    tuner = Tuner(prior)
    tuner.observe(rows, [0.9 - 0.1 * (log10(row["rate"]) + 2) ** 2 for row in rows])
    run = replay_run(prior, tuner.trials, tuner.options)
    assert len(run.best) == 150
    assert len(run.steps) <= 100
    assert (run.steps[0], run.steps[-1]) == (1, 150)
    assert run.trust[-1] == pytest.approx(tuner.trust, rel=1e-12)
    text = write_report(prior, tmp_path / "r.html", run=run).read_text()
    drawn = int(re.search(r"(\d+) of 150 values are not drawn", text)[1])
    assert 150 - drawn <= 60
    # The first point was not asked for, so that nothing can be promised.
    reason = escape(tuner.certificate.reason)
    assert f"Nothing is promised about the best configuration: {reason}." in text


def test_tuning_of_left_out_tasks_stops_before_their_rows_are_used_up(page):
    """With every row tried, any method has found the best one."""
    prior, _ = some_report()
    rows = min(task.n for task in some_history())
    assert prior.replays.evaluations == rows - 1
    text = page.read_text(encoding="utf-8")
    assert f"The axis stops at {rows - 1}: a task has no more recorded rows" in text
    assert f"best of their recorded rows after {rows - 1}" in text


def test_it_says_what_was_found_what_it_is_worth_and_what_to_try_next(page):
    prior, run = some_report()
    text = unescape(page.read_text(encoding="utf-8"))
    best = max(run.trials, key=lambda trial: trial.value)
    assert (
        f"The best score after 9 runs is <b>{number(best.value)}</b>, in trial {best.number}"
        in text
    )
    assert "A typical configuration is expected to give" in text
    assert "Try this next, because" in text
    assert run.next.sentence in text
    assert re.search(r"made by</dt><dd>metakel \d", text)
    assert "Expected against measured" in text
    assert "nats" not in text
    assert "norm bound" not in text


def test_runs_that_failed_are_listed_with_their_reasons(page, tmp_path):
    prior, run = some_report()
    text = unescape(page.read_text(encoding="utf-8"))
    assert "<h3>1 failed</h3><p>oom (1).</p>" in text
    assert f"<td>{run.record.failed[0].number}</td><td>oom</td>" in text
    tuner = Tuner(prior)
    tuner.tell(tuner.ask(), failed=True, reason=EVIL)
    tuner.tell(tuner.ask(), failed=True)
    only = replay_run(prior, tuner.trials, tuner.options)
    text = write_report(prior, tmp_path / "r.html", run=only).read_text()
    assert f"{escape(EVIL)} (1); no reason was given (1)." in text


def test_a_map_of_equal_values_is_not_drawn(tmp_path, monkeypatch):
    prior, _ = some_report()
    assert "Typical score by" in write_report(prior, tmp_path / "r.html").read_text()
    monkeypatch.setattr(Prior, "mean", lambda self, rows: np.full(len(rows), 0.9))
    assert "Typical score by" not in write_report(prior, tmp_path / "r.html").read_text()


def test_a_page_of_a_prior_alone_says_where_to_begin(tmp_path):
    prior, _ = some_report()
    sources = {"prior": "prior.json"}
    text = unescape(write_report(prior, tmp_path / "a.html", sources=sources).read_text())
    assert "Try this first, because" in text
    assert prior.optimizer().explain(prior.optimizer().peek()).sentence in text
    assert "<dd>prior.json</dd>" in text


def test_the_table_to_download_holds_every_value_and_no_formula():
    prior, run = some_report()
    names = list(run.trials[0].point)
    rows = list(csv.reader(io.StringIO(as_csv(prior, run.trials, names))))
    assert rows[0] == ["trial", "score", "expected", "sd", *names]
    assert [float(row[1]) for row in rows[1:]] == [trial.value for trial in run.trials]
    evil = [replace(run.trials[0], point={"x": "=1+1"})]
    assert "'=1+1" in as_csv(prior, evil, ["x"])


def test_an_absurd_certificate_is_not_printed():
    prior, _ = some_report()
    useless = Certificate(100 * prior.model.scale, delta=0.2)
    assert promise(prior, useless).startswith("Nothing useful can be promised yet")
    good = Certificate(0.01 * prior.model.scale, delta=0.2)
    assert "by more than" in promise(prior, good)


@pytest.mark.parametrize("minimize", [False, True])
def test_the_map_is_strongest_where_it_is_best_and_drawn_around_what_is_tried_first(
    minimize, tmp_path
):
    rng = np.random.default_rng(0)
    rows: dict[str, list] = {name: [] for name in ("task", "a", "b", "c", "score")}
    for s in range(10):
        for a, b, c in rng.uniform(-1, 1, (20, 3)):
            value = 5 - 4 * (a - 0.9) ** 2 - 2 * b**2 - (c - 0.5) ** 2 + rng.normal(0, 0.1)
            for name, cell in zip(rows, (s, a, b, c, -value if minimize else value), strict=True):
                rows[name].append(cell)
    history = History.from_frame(rows, task="task", output="score", minimize=minimize)
    prior = learn_prior(history, certify="none")
    text = unescape(write_report(prior, tmp_path / "page.html").read_text())
    chart = text[text.index("Typical score by a and ") :]
    cells = re.findall(r'fill-opacity="([\d.]+)" data-tip="a ([-\d.]+), [bc]', chart)
    strength = [(float(opacity), float(a)) for opacity, a in cells[: 24 * 24]]
    assert max(strength)[1] > 0.5
    assert min(strength)[1] < -0.5
    first = prior.optimizer().peek()
    other = "c" if "Typical score by a and b" in text else "b"
    assert f"The others as tried first: {other} = {short(first[other])}." in text


def test_parts_that_are_not_known_are_left_out_and_said(tmp_path):
    prior, _ = some_report()
    bare = write_report(prior, tmp_path / "a.html").read_text()
    assert "The run" not in bare
    assert "Tuning left-out tasks" in bare
    useless = replace(prior, task_gp=None, calibration=None)
    flat = write_report(useless, tmp_path / "b.html").read_text()
    assert "there is no shape" in flat
    cold = replay_run(useless, Tuner(useless).trials, Tuner(useless).options)
    assert "nothing to show yet" in write_report(prior, tmp_path / "c.html", run=cold).read_text()


def test_an_alarm_cannot_be_overlooked(tmp_path):
    prior, _ = some_report()
    tuner = Tuner(prior, budget=12)
    for x in tuner:
        tuner.tell(x, 30 + 5 * (log10(x["rate"]) + 2) ** 2)
    alarmed = replay_run(prior, tuner.trials, tuner.options)
    text = write_report(prior, tmp_path / "r.html", run=alarmed).read_text()
    assert '<div class="card bad"><b>ALARM</b>' in text
    assert f"Alarm after {tuner.alarm.time} values" in text
    assert alarmed.trust[-1] < 1e-6


def test_a_journal_is_replayed_like_its_tuner(tmp_path):
    prior, _ = some_report()
    tuner = Tuner(prior, tmp_path / "j", budget=4)
    for x in tuner:
        tuner.tell(x, log10(x["rate"]))
    ours, theirs = (
        replay_run(prior, tuner.trials, tuner.options),
        replay_journal(prior, tmp_path / "j"),
    )
    np.testing.assert_array_equal(ours.regret, theirs.regret)
    np.testing.assert_array_equal(ours.best, theirs.best)
    assert ours.regret[-1] == tuner.certificate.regret


def test_random_search_is_computed_exactly():
    y = np.array([3.0, 1.0, 2.0, 2.0, 5.0])
    rng = np.random.default_rng(0)
    drawn = np.array([rng.permutation(y) for _ in range(40_000)])
    simulated = 5.0 - np.maximum.accumulate(drawn, axis=1).mean(axis=0)
    np.testing.assert_allclose(random_regret(y, 5), simulated, atol=0.02)
    assert random_regret(y, 7)[-1] == pytest.approx(0, abs=1e-12)


@pytest.mark.skipif(browser() is None, reason="no chromium with chromedriver on this machine")
def test_a_real_browser_shows_it(page, tmp_path):
    with chromium(tmp_path / "profile") as tab:
        for width, dark in SIZES:
            tab.show(page, width=width, dark=dark)
            assert tab.run("return document.documentElement.dataset.ready") == "yes"
            assert tab.run("return document.title") == f"Tuning {EVIL}"
            wide = tab.run("return [document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1] == width, "the page scrolls sideways"
            boxes = tab.run(
                "return [...document.querySelectorAll('svg')].map(s => "
                "[s.getBoundingClientRect().width, s.getBoundingClientRect().height, "
                "s.querySelectorAll('polyline, circle, rect').length])"
            )
            assert len(boxes) >= 9
            assert all(w > 250 and h > 140 and marks > 0 for w, h, marks in boxes)
            paper = tab.run("return getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(255, 255, 255)") != dark
            columns = tab.run(
                "return getComputedStyle(document.querySelector('.figures'))"
                ".gridTemplateColumns.split(' ').length"
            )
            assert columns == 1 if width == 390 else columns in (2, 3)
        tab.devtools("Emulation.setFocusEmulationEnabled", enabled=True)
        tab.run("document.querySelector('[data-tip]').focus()")
        assert tab.run("return getComputedStyle(document.getElementById('tip')).display") == "block"
        tab.run(
            "HTMLAnchorElement.prototype.click = () => {}; window.saved = [];"
            "URL.createObjectURL = blob => { saved.push(blob); return '#' };"
            "document.querySelectorAll('button').forEach(b => b.click())"
        )
        kinds = tab.run("return saved.map(blob => blob.type)")
        assert kinds.count("text/csv") == 1
        assert kinds.count("image/svg+xml") == len(boxes)
        table = tab.run("return saved.find(blob => blob.type == 'text/csv').text()")
        _, run = some_report()
        assert table.count("\n") == len(run.trials) + 1
        chart = tab.run("return saved.find(blob => blob.type == 'image/svg+xml').text()")
        assert ElementTree.fromstring(chart).tag == "{http://www.w3.org/2000/svg}svg"
        assert [entry["message"] for entry in tab.log("browser")] == []
        assert _fetched(tab.log("performance"), page) == set()


@cache
def long_names(choices: int) -> tuple[Prior, RunReplay]:
    """Eight parameters with long names, or few and one of them with many choices."""
    rng = np.random.default_rng(0)
    kinds = ["gradient boosting", "extra trees", "random forest", "neighbours", "support vectors"]
    kinds += [f"support vectors, kernel {i}" for i in range(5, choices)]
    numbers = [f"subsample_of_columns_{i}" for i in range(7 if choices == 5 else 2)]
    rows = [
        {"data": f"d{s}", "kind_of_model": str(rng.choice(kinds))}
        | {name: 1000 * float(rng.random()) for name in numbers}
        | {"score": float(rng.random())}
        for s in range(4)
        for _ in range(12)
    ]
    frame = {name: [row[name] for row in rows] for name in rows[0]}
    prior = learn_prior(History.from_frame(frame, task="data", output="score"))
    tuner = Tuner(prior, budget=3)
    for i, x in enumerate(tuner):
        tuner.tell(x, 0.1 * i)
    return prior, replay_run(prior, tuner.trials, tuner.options)


@pytest.mark.skipif(browser() is None, reason="no chromium with chromedriver on this machine")
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("choices", [5, 12])
def test_no_text_of_a_chart_covers_another_or_is_cut(tmp_path, width, choices):
    prior, run = long_names(choices)
    page = write_report(prior, tmp_path / "r.html", run=run)
    with chromium(tmp_path / "profile") as tab:
        tab.show(page, width=width)
        charts = tab.run(
            "const box = e => { const r = e.getBoundingClientRect();"
            "return [r.left, r.right, r.top, r.bottom] };"
            "return [...document.querySelectorAll('svg')].map(s => "
            "[box(s), [...s.querySelectorAll('text')].map(t => [t.textContent, box(t)])])"
        )
        figures = tab.run(
            "const box = e => e.getBoundingClientRect();"
            "return [...document.querySelectorAll('.figures:not(.three) > figure:not(.whole)')]"
            ".map(f => [box(f).width, box(f.querySelector('svg')).top"
            " - box(f.querySelector('h3')).bottom])"
        )
    assert all(below >= 0 for _, below in figures), "a title is not above its picture"
    assert len({round(across) for across, _ in figures}) == 1, "the last picture is stretched"
    assert sum(len(texts) for _, texts in charts) > 50
    for (left, right, _, _), texts in charts:
        for text, (start, end, _, _) in texts:
            assert left - 2 <= start <= end <= right + 2, text  # boxes are larger than letters
        for (one, a), (other, b) in combinations(texts, 2):
            across = min(a[1], b[1]) - max(a[0], b[0])
            down = min(a[3], b[3]) - max(a[2], b[2])
            assert across < 1 or down < 4, (one, other)


def _fetched(entries, page) -> set[str]:
    """What was asked of the network on behalf of the page, itself left out."""
    events = [json.loads(entry["message"])["message"] for entry in entries]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    mine = page.resolve().as_uri()
    assert any(e["documentURL"] == mine for e in sent)
    return {e["request"]["url"] for e in sent if e["documentURL"] == mine} - {mine, "data:,"}


def test_a_poor_run_is_said_to_be_behind_all_past_tasks(tmp_path):
    prior, _ = some_report()
    tuner = Tuner(prior)
    tuner.tell(tuner.ask(), -9.0)
    run = replay_run(prior, tuner.trials, tuner.options)
    text = write_report(prior, tmp_path / "r.html", run=run).read_text(encoding="utf-8")
    tasks = len(set(prior.best_runs.tasks))
    assert f"All {tasks} past tasks had a run that is as good or better" in text
