"""What the package index and a packager see."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import metakel

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_the_version_is_written_once():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/metakel/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?[a-z]+\d+)?", metakel.__version__)


def published_readme() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    return text


def test_every_link_of_the_published_readme_is_absolute_and_leads_to_a_file():
    source = PROJECT["project"]["urls"]["Source"]
    links = LINK.findall(published_readme())
    assert len(links) == len(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    for link in links:
        assert re.match("https?:", link), link
        if found := re.match(rf"{source}/blob/main/([^#]+)", link):
            assert (ROOT / found[1]).exists(), link
    assert any(link.startswith("https://raw.") and link.endswith(".png") for link in links)


def test_extras_are_for_users_and_groups_for_developers():
    extras = set(PROJECT["project"]["optional-dependencies"])
    groups = set(PROJECT["dependency-groups"])
    assert not extras & groups
    assert {"dev", "docs", "bench", "test", "lint"} <= groups
    (everything,) = PROJECT["project"]["optional-dependencies"]["all"]
    assert set(everything[len("metakel[") : -1].split(",")) == extras - {"all"}


def test_the_oldest_versions_that_are_tested_are_those_that_are_promised():
    text = (ROOT / ".github" / "oldest.txt").read_text(encoding="utf-8")
    tested = dict(re.findall(r"^([a-z-]+)==([\d.]+)$", text, re.M))
    extras = PROJECT["project"]["optional-dependencies"]
    chosen = ("cli", "plots", "excel", "optuna", "sklearn")
    promised = {*PROJECT["project"]["dependencies"], *(r for name in chosen for r in extras[name])}
    assert len(tested) == len(promised)
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert f'".[{",".join(chosen)}]" --group core-test -c .github/oldest.txt' in workflow
    for requirement in promised:
        name, version = requirement.split(">=")
        assert f"{tested[name]}.".startswith(f"{version}."), requirement


def test_every_version_of_the_constraints_has_a_hash():
    pins = re.findall(r"^\S+==\S+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    text = (ROOT / "requirements-ci.txt").read_text(encoding="utf-8")
    hashed = re.findall(r"^(\S+==\S+) \\\n    --hash=sha256:[0-9a-f]{64}$", text, re.M)
    assert hashed == pins
    assert "://" not in text


def test_bundled_data_have_a_licence():
    folder = ROOT / "src" / "metakel" / "data"
    assert list(folder.glob("*.csv.gz"))
    assert "MIT licence" in (folder / "README.md").read_text(encoding="utf-8")


def test_an_installation_can_check_itself():
    done = subprocess.run(
        [sys.executable, "-m", "metakel.testing"], capture_output=True, text=True, check=True
    )
    assert metakel.__version__ in done.stdout
    assert "all checks passed" in done.stdout


def test_test_files_have_different_names():
    """Their folders are no packages, so that pytest would refuse the second of two."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
