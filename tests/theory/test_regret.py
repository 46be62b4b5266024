"""Regret: its definitions, by identities between them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from metakel.errors import InputError, ShapeError
from metakel.theory import regret

VALUES = arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=st.floats(-5, 5))


@given(VALUES)
def test_cumulative_regret_is_the_running_sum_and_instantaneous_its_difference(values):
    total = regret.cumulative(values, 5.0)
    assert_allclose(
        np.diff(total, axis=-1, prepend=0), regret.instantaneous(values, 5.0), atol=1e-12
    )


@given(VALUES)
def test_simple_regret_never_grows_and_is_the_smallest_instantaneous_so_far(values):
    simple = regret.simple(values, 5.0)
    assert (np.diff(simple, axis=-1) <= 0).all()
    assert_allclose(simple, np.minimum.accumulate(regret.instantaneous(values, 5.0), axis=-1))


def test_runs_are_rows_with_an_optimum_each():
    values = np.array([[1.0, 2.0], [0.0, -1.0]])
    assert_allclose(regret.cumulative(values, [2.0, 1.0]), [[1, 1], [1, 3]])
    assert_allclose(regret.cumulative(values[0], 2.0), [1, 1])


def test_the_papers_inference_regret_rewards_a_mean_that_promises_too_much():
    # The mean peaks at 3 where f is 1; f* is 2.
    assert regret.inference_paper([3.0], 2.0)[0] == -1
    assert regret.inference([1.0], 2.0)[0] == 1


@pytest.mark.parametrize(
    ("values", "best", "error"),
    [
        (1.0, 2.0, ShapeError),
        ([[1.0, 2.0]], [1.0, 2.0], ShapeError),
        ([1.0, np.nan], 2.0, InputError),
    ],
)
def test_what_cannot_be_a_regret_is_refused(values, best, error):
    with pytest.raises(error, match="regret"):
        regret.simple(values, best)
