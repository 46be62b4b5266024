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
NEEDS = {"engineer": "sklearn", "lab": "olympus"}


def commands(text: str) -> list[str]:
    """What was typed, without sizes."""
    return [
        re.sub(r"--budget \d+", "--budget", c) for c in re.findall(r"^\$ (metakel .*)$", text, re.M)
    ]


@pytest.mark.parametrize("name", NEEDS)
def test_a_story_runs_as_its_transcript_says(name, tmp_path):
    if find_spec(NEEDS[name]) is None or find_spec("openpyxl") is None:
        pytest.skip(f"needs {NEEDS[name]} and openpyxl")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "stories" / f"{name}.py", "--small"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    transcript = (ROOT / "docs" / "stories" / f"{name}.md").read_text(encoding="utf-8")
    typed, shown = commands(done.stdout), commands(transcript)
    assert dict.fromkeys(typed) == dict.fromkeys(shown)
    expected = {
        "engineer": [
            "one of boosting, extra, forest",
            "only where model is boosting",
            "--same-task",
            "seed looks like",
        ],
        "lab": ["day holds dates", "1 results of suzuki.xlsx recorded", "rounded as in the past"],
    }
    for part in expected[name]:
        assert part in done.stdout
        assert part in transcript
