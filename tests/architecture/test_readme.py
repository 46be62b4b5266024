"""README and docs code runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from metakel.confidence import ConfidenceSequence
from metakel.learn import kernel as learning

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


LEARNING_PAGES = ["README.md", "docs/guide/decide.md", "docs/guide/confidence.md"]


@pytest.mark.parametrize("page", LEARNING_PAGES)
def test_confidence_with_a_learned_kernel_counts_what_learning_spent(page, tmp_path, monkeypatch):
    """The two failures add up: whoever promises 90 % may not spend 10 % twice."""
    spent: dict[int, float] = {}
    kept, promised = [], []
    learn_again, make = learning.learn_again, ConfidenceSequence.__init__

    def learning_noted(*args, **options):
        found = learn_again(*args, **options)
        kept.append(found.kernel)  # so that its identity stays its own
        spent[id(found.kernel)] = found.delta
        return found

    def promise_noted(self, kernel, **options):
        if id(kernel) in spent:
            promised.append((spent[id(kernel)], options.get("delta_learning", 0.0)))
        make(self, kernel, **options)

    monkeypatch.setattr(learning, "learn_again", learning_noted)
    monkeypatch.setattr(ConfidenceSequence, "__init__", promise_noted)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__docs__"}
    for number, code in enumerate(blocks(ROOT / page)):
        exec(compile(code, f"{page}[{number}]", "exec"), names)
    assert promised
    assert all(counted >= due for due, counted in promised), promised
