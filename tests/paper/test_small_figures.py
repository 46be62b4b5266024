"""Figures with two or three laws each, in their quick sizes."""

from __future__ import annotations

from quick_figures import failing, measured

# fig1


def test_past_tasks_give_the_kernel_that_solves_a_new_one():
    assert failing("fig1") == []


def test_the_literal_reading_loses_base_kernels():
    assert "kernels rightly kept or dropped" in failing("fig1", "literal")


# fig2


def test_the_spaces_are_nested_and_the_norms_ordered():
    assert failing("fig2", slack={"nested": 0.1}) == []  # a tiny weight may be missed


def test_the_learned_space_lies_strictly_between():
    numbers = measured("fig2")
    assert 5 < numbers["dimension learned"] < numbers["dimension full"] == 20


# fig8


def test_positive_coefficients_put_every_maximum_at_one():
    assert failing("fig8") == []
    assert failing("fig8", "literal") == []


def test_minima_differ_from_function_to_function():
    assert measured("fig8")["distinct minima"] >= 3


def test_signed_coefficients_do_not():
    assert measured("fig8", "signed")["maximum at x = 1"] < 0.6


# fig9


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


# fig10

ONLY_ABOVE = "mu below the threshold / oracle"


def test_lambda_matters_little_up_to_a_tenth():
    assert failing("fig10", slack={"mu max/min up to 0.1": 0.05}) == [ONLY_ABOVE]


def test_below_the_threshold_the_kernel_is_dense_and_the_regret_unchanged():
    numbers = measured("fig10")
    assert numbers["size at the smallest lambda"] >= 15
    assert numbers[ONLY_ABOVE] < 1.25


def test_the_literal_scaling_breaks_it():
    assert "mu max/min up to 0.1" in failing("fig10", "literal")


# anytime


def test_every_promise_is_kept_and_the_default_is_sharp():
    assert failing("anytime", slack={"coverage theorem, sum": 0.15}) == []


def test_theorem_fails_where_the_support_was_lost():
    numbers = measured("anytime", "literal")
    assert numbers["coverage theorem, c1"] < 0.5
    assert numbers["coverage theorem, true"] == 1.0


def test_the_alarm_mends_what_a_lost_support_broke():
    numbers = measured("anytime", "literal")
    assert numbers["coverage dmm"] < 0.9 <= numbers["coverage at the end dmm"]


# recovery

# 8 draws: one miss is a rate of 0.875.
SLACK = dict.fromkeys(("found 0.03", "found theorem", "exact 0.03", "exact theorem"), 0.15)


def test_support_is_found_over_the_noise():
    assert failing("recovery", slack=SLACK) == []


def test_literal_scaling_with_lambda_of_the_paper_loses_the_support():
    numbers = measured("recovery", "literal")
    assert numbers["found 0.03, σ = 0.01"] <= 0.25
    assert numbers["found self-normalized, σ = 0.01"] >= 0.85


# misspecified


def test_regret_goes_on_where_a_true_kernel_is_missing():
    numbers = measured("misspecified")
    assert numbers["late missing"] > 1.3 * numbers["late true"]
    assert numbers["gap"] > 0.05
