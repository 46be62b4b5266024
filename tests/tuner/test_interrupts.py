"""Nothing is lost or told twice wherever an interrupt or a failing disk ends a call of a Tuner."""

from __future__ import annotations

import gc

import pytest
from torture_interrupts import torture


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("call", ["tell", "loop"])
def test_an_error_at_any_place_loses_nothing(tmp_path, call, kind):
    places, wrong = torture(call, kind, tmp_path)
    gc.collect()  # files that an interrupt left to Python to close
    assert not wrong
    assert places > (10 if kind is OSError else 200)
