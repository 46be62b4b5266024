"""What a problem knows of its data, in every form in which tasks can be given."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import draw

from metakel.errors import InputError, ShapeError
from metakel.grouplasso import Problem, lambda_max, path, solve

DIMS = (1, 3, 2)
RAGGED = (7, 2, 30, 8, 1)


def weights_of(data, loss):
    sizes = np.array([v.size for v in data.y])
    return np.ones(sizes.size) if loss == "points" else data.N / (sizes.size * sizes)


def test_counts_and_sizes():
    data = draw(0, RAGGED, DIMS)
    problem, kernels = data.problem(), data.gram_problem()
    for p in (problem, kernels):
        assert (p.m, p.p, p.total) == (5, 3, 48)
        assert_array_equal(p.sizes, RAGGED)
        assert_allclose(p.energy, sum(v @ v for v in data.y) / 48)
    assert (problem.d, problem.dims, problem.kernel_mode) == (6, DIMS, False)
    assert (kernels.d, kernels.dims, kernels.kernel_mode) == (None, (None,) * 3, True)
    assert [problem.columns(j) for j in range(3)] == data.groups


def test_equal_sizes_may_come_as_one_array_of_any_layout():
    data = draw(1, (9,) * 4, DIMS)
    Phi, y = np.array(data.Phi), np.array(data.y)
    turned = np.ascontiguousarray(Phi.transpose(0, 2, 1)).transpose(0, 2, 1)
    lam = 0.2 * lambda_max(data.problem())
    expected = solve(data.problem(), lam)
    for layout in (Phi, turned, np.asfortranarray(Phi), Phi.tolist()):
        found = solve(Problem.from_arrays(layout, y, data.groups), lam)
        assert_allclose(found.beta, expected.beta, atol=1e-12)


@pytest.mark.parametrize("loss", ["points", "tasks"])
def test_spectra_are_the_eigenvalues_of_every_task_with_the_weight_twice(loss):
    data = draw(3, RAGGED, DIMS)
    weights = weights_of(data, loss)
    features, kernels = data.problem(loss).spectra(), data.gram_problem(loss).spectra()
    for j, g in enumerate(data.groups):
        for s, F in enumerate(data.Phi):
            values = weights[s] ** 2 * np.linalg.svd(F[:, g], compute_uv=False) ** 2
            for spectrum in (features[j][s], kernels[j][s]):
                top = np.sort(spectrum)[::-1]
                assert_allclose(top[: values.size], values, rtol=1e-9, atol=1e-12)
                assert_allclose(top[values.size :], 0, atol=1e-9 * values[0])


@pytest.mark.parametrize("loss", ["points", "tasks"])
def test_energies_are_squared_norms_of_weighted_scores(loss):
    data = draw(4, RAGGED, DIMS)
    rng = np.random.default_rng(0)
    v = [rng.standard_normal(n) for n in RAGGED]
    weights = weights_of(data, loss)
    scores = np.array([w * F.T @ e for w, F, e in zip(weights, data.Phi, v, strict=True)])
    expected = data.norms(scores) ** 2
    assert_allclose(data.problem(loss).energies(v), expected, rtol=1e-12)
    assert_allclose(data.gram_problem(loss).energies(v), expected, rtol=1e-9)


def test_lambda_max_is_the_longest_score_of_y():
    data = draw(5, RAGGED, DIMS)
    norms = data.norms(data.z(data.y))
    assert_allclose(lambda_max(data.problem()), norms.max())
    assert_allclose(lambda_max(data.gram_problem()), norms.max())
    shares = np.array([1.0, 10.0, 0.1])
    assert_allclose(lambda_max(data.problem(), shares), (norms / shares).max())


PHI, Y = np.ones((2, 4, 6)), np.ones((2, 4))


@pytest.mark.parametrize(
    "groups",
    [
        [],
        [slice(0, 3), slice(4, 6)],
        [slice(0, 3), slice(2, 6)],
        [slice(0, 3), slice(3, 7)],
        [slice(0, 5)],
        [slice(1, 6)],
        [slice(3, 6), slice(0, 3)],
        [slice(0, 0), slice(0, 6)],
        [slice(0, None)],
    ],
)
def test_groups_must_cut_the_columns_in_order(groups):
    with pytest.raises(ShapeError, match="group"):
        Problem.from_arrays(PHI, Y, groups)
    with pytest.raises(ShapeError, match="group"):
        Problem.from_tasks(list(PHI), list(Y), groups)


@pytest.mark.parametrize("groups", [[0, 1], [[0, 1, 2], [3, 4, 5]], [slice(0, 6, 2)]])
def test_groups_must_be_plain_slices(groups):
    with pytest.raises(InputError, match="slices"):
        Problem.from_arrays(PHI, Y, groups)


EYE = np.stack([np.eye(4)] * 3)


@pytest.mark.parametrize(
    ("make", "arrays", "y"),
    [
        (Problem.from_arrays, PHI[0], Y[0]),
        (Problem.from_arrays, PHI, Y[:, :3]),
        (Problem.from_arrays, PHI[..., None], Y),
        (Problem.from_tasks, [], []),
        (Problem.from_tasks, list(PHI), [Y[0]]),
        (Problem.from_tasks, [PHI[0], PHI[1][:, :3]], list(Y)),
        (Problem.from_tasks, [PHI[0], PHI[1][:3]], list(Y)),
        (Problem.from_tasks, [PHI[0][:, 0]], [Y[0]]),
        (Problem.from_tasks, [PHI[0]], [np.stack([Y[0], Y[0]], axis=1)]),
        (Problem.from_grams, [EYE], list(Y)),
        (Problem.from_grams, [EYE, EYE[:2]], list(Y)),
        (Problem.from_grams, [EYE[:, :, :3]], [Y[0]]),
        (Problem.from_grams, [EYE[0]], [Y[0]]),
        (Problem.from_grams, [EYE], [Y[0][:3]]),
    ],
)
def test_shapes_that_do_not_fit_are_refused(make, arrays, y):
    with pytest.raises(ShapeError):
        make(arrays, y)


def test_empty_tasks_and_empty_dictionaries_are_refused():
    with pytest.raises(InputError, match=r"task 1: shape \(0, 6\)"):
        Problem.from_tasks([PHI[0], PHI[1][:0]], [Y[0], Y[1][:0]])
    with pytest.raises(InputError):
        Problem.from_tasks([PHI[0][:, :0]], [Y[0]])
    with pytest.raises(InputError):
        Problem.from_grams([EYE[:0]], [Y[0]])
    for empty in (np.s_[:0], np.s_[:, :0], np.s_[:, :, :0]):
        with pytest.raises(InputError):
            Problem.from_arrays(PHI[empty], Y[empty[:2]] if isinstance(empty, tuple) else Y[empty])


def test_matrices_that_are_no_gram_matrices_are_refused():
    uneven = EYE.copy()
    uneven[1, 0, 2] = 0.5
    with pytest.raises(InputError, match="group 1 is not symmetric"):
        Problem.from_grams([uneven], [Y[0]])
    negative = EYE.copy()
    negative[2, 3, 3] = -1
    with pytest.raises(InputError, match="group 2"):
        Problem.from_grams([negative], [Y[0]])


def test_a_symmetric_matrix_is_not_called_uneven():
    """Distances have a zero diagonal, which leaves no room for anything else."""
    x = np.linspace(-1, 1, 4)
    distances = np.abs(np.subtract.outer(x, x))
    with pytest.raises(InputError, match=r"group 1 has negative eigenvalues.* task 2") as refused:
        Problem.from_grams([EYE[:2], EYE[:2], np.stack([np.eye(4), distances])], [Y[0]] * 3)
    assert "symmetric" not in str(refused.value)
    swap = np.eye(4)[[1, 0, 3, 2]]  # its rows and columns have the same sums
    with pytest.raises(InputError, match="group 0 has negative eigenvalues"):
        Problem.from_grams([swap[None]], [Y[0]])
    Problem.from_grams([np.zeros((2, 4, 4)), EYE[:2]], [Y[0]] * 2)


def test_indefinite_gram_matrices_are_reported_with_group_and_task():
    # No pair of points contradicts another, but three of them do: eigenvalues -0.8, 1, 1.9, 1.9.
    K = np.eye(4)
    K[0, 1] = K[1, 0] = K[1, 2] = K[2, 1] = 0.9
    K[0, 2] = K[2, 0] = -0.9
    y = np.array([1.0, 1.0, 0.0, 0.1])
    problem = Problem.from_grams([EYE[:2], np.stack([np.eye(4), K])], [y, y])
    with pytest.raises(InputError, match=r"group 1 has negative eigenvalues, from -0.8 .*task 1"):
        problem.spectra()
    with pytest.raises(InputError, match=r"group 1 has negative eigenvalues, from -0.8 .*task 1"):
        solve(problem, [10.0, 1e-3])


def test_the_loss_has_two_names():
    with pytest.raises(InputError, match="'mean'"):
        Problem.from_tasks(list(PHI), list(Y), loss="mean")
    with pytest.raises(InputError, match="'mean'"):
        Problem.from_grams([EYE], [Y[0]], loss="mean")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_must_be_finite_before_anything_is_returned(bad):
    rng = np.random.default_rng(0)
    Phi, y, K = rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 5)), np.stack([np.eye(5)])
    bad_Phi, bad_y, bad_K = Phi.copy(), y.copy(), K.copy()
    bad_Phi[1, 2, 0] = bad_y[1, 2] = bad_K[0, 1, 1] = bad
    makers = [
        lambda: Problem.from_arrays(bad_Phi, y),
        lambda: Problem.from_tasks(list(bad_Phi), list(y)),
        lambda: Problem.from_arrays(Phi, bad_y),
        lambda: Problem.from_tasks(list(Phi), list(bad_y)),
        lambda: Problem.from_grams([bad_K, K], y),
        lambda: Problem.from_grams([K, K], bad_y),
    ]
    for make in makers:
        for use in (lambda p: solve(p, 0.1), lambda p: path(p, count=2), lambda_max):
            with pytest.raises(InputError):
                use(make())


def test_a_column_of_values_is_a_vector():
    flat, column = Problem.from_tasks(PHI, Y), Problem.from_tasks(PHI, Y[:, :, None])
    assert_array_equal(flat.batches[0].y, column.batches[0].y)
    grams = Problem.from_grams([EYE], [Y[0][:, None]])
    assert_array_equal(grams.batches[0].y[0], Y[0])


def test_a_problem_is_shown_by_its_sizes():
    assert repr(Problem.from_tasks(PHI, Y)) == (
        f"Problem({len(Y)} tasks of {Y.shape[1]} observations, {PHI.shape[2]} groups of "
        f"{PHI.shape[2]} columns)"
    )
    ragged = Problem.from_tasks([PHI[0], PHI[1][:2]], [Y[0], Y[1][:2]])
    assert f"2 tasks of 2 to {Y.shape[1]} observations" in repr(ragged)
    assert "3 groups of Gram matrices" in repr(Problem.from_grams([EYE], [Y[0]]))
