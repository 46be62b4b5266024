"""Public names change on purpose only."""

from __future__ import annotations

import json

from public_names import NAMES, public_names


def test_public_names_and_arguments_are_those_that_were_recorded():
    recorded = json.loads(NAMES.read_text(encoding="utf-8"))
    found = public_names()
    assert found.keys() == recorded.keys()
    for module, names in found.items():
        assert names == recorded[module], f"{module}: run python tests/golden/public_names.py"
