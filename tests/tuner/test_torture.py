"""kill -9 again and again: no value is lost, and the run ends like an undisturbed one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9 on Windows")
@pytest.mark.parametrize("options", [("--kills", "21"), ("--kills", "3", "--command")])
def test_kills_lose_nothing(options):
    run = subprocess.run(
        [sys.executable, "torture.py", *options],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    )
    count = json.loads(run.stdout)
    kills = int(options[1])
    assert count["kills"] == kills
    assert count["confirmed"] >= kills, "the kills came before there were any values"
    assert count["repeated"] >= count["in_evaluations"] == kills // 3
    assert (count["lost"], count["unreadable"], count["different"]) == (0, 0, [])
    assert run.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9 on Windows")
def test_kills_while_a_run_is_stopped_early_lose_nothing_and_leave_no_program():
    run = subprocess.run(
        [sys.executable, "torture_stops.py", "--kills", "3"],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    )
    count = json.loads(run.stdout)
    assert count["by"] == {"SIGKILL": 1, "SIGTERM": 1, "SIGINT": 1}
    assert (count["lost"], count["unreadable"], count["left"]) == (0, 0, 0)
    assert run.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9 on Windows")
def test_neither_crowds_nor_full_disks_nor_kills_while_saving_lose_anything():
    words = ["swarm", "saving", "disk", "pauses", "signals", "damage"]
    words += ["--kills", "6", "--hosts", "3", "--step", "2999"]
    run = subprocess.run(
        [sys.executable, "torture_swarm.py", *words],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    swarm, saving, disk, pauses, signals, _ = map(json.loads, run.stdout.splitlines())
    assert swarm["kills"] == saving["kills"] == 6
    assert swarm["confirmed"] >= 40
    assert min(way["confirmed"] for way in (disk, pauses, signals)) > 0
