from __future__ import annotations

from quick_figures import check_picture, failing, measured


def test_band_shrinks_everywhere_and_rapidly_where_the_points_gather():
    # Elsewhere slowly: nothing is sampled there any more.
    assert failing("fig9") == ["width late/early"]
    numbers = measured("fig9")
    assert numbers["width late/early at the optimum"] < numbers["width late/early"] < 1


def test_the_first_points_do_not_lie_at_the_optimum_yet():
    numbers = measured("fig9")
    assert numbers["regret of early points / range"] > numbers["regret of later points / range"]


def test_band_misses_the_function_where_the_support_was_lost():
    assert measured("fig9", "literal")["covered"] < 0.99


def test_picture():
    check_picture("fig9")
