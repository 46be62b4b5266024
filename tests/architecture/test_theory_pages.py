"""docs/theory.md: every statement names a function and a test that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_paper_map import CODE, functions_in, resolve

PAGES = [Path(__file__).parents[2] / "docs" / "theory.md"]
STATEMENT = re.compile(r"^\*\*(Theorem|Proposition|Corollary|Counterexample)\b[^*]*\*\*", re.M)
NAMED = re.compile(r"\*Functions?:\*(.*?)\*Tests?:\*(.*?)(?:\n\n|\n- |\Z)", re.S)


def names(text: str) -> list[str]:
    return ["".join(name.split()) for name in CODE.findall(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_functions_and_tests_that_are_named_exist(page):
    found = NAMED.findall(page.read_text(encoding="utf-8"))
    assert found
    for functions, tests in found:
        for function in names(functions):
            resolve(function)
        cited = [name for name in names(tests) if "::" in name]
        assert cited
        for test in cited:
            path, name = test.split("::")
            assert name in functions_in(path), test


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_statement_names_its_function_and_test_before_the_next_section(page):
    for section in re.split(r"^#+ ", page.read_text(encoding="utf-8"), flags=re.M):
        statements = list(STATEMENT.finditer(section))
        if statements:
            assert NAMED.search(section, statements[-1].start()), statements[-1][0]


def test_statements_are_numbered_without_a_gap():
    text = PAGES[0].read_text(encoding="utf-8")
    numbers = re.findall(r"^\*\*(?:Theorem|Proposition|Corollary) (\d+)[ .]", text, re.M)
    assert numbers == [str(i + 1) for i in range(len(numbers))]
