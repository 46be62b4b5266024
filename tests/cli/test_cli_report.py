"""``metakel report``: a page from files on disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from strangers_table import TASK


def test_a_page_of_the_prior_alone_and_of_a_run(metakel, prior):
    alone = metakel("report", prior)
    assert alone.code == 0
    assert "works offline" in alone.out
    assert "What was learned" in Path("report.html").read_text(encoding="utf-8")
    metakel("tune", prior, "--budget", 3, "--", sys.executable, "-c", "print(80)", "{n=layers}")
    options = ("--journal", "metakel-run.jsonl")
    whole = metakel("report", prior, *options, "-o", "whole.html", "--json")
    assert whole.code == 0, whole.err
    text = Path(json.loads(whole.out)["report"]).read_text(encoding="utf-8")
    assert "3 values, 0 failed, 0 pending" in text
    assert "Tuning left-out tasks" in text


def test_what_does_not_fit_together_is_refused(metakel, prior, history):
    Path("j").write_text("{}\n")
    assert "line 1" in metakel("report", prior, "--journal", "j").err
    metakel("suggest", prior, "--journal", "k")
    other = ("--task", TASK, "--output", "acc %", "--input", "learning rate", "-o", "other.json")
    assert metakel("learn", history, *other).code == 0
    assert "was begun with another prior" in metakel("report", "other.json", "--journal", "k").err
    if Path("/dev/full").exists():
        assert metakel("report", prior, "-o", "/dev/full").code == 4
