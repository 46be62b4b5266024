"""Damaged input of every kind gives our errors only; `make fuzz` tries a million."""

from __future__ import annotations

import pytest

from benchmarks.fuzz import fuzz


@pytest.mark.parametrize("seed", [1, 2])
def test_no_reader_raises_what_is_not_ours(seed):
    found = fuzz(4000, seed, minutes=5)
    assert {name: kind.failures for name, kind in found.items() if kind.failures} == {}
    assert all(
        kind.inputs and kind.refused < kind.inputs for kind in found.values() if kind.inputs >= 40
    )  # one file of eight survives its damage, so that 24 in a row may all be refused
    assert found["journal line"].refused > 0, "nothing was damaged"
