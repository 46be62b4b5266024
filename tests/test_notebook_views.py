"""What a notebook shows: escaped, without colours of its own, and never a page that restyles it."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest

import metakel as mk
from metakel.report import embed_report, replay_run

EVIL = "<script>alert(1)</script>&\"'"


@cache
def evil_tuner() -> mk.Tuner:
    rng = np.random.default_rng(0)
    rows: dict[str, list] = {name: [] for name in ("task", EVIL, "kind", "score")}
    for s in range(6):
        for _ in range(10):
            a, kind = float(rng.uniform(-1, 1)), str(rng.choice([EVIL, "b"]))
            value = 1 - (a - 0.1 * s) ** 2 - 0.1 * (kind == "b")
            for name, cell in zip(rows, (f"{EVIL}{s}", a, kind, value), strict=True):
                rows[name].append(cell)
    history = mk.History.from_frame(rows, task="task", output="score")
    tuner = mk.Tuner(mk.learn_prior(history, certify="none"))
    for i in range(12):
        x = tuner.ask()
        tuner.tell(x, 1 - x[EVIL] ** 2, failed=i == 2, reason=EVIL)
    tuner.ask()
    return tuner


def shown() -> dict[str, object]:
    tuner = evil_tuner()
    history = mk.History.from_frame(
        {"task": ["a", "a", "b", "b"], EVIL: [0, 1, 0, 1.0], "y": [1.0, 2, 3, 5]},
        task="task", output="y",
    )  # fmt: skip
    return {
        "history": history,
        "prior": tuner.prior,
        "explanation": tuner.prior.explain(),
        "tuner": tuner,
        "trials": tuner.trials,
        "certificate": tuner.certificate,
        "reasons": tuner.explain(tuner.best.x),
        "kernel": mk.learn_kernel(
            history, mk.kernels.matern(2.5, 1.0, d0=1), lam=0.1, noise_std=0.1
        ),
    }


class Balanced(HTMLParser):
    """Tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", shown())
def test_a_box_is_small_escaped_and_takes_the_colors_around_it(name):
    text = shown()[name]._repr_html_()
    assert len(text) < 20_000
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert not parser.seen & {"script", "style", "link"}
    assert not re.search(r"(?<![-\w])(color|background)\s*:", text)


def test_trials_are_listed_indexed_and_a_frame():
    tuner = evil_tuner()
    trials = tuner.trials
    assert len(trials) == len(list(trials)) == 13
    assert trials[2].state == "failed"
    assert trials[-1] is trials.trials[-1]
    assert trials[:2] == trials.trials[:2]
    frame = pytest.importorskip("pandas") and trials.to_frame()
    assert list(frame.columns) == ["number", "state", "value", "expected", "sd", EVIL, "kind"]
    assert frame["value"].notna().sum() == len(trials.observed)
    assert len(mk.Tuner(tuner.prior).trials.to_frame()) == 0


def test_the_embedded_report_is_in_a_frame_of_its_own():
    tuner = evil_tuner()
    run = replay_run(tuner.prior, tuner.trials, tuner.options)
    text = embed_report(tuner.prior, run=run, height=500)._repr_html_()
    parser = Balanced()
    parser.feed(text)
    assert parser.seen == {"iframe"}
    assert "allow-same-origin" not in text
