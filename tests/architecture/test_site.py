"""The documentation site: complete, and consistent with what was measured."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.docs import sections

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PUBLIC = (
    "",
    ".charts",
    ".confidence",
    ".data",
    ".gp",
    ".grouplasso",
    ".integrations.gpytorch",
    ".integrations.optuna",
    ".integrations.sklearn",
    ".io",
    ".kernels",
    ".optimize",
    ".priors",
    ".report",
    ".scale",
    ".search",
    ".space",
    ".testing",
    ".theory",
    ".tuner",
)
WHOLE_MODULES = {"datasets", "kernels"}  # their functions are on the pages


def documented() -> set[str]:
    pages = (DOCS / "api").glob("*.md")
    return {name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)}


@pytest.mark.parametrize("package", PUBLIC, ids=lambda p: p or "metakel")
def test_every_public_name_is_in_the_api_reference(package):
    name = f"metakel{package}"
    if name in documented():  # a whole package: the page shows everything in its __all__
        return
    last_words = {name.rpartition(".")[2] for name in documented()}
    assert set(importlib.import_module(name).__all__) - WHOLE_MODULES <= last_words


def test_every_documented_name_exists():
    for name in documented():
        parent, _, last = name.rpartition(".")
        assert _is_module(name) or hasattr(importlib.import_module(parent), last), name


def test_a_function_named_like_its_module_is_documented_by_its_full_path():
    """Griffe would show the module instead."""
    for name in filter(_is_module, documented()):
        importlib.import_module(name)
        parent, _, last = name.rpartition(".")
        found = getattr(importlib.import_module(parent), last)
        assert isinstance(found, ModuleType), f"{name}: write {name}.{last}"


def _is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    listed = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert listed == pages | set(hooks().BESIDE.values())


def test_what_bad_histories_cost_is_quoted_from_the_benchmarks():
    measured = sections()["transfer"]
    guide = (DOCS / "guide" / "safe-use.md").read_text()
    for kind in ("shuffled", "mirrored"):
        costs = [
            re.search(rf"\| {kind} history over cold GP, UCB, {table} +\| ([\d.]+)", measured)[1]
            for table in ("glmnet", "xgboost")
        ]
        assert re.search(rf"^\| {kind}[^|]*\| {costs[0]} \| {costs[1]} \|$", guide, re.M), costs


def test_what_the_first_suggestion_is_worth_is_quoted_from_the_benchmarks():
    text = sections()["transfer"].partition("### glmnet\n")[2]
    ours, random = (
        float(re.search(rf"^\| {name} +\| +\d+ +\| ([\d.]+)", text, re.M)[1])
        for name in ("metakel", "random")
    )
    answer = " ".join((DOCS / "faq.md").read_text().split())
    assert f"a normalised regret of {ours:.2f} on average, random search {random:.2f}" in answer


def test_what_the_library_is_worth_is_quoted_from_the_benchmarks():
    page = sections()["library"]
    paper = " ".join((ROOT / "paper.md").read_text().split())
    for method in ("metakel", "random"):
        row = re.search(rf"^\| all of them .*\| {method} +\|(.*)\|$", page, re.M)[1].split("|")
        one, _, three, five, ten = (f"{float(cell):.2f}" for cell in row)
        assert f"{one}, {three}, {five} and {ten}" in paper, method


def hooks() -> ModuleType:
    for package in ("griffe", "mkdocs", "ziamath"):
        pytest.importorskip(package)
    place = importlib.util.spec_from_file_location("site_hooks", DOCS / "hooks.py")
    found = importlib.util.module_from_spec(place)
    place.loader.exec_module(found)
    return found


def test_links_of_the_repository_lead_to_pages_of_the_site():
    found = hooks().link
    guide = {"place": "docs/guide/tune.md", "name": "guide/tune.md"}
    assert found("../../CHANGELOG.md", **guide) == "../changelog.md"
    assert found("../../Makefile", **guide).endswith("/blob/main/Makefile")
    assert found("prior.md", **guide) == "prior.md"
    changes = {"place": "CHANGELOG.md", "name": "changelog.md"}
    assert found("docs/guide/tune.md", **changes) == "guide/tune.md"


def test_formulas_and_tables_of_docstrings_become_markdown():
    site = hooks()
    text = "Is :math:`a_1`.\n\n.. math:: b +\n          c\n\nEnd."
    assert site.to_markdown(text) == "Is $a_1$.\n\n$$\nb + c\n$$\n\nEnd."
    table = "==  ===\na   b\n==  ===\n1   2 3\n==  ==="
    assert site.to_markdown(table).splitlines() == ["| a | b |", "|---|---|", "| 1 | 2 3 |"]
    drawn = site.on_page_content(r'<p>x <span class="arithmatex">\(\hat a &lt; 1\)</span></p>')
    assert drawn.startswith('<p>x <span class="formula"><svg')
    assert 'aria-label="\\hat a &lt; 1"' in drawn


def test_it_builds_without_a_warning(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings", "ziamath"):
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = len(list(DOCS.rglob("*.md")))
    assert len(list((tmp_path / "site").rglob("*.html"))) >= pages
