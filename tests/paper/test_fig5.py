"""Property C: consistency in the number of tasks."""

from __future__ import annotations

from quick_figures import failing, measured, results


def test_regret_approaches_the_oracle_once_all_kernels_were_seen():
    assert failing("fig5", slack={"worst mu, m >= 10": 0.1, "worst found, m >= 10": 0.1}) == []


def test_two_tasks_are_not_enough():
    numbers = measured("fig5")
    assert numbers["found with the fewest tasks"] < numbers["worst found, m >= 10"]


def test_a_fixed_lambda_loses_kernels_as_tasks_are_added_without_orthonormal_scaling():
    table = results("fig5", "literal")
    fixed = table[(table["kernel"] == "learned") & (table["lam"] == "0.03")]
    rate = fixed.groupby("m")["found"].mean()
    assert rate.loc[50] < 0.2
