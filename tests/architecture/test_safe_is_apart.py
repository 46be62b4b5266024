"""Safety has one home: other packages know limits only as text that a source describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import metakel

HOME = Path(metakel.__file__).parent
WORDS = re.compile(r"\b(un)?safe\b|\blimit(s|ed)?\b|NoSafe|SafePrior", re.IGNORECASE)
# How a door hands what was typed to `cli/options.py`, the option that this file defines, the
# mention of the package in a docstring, and "safe on disk".
OTHERWISE = re.compile(
    r"limit: Limits = None|with_limits\(\w+, self\.limit, self\.start\)| +(Limits|with_limits),"
    r"|--limit(-output)?|`?metakel\.safe(\.\w+)?`?|safe (on disk|before `append`)"
)


@pytest.mark.parametrize("package", ["tuner", "cli", "report", "priors", "optimize"])
def test_only_safe_knows_of_safety(package):
    found = []
    for file in sorted((HOME / package).rglob("*.py")):
        if (package, file.name) == ("cli", "options.py"):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if WORDS.search(OTHERWISE.sub("", line)):
                found.append(f"{package}/{file.name}:{number}: {line.strip()}")
    assert not found, "\n".join(found)
