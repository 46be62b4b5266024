"""Property A: calibration and sharpness."""

from __future__ import annotations

from quick_figures import failing, measured

# 12 runs instead of 50: the standard error of a coverage is about 0.12, that of a ratio about 0.15.
SLACK = {
    "gap learned": 0.1,
    "gap true": 0.1,
    "coverage at 0.9 learned": 0.05,
    "variance learned/true": 0.15,
    "variance learned/full": 0.1,
    "rmse learned/true": 0.15,
    "rmse learned/full": 0.15,
}


def test_learned_intervals_are_valid_and_tight():
    assert failing("fig3", slack=SLACK) == []


def test_full_is_conservative_in_width_and_not_in_coverage():
    numbers = measured("fig3")
    assert numbers["gap full"] > -0.1
    assert numbers["variance learned/full"] < 0.45


def test_unit_trace_kernels_undercover_whatever_the_kernel():
    numbers = measured("fig3", "literal")
    for kernel in ("true", "learned", "full"):
        assert numbers[f"coverage at 0.9 {kernel}"] < 0.5
