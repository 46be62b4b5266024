"""The scripts of examples/hosts run, and docs/scale.md shows parts of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_optuna_workers import server

ROOT = Path(__file__).parents[2]
HOSTS = ROOT / "examples" / "hosts"
NEEDS = {
    "dask_workers": "optuna_integration",
    "optuna_search_cv": "optuna_integration",
    "ray_tune": "ray",
    "wandb_study": "wandb",
}


def played(name: str, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HOSTS / f"{name}.py", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", NEEDS)
def test_a_host_runs(name, tmp_path):
    pytest.importorskip(NEEDS[name], reason="run by make hosts")
    assert "best" in played(name, tmp_path)


def test_processes_share_a_study_and_its_prior(tmp_path):
    found = played("postgres", tmp_path, f"sqlite:///{tmp_path / 'studies.db'}", "--workers", "2")
    assert "8 trials of 2 processes" in found


@pytest.mark.skipif(not os.environ.get("METAKEL_FULL"), reason="run by make hosts")
def test_processes_share_a_study_on_a_server(tmp_path):
    with server() as url:
        assert "16 trials of 4 processes" in played("postgres", tmp_path, url)


def test_the_script_of_an_array_of_jobs_has_options_that_exist():
    assert subprocess.run(["sh", "-n", HOSTS / "slurm.sh"]).returncode == 0
    script = (HOSTS / "slurm.sh").read_text(encoding="utf-8")
    words = script.rpartition("metakel tune")[2].partition("-- \\")[0]
    helped = subprocess.run(
        [sys.executable, "-m", "metakel", "tune", "--help"], capture_output=True, text=True
    )
    for option in re.findall(r"--[a-z-]+", words):
        assert option in helped.stdout


def test_what_the_page_shows_is_in_the_scripts():
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8").partition("## Where it runs")[2]
    blocks = re.findall(r"^`examples/hosts/(\S+)`.*?^```\w+\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) == 6
    for name, block in blocks:
        text = re.sub(r"\s+", " ", (HOSTS / name).read_text(encoding="utf-8"))
        assert re.sub(r"\s+", " ", block).strip() in text, name
