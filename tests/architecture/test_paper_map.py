"""docs/reading-the-paper.md: each function exists and names its statement, each test exists."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"`([^`]+)`")


def rows() -> list[tuple[str, list[str], list[str]]]:
    """(statement, functions, tests) of every row of the table."""
    table = []
    for line in (ROOT / "docs" / "reading-the-paper.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and "`" in cells[1]:
            table.append((cells[0], CODE.findall(cells[1]), CODE.findall(cells[2])))
    return table


def resolve(path: str) -> object:
    """The object at a dotted path; a name in a package stands before a module of that name."""
    parts = path.split(".")
    found: object = importlib.import_module(parts[0])
    for cut, name in enumerate(parts[1:], start=2):
        if not hasattr(found, name):
            importlib.import_module(".".join(parts[:cut]))
        found = getattr(found, name)
    return found


def names(text: str, statement: str) -> bool:
    """Whether a text names a statement, alone or in a list such as "Eqs. 5, 9 and 10"."""
    kind, number = statement.split(" ")
    if kind == "Eq." and number[0].isalpha():  # B.6 may stand without "Eq."
        return re.search(rf"(?<![\w.]){re.escape(number)}(?![\w.]*\d)", text) is not None
    plural = {"Eq.": r"Eqs?\.", "Theorem": "Theorems?", "Lemma": "Lemmas?"}.get(kind, kind + "s?")
    one = r"[A-C]?\.?\d+(?:\.\d+)?"
    joint = r"(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s+to\s+)(?:" + plural + r"\s+)?"
    for mention in re.finditer(rf"{plural}\s+({one}(?:{joint}{one})*)", text):
        if number in re.findall(one, mention.group(1)):
            return True
    return False


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(
    ("statement", "functions", "tests"), rows(), ids=lambda cell: str(cell)[:30]
)
def test_statement_function_and_test_agree(statement, functions, tests):
    for path in functions:
        found = resolve(path)
        documented = (inspect.getdoc(found), inspect.getdoc(inspect.getmodule(found)))
        text = " ".join(" ".join(doc or "" for doc in documented).split())
        assert names(text, statement), f"the docstring of {path} does not name {statement}"
    assert tests, f"{statement} has no test"
    for test in tests:
        path, name = test.split("::")
        assert name in functions_in(path), f"{test} does not exist"


STATEMENTS = {
    *("Eq. 1", "Eq. 2", "Eq. 11", "Eq. A.2", "Eq. A.3"),
    *("Eq. 7", "Eq. 8", "Eq. 9", "Eq. 10", "Eq. A.1", "Eq. B.6", "Eq. B.7", "Eq. C.2"),
    *("Assumption 3.1", "Assumption 4.2", "Proposition 4.1", "Proposition 4.4", "Theorem 4.3"),
    *("Theorem 5.1", "Corollary 5.2", "Lemma B.1", "Lemma B.2", "Lemma B.3", "Lemma B.4"),
    *("Lemma C.1", "Lemma C.2", "Lemma C.3", "Eq. 3", "Eq. 4", "Eq. 5", "Eq. 6"),
}


def test_every_numbered_statement_is_in_the_map():
    listed = [statement for statement, _, _ in rows()]
    assert len(listed) == len(set(listed))
    assert set(listed) >= STATEMENTS


def test_the_matcher_can_tell_statements_apart():
    text = "Weights (Eqs. 5, 9 and 10), Lemma B.1, Theorem 4.3 and Theorem 5.1, (B.6, B.7)"
    for named in ("Eq. 5", "Eq. 9", "Eq. 10", "Lemma B.1", "Theorem 5.1", "Eq. B.6", "Eq. B.7"):
        assert names(text, named), named
    for absent in ("Eq. 1", "Eq. 4", "Lemma B.2", "Theorem 4.4", "Eq. A.1", "Proposition 4.1"):
        assert not names(text, absent), absent
