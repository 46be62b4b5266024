"""Measured tables say when they were made, and are made again before they are stale."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.docs import sections
from benchmarks.summary import ahead, best_first, beyond, key_numbers, missed

ROOT = Path(__file__).parents[2]
# So many commits may change a package after a table of it was made.
MOST_COMMITS = 80
MEASURES = {
    "alarm": "confidence",
    "ask": "optimize",
    "certificate": "optimize",
    "coverage": "confidence",
    "curves": "curves.py",
    "dirty": "optimize",
    "kinds": "curves.py",
    "others": "curves.py",
    "pruners": "curves.py",
    "searches": "curves.py",
    "studies": "curves.py",
    "time": "curves.py",
    "floors": "confidence",
    "fresh": "optimize",
    "frontier": "safe",
    "library": "library",
    "library-search": "integrations/sklearn",
    "long-runs": "tuner",
    "long-spaces": "optimize",
    "optuna": "integrations/optuna",
    "reading": "io",
    "rows": "optimize",
    "scale": "scale",
    "selection": "confidence",
    "solver": "grouplasso",
    "spaces": "optimize",
    "start": "__init__.py",
    "stopping": "optimize",
    "transfer": "optimize",
}


def test_every_table_says_at_which_commit_it_was_written():
    for name, text in sections().items():
        assert re.search(r"Written at commit [0-9a-f]{7,} on \d{4}-\d\d-\d\d\.", text), name


def commits(*which: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "rev-list", "--count", *which]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", sorted(sections()))
def test_no_table_is_stale(name):
    commit = re.search(r"Written at commit (\S+)", sections()[name])[1]
    place = f"src/metakel/{MEASURES[name]}"
    assert (ROOT / place).exists()
    done = commits(f"{commit}..HEAD", "--", place)
    if done.returncode:  # a commit that was rebased: by the day
        day = re.search(r"on (\d{4}-\d\d-\d\d)\.", sections()[name])[1]
        done = commits(f"--since={day}T00:00", "HEAD", "--", place)
    if done.returncode:
        pytest.skip("needs the history of the repository")
    assert int(done.stdout) <= MOST_COMMITS, f"{place} has changed a lot since: measure again"


def test_what_is_quoted_from_the_tables_is_what_they_say():
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert missed() in page, "run python -m benchmarks.summary"
    assert ahead() in page
    assert key_numbers() in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_floor_that_a_table_of_curves_misses_is_listed():
    share = {"curves": "errors", "delta": "0.2", "floor": "0.25"}
    assert [*beyond(share | {"best stopped": "0.26"})]
    assert not [*beyond(share | {"best stopped": "0.25"})]
    assert [*beyond({"ratio (floor .95; .75)": "0.90; 0.80"})] == [
        ("ratio", "0.90; 0.80", "<= .95; .75")
    ]
    assert not [*beyond({"ratio (floor .95; .75)": "0.90; 0.70"})]


def test_key_numbers_have_the_best_first_and_leave_no_program_out():
    names = ("after 1", "after 5", "after 10", "after 20")
    ours = {"method": "metakel", **dict(zip(names, ("0.8", "0.7", "0.6", ""), strict=True))}
    theirs = {"method": "TPE", **dict(zip(names, ("0.9", "0.65", "0.7", "0.5"), strict=True))}
    assert [*best_first([ours, theirs])] == [
        "  - after 1 fit: metakel 0.8, TPE 0.9",
        "  - after 5 fits: TPE 0.65, metakel 0.7",
        "  - after 10 fits: metakel 0.6, TPE 0.7",
        "  - after 20 fits: TPE 0.5, metakel not measured",
    ]
