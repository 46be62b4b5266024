"""Property F: support recovery."""

from __future__ import annotations

from quick_figures import check_picture, failing, measured

# 8 draws: one miss is a rate of 0.875.
SLACK = dict.fromkeys(("found 0.03", "found theorem", "exact 0.03", "exact theorem"), 0.15)


def test_support_is_found_over_the_noise():
    assert failing("recovery", slack=SLACK) == []


def test_literal_scaling_with_lambda_of_the_paper_loses_the_support():
    numbers = measured("recovery", "literal")
    assert numbers["found 0.03, σ = 0.01"] <= 0.25
    assert numbers["found self-normalised, σ = 0.01"] >= 0.85


def test_picture():
    check_picture("recovery")
