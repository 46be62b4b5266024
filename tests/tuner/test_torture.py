"""kill -9 at 30 random moments: nothing told is lost, and the run ends like an undisturbed one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from metakel.tuner.owner import is_dead, this_process

HERE = Path(__file__).parent


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9 on Windows")
def test_thirty_kills_lose_nothing():
    run = subprocess.run(
        [sys.executable, "torture.py", "--kills", "30"],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    )
    count = json.loads(run.stdout)
    assert count["kills"] >= 30
    assert count["confirmed"] > 30, "the kills came before anything was told"
    assert count["repeated"] > 0, "no kill came in the middle of an evaluation"
    assert (count["lost"], count["unreadable"], count["different"]) == (0, 0, [])
    assert run.returncode == 0


def test_the_dead_are_told_from_the_living():
    me = this_process()
    assert not is_dead(me)
    assert not is_dead(None)
    assert not is_dead({**me, "host": "elsewhere", "pid": 1 << 22})
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert is_dead({**me, "pid": gone.pid})
    assert is_dead({**me, "start": "1"})  # the number is in use again, by another process
