"""README and docs code runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


def blocks(page: Path) -> list[str]:
    return FENCE.findall(page.read_text())


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_python_block_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__docs__"}
    for number, code in enumerate(blocks(page)):
        exec(compile(code, f"{page.name}[{number}]", "exec"), names)


def test_the_readme_has_code_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert blocks(ROOT / "README.md")
    assert "make demo" in text
    assert "make test" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


CONFIDENCE = re.compile(r"ConfidenceSequence|GPUCB|safe\.Limit|confidence|interval")
SELECTION = re.compile(r"select", re.I)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def paragraphs(page: Path) -> list[str]:
    """Code blocks and paragraphs; an example is one."""
    if page.suffix == ".py":
        return [page.read_text()]
    text = page.read_text()
    return [*blocks(page), *re.split(r"\n\s*\n", FENCE.sub("", text))]


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda p: str(p.relative_to(ROOT)))
def test_confidence_in_the_selection_alone_says_that_it_bets_on_it(page):
    """`ConfidenceSequence(learned)` is what is shown; `learned.kernel` believes the selection."""
    for part in paragraphs(page):
        if "learned.kernel" in part and CONFIDENCE.search(part):
            assert SELECTION.search(part), part


@pytest.mark.parametrize("page", ["README.md", "docs/guide/decide.md"])
def test_pages_on_confidence_show_the_default_path(page):
    code = "".join(blocks(ROOT / page))
    assert re.search(r"ConfidenceSequence\(\s*learned,", code)
    assert "learned.kernel" not in code
