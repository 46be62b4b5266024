from __future__ import annotations

from quick_figures import check_picture, failing, measured


def test_points_gather_at_the_optimum_where_the_band_shrinks():
    # Elsewhere it shrinks slowly, because of the regulariser 1 + 2/t.
    assert failing("fig9") == ["width late/early"]
    assert measured("fig9")["width late/early"] < 0.9


def test_the_first_points_do_not_lie_at_the_optimum_yet():
    numbers = measured("fig9")
    assert numbers["regret of early points / range"] > numbers["regret of later points / range"]


def test_band_misses_the_function_where_the_support_was_lost():
    assert measured("fig9", "literal")["covered"] < 0.99


def test_picture():
    check_picture("fig9")
