from __future__ import annotations

from quick_figures import check_picture, failing, measured


def test_the_spaces_are_nested_and_the_norms_ordered():
    assert failing("fig2", slack={"nested": 0.1}) == []  # a tiny weight may be missed


def test_the_learned_space_lies_strictly_between():
    numbers = measured("fig2")
    assert 5 < numbers["dimension learned"] < numbers["dimension full"] == 20


def test_picture():
    check_picture("fig2")
