from __future__ import annotations

from quick_figures import check_picture, failing


def test_past_tasks_give_the_kernel_that_solves_a_new_one():
    assert failing("fig1") == []


def test_the_literal_reading_loses_base_kernels():
    assert "kernels rightly kept or dropped" in failing("fig1", "literal")


def test_picture():
    check_picture("fig1")
