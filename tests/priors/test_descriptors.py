"""Descriptors move the centre; the norm bound holds whatever they are worth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

import metakel as mk
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, from_features, legendre
from metakel.learn import as_problem
from metakel.priors import descriptor_centre

KERNEL = KernelSum.uniform(legendre(5, scaling="l2"), weight=1.0)
NOISE, TASKS, POINTS = 0.05, 48, 30
SLOPES = np.random.default_rng(0).normal(size=(2, 5))
SHARES = {"delta": 0.1, "delta_records": 0.05}


def world(seed, count):
    """Past tasks and the next one, with ``count`` descriptors of which the first two matter."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(TASKS + 1, max(count, 2)))
    theta = Z[:, :2] @ SLOPES + 0.2 * rng.normal(size=(TASKS + 1, 5))
    pairs = []
    for coefficients in theta[:-1]:
        X = rng.uniform(-1, 1, (POINTS, 1))
        pairs.append((X, KERNEL.features(X) @ coefficients + NOISE * rng.normal(size=POINTS)))
    return mk.History.from_pairs(pairs), Z[:, :count], theta[-1]


def centre(history, Z):
    return descriptor_centre(history, KERNEL, Z[:-1], noise_std=NOISE, **SHARES)


@pytest.mark.parametrize("count", [0, 3, 15])
def test_the_norm_bound_holds_whatever_the_descriptors_are_worth(count):
    runs, failed = 80, 0
    for seed in range(runs):
        history, Z, theta = world(seed, count)
        found = centre(history, Z)
        failed += np.linalg.norm(theta - found.at(Z[-1]).coefficients) > found.norm_bound
    assert found.delta == pytest.approx(0.15)
    assert failed <= binom.ppf(1 - 1e-4, runs, 0.15)


def test_a_bound_calibrated_on_the_teaching_tasks_is_too_small():
    """Negative control: with many descriptors the centre overfits the tasks that taught it."""
    runs, failed = 80, 0
    for seed in range(runs):
        history, Z, theta = world(seed, 15)
        half = mk.History(history.tasks[: TASKS // 2])
        twice = mk.History(
            (*half.tasks, *(mk.Task(t.X, t.y, f"again {t.name}") for t in half.tasks))
        )
        rows = np.concatenate([Z[: TASKS // 2], Z[: TASKS // 2], Z[-1:]])
        found = descriptor_centre(twice, KERNEL, rows[:-1], noise_std=1e-6, delta=0.1)
        failed += np.linalg.norm(theta - found.at(Z[-1]).coefficients) > found.norm_bound
    assert failed > binom.ppf(1 - 1e-4, runs, 0.15)


def test_useful_descriptors_shrink_the_bound_and_useless_ones_cost_little():
    bounds = {}
    for count in (0, 2, 12):
        bounds[count] = np.median([centre(*world(seed, count)[:2]).norm_bound for seed in range(9)])
    assert bounds[2] < 0.5 * bounds[0]
    assert bounds[12] < bounds[0]


def test_units_of_descriptors_do_not_matter():
    history, Z, _ = world(0, 3)
    moved = Z * [1e3, 1e-3, 1] + [5, -2, 0]
    one, other = centre(history, Z), centre(history, moved)
    assert other.norm_bound == pytest.approx(one.norm_bound)
    assert_allclose(other.at(moved[-1]).coefficients, one.at(Z[-1]).coefficients, rtol=1e-8)


def test_it_serves_as_the_centre_of_an_optimizer():
    history, Z, theta = world(1, 2)
    base = legendre(8, scaling="l2")
    found = descriptor_centre(history, base, Z[:-1], noise_std=NOISE)
    game = mk.GPUCB(
        found.kernel,
        mk.grid([(-1, 1)], 51),
        rng=np.random.default_rng(0),
        noise_std=NOISE,
        centre=found.at(Z[-1]),
        norm_bound=found.norm_bound,
        norm_of="kernel",
        delta=0.2,
        delta_learning=found.delta,
    )
    X = game.domain.X
    truth = KERNEL.features(X) @ theta
    first = KERNEL.features(game.ask()[None])[0] @ theta
    assert truth.max() - first < 0.25 * np.ptp(truth)  # before anything was measured
    lower, upper = game.confidence()
    assert ((lower <= truth + 1e-9) & (truth <= upper + 1e-9)).all()


def test_bad_input_is_refused_with_what_was_expected():
    history, Z, _ = world(0, 2)
    few = mk.History(history.tasks[:10])
    with pytest.raises(InputError, match=r"10 tasks are too few.*at least 18"):
        descriptor_centre(few, KERNEL, Z[:10], noise_std=NOISE, delta=0.1)
    with pytest.raises(ShapeError, match="expected 2 finite numbers"):
        centre(history, Z).at([1.0])
    with pytest.raises(ValueError, match="descriptors"):
        descriptor_centre(history, KERNEL, Z[:5], noise_std=NOISE)
    short = mk.History.from_pairs([(task.X[:3], task.y[:3]) for task in history])
    with pytest.raises(InputError, match="expected more points in each task"):
        descriptor_centre(short, KERNEL, Z[:-1], noise_std=NOISE, delta=0.1)
    assert "2 descriptors" in repr(centre(history, Z))


def test_statement_8_eq_8_sees_only_the_sum_of_the_weights():
    """Products with normalised kernels of a descriptor have the Gram matrices of k_j alone."""
    line, rng = legendre(3, scaling="sup"), np.random.default_rng(0)

    def product(j, angle):
        def features(X):
            phi = line.features(X[:, :1])[:, [j]]
            turn = np.column_stack([np.cos(angle * X[:, 1]), np.sin(angle * X[:, 1])])
            return phi * turn  # kappa(z, z) = 1

        return from_features(features, 2, name=f"P{j + 1} turned by {angle}", d0=2)

    both = product(0, 1) + product(0, 5)
    pairs = []
    for z in rng.uniform(-1, 1, 6):
        x = rng.uniform(-1, 1, 12)
        pairs.append((np.column_stack([x, np.full(12, z)]), rng.normal(size=12)))
    problem = as_problem(mk.History.from_pairs(pairs), both)
    first, second = (np.sort(values.ravel())[-6:] for values in problem.spectra())
    assert_allclose(first, second, rtol=1e-9)
    noise = [rng.normal(size=12) for _ in pairs]
    energies = problem.energies(noise)
    assert_allclose(energies[0], energies[1], rtol=1e-9)


def test_readers_take_descriptors_from_columns(tmp_path):
    rng, rows = np.random.default_rng(0), {name: [] for name in ("car", "gain", "mass", "y")}
    for car in range(6):
        for gain in rng.uniform(0, 1, 5):
            for cells, cell in zip(
                rows.values(), (f"c{car}", gain, 1 + car / 4, gain), strict=True
            ):
                cells.append(cell)
    rows["mass"][3] = None  # known from the other rows of the task
    read = {"task": "car", "output": "y", "minimize": False}
    history = mk.History.from_frame(rows, **read, descriptors=["mass"])
    assert history.space.names == ("gain",)
    assert history.descriptors.tolist() == [[1 + car / 4] for car in range(6)]
    first, _ = history.split(rng)
    assert first.descriptors.shape == (first.m, 1)
    path = tmp_path / "runs.csv"
    lines = [
        ",".join("" if v is None else str(v) for v in row)
        for row in zip(*rows.values(), strict=True)
    ]
    path.write_text("\n".join([",".join(rows), *lines]))
    again = mk.History.from_csv(path, **read, descriptors=["mass"])
    assert_allclose(again.descriptors, history.descriptors)
    for names, reason in (
        (["gain"], "it is no descriptor of tasks"),
        (["size"], "no column 'size'"),
        ("mass", "expected a list"),
        (["car"], "names the tasks"),
    ):
        with pytest.raises(InputError, match=reason):
            mk.History.from_frame(rows, **read, descriptors=names)
    rows["maker"] = [["a", "b"][int(car[1:]) % 2] for car in rows["car"]]
    made = mk.History.from_frame(rows, **read, descriptors=["maker"])
    assert [task.descriptors["maker"] for task in made] == ["a", "b"] * 3
    with pytest.raises(InputError, match="'maker' of c0 is 'a'; expected a number"):
        descriptor_centre(made, KERNEL, noise_std=NOISE)
    empty = {**rows, "mass": [None] * 5 + rows["mass"][5:]}
    with pytest.raises(InputError, match="task c0 has no 'mass'"):
        mk.History.from_frame(empty, **read, descriptors=["mass"])
