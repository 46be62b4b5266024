"""A mark for tests of ``metakel paper``, which needs more packages than the other commands."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

PACKAGES = ("joblib", "matplotlib", "pandas", "tqdm")
needs_paper = pytest.mark.skipif(
    None in map(find_spec, PACKAGES), reason="the packages of metakel[paper] are not installed"
)
