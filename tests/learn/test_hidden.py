"""What unselected kernels can hide: its size, the report, and confidence that allows for it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import metakel as mk
from metakel.learn import as_problem
from metakel.learn.screening import hidden_sizes, mean_eigenvalues

L2 = mk.kernels.legendre(20, scaling="l2")
GRID = np.linspace(-1, 1, 101)
SIGMA, BOUND = 0.1, 0.5


def history_of(coefficients, rng, *, sigma=SIGMA, n=30, X=None):
    """Past tasks with these (m, p) coefficients."""
    points = [rng.uniform(-1, 1, n) if X is None else X for _ in coefficients]
    return mk.History.from_pairs(
        [
            (x, L2.features(x) @ theta + sigma * rng.standard_normal(len(x)))
            for x, theta in zip(points, coefficients, strict=True)
        ]
    )


def weak_history(seed, m=20, size=0.1):
    rng = np.random.default_rng(seed)
    support = rng.choice(20, 5, replace=False)
    theta = np.zeros((m, 20))
    theta[:, support] = size * rng.standard_normal((m, 5))
    return history_of(theta, rng), support


@pytest.fixture(scope="module")
def learned():
    return mk.learn_kernel(weak_history(0)[0], L2, noise_std=SIGMA)


def test_hidden_is_the_formula_for_unselected_kernels_and_zero_for_selected_ones(learned):
    V = [np.mean([(L2.features(t.X)[:, j] ** 2).sum() for t in learned.history]) for j in range(20)]
    expected = learned.lam * 600 / (2 * np.array(V) * np.sqrt(20))
    expected[learned.active] = 0
    assert_allclose(learned.hidden(), expected)
    assert learned.active.size
    assert (np.delete(learned.hidden(), learned.active) > 0).all()


def test_what_is_not_selected_on_orthogonal_features_is_at_most_the_hidden_size():
    # With orthogonal features the bound is exact: least squares of unselected kernels is below it.
    X = np.polynomial.legendre.leggauss(64)[0]
    weights = np.polynomial.legendre.leggauss(64)[1]
    nodes = np.repeat(X, np.maximum(np.rint(weights * 400).astype(int), 1))
    for seed in range(10):
        rng = np.random.default_rng(seed)
        theta = np.exp(rng.uniform(-9, 0, 20)) * rng.standard_normal((10, 20))
        learned = mk.learn_kernel(history_of(theta, rng, X=nodes), L2, noise_std=SIGMA)
        fits = [np.linalg.lstsq(L2.features(t.X), t.y, rcond=None)[0] for t in learned.history]
        rms = np.sqrt(np.mean(np.square(fits), axis=0))
        out = np.setdiff1d(np.arange(20), learned.active)
        assert out.size
        assert (rms[out] <= 1.1 * learned.hidden()[out]).all()


def test_hidden_sizes_scale_with_the_units_of_values_and_features(learned):
    scaled = mk.History.from_pairs([(t.X, 7 * t.y) for t in learned.history])
    other = mk.learn_kernel(scaled, L2, noise_std=7 * SIGMA)
    assert_allclose(other.hidden(), 7 * learned.hidden(), rtol=1e-9)
    sup = mk.kernels.legendre(20, scaling="sup")
    problem = as_problem(learned.history, L2)
    small = as_problem(learned.history, sup)
    root = np.sqrt(np.asarray(L2.sup) / np.asarray(sup.sup))
    none = np.array([], dtype=np.intp)
    for of, other in zip(
        hidden_sizes(problem, learned.lam, none),
        hidden_sizes(small, learned.lam / root, none),
        strict=True,
    ):
        ratio = other / of
        assert_allclose(ratio, root if ratio[0] > 1.1 else np.ones(20), rtol=1e-9)


def test_tasks_of_unequal_size_weighted_alike_hide_alike():
    rng = np.random.default_rng(0)
    tasks = [(rng.uniform(-1, 1, n), rng.standard_normal(n)) for n in (5, 40, 200)]
    history = mk.History.from_pairs(tasks)
    V = mean_eigenvalues(as_problem(history, L2, "tasks"))
    mean = np.mean([(L2.features(t.X) ** 2).mean(axis=0) for t in history], axis=0)
    assert_allclose(V, history.total / 3 * mean)


def test_a_kernel_that_is_zero_at_all_points_can_hide_anything():
    rng = np.random.default_rng(0)
    odd = mk.kernels.from_features(lambda X: np.maximum(X, 0), name="positive part", dim=1)
    base = mk.kernels.legendre(3, scaling="l2") + odd
    pairs = [(x := -rng.uniform(0, 1, 30), x + 0.1 * rng.standard_normal(30)) for _ in range(10)]
    learned = mk.learn_kernel(mk.History.from_pairs(pairs), base, noise_std=0.1)
    assert learned.hidden()[3] == np.inf
    assert learned.confidence_kernel(2.0).eta[3] == learned.confidence_kernel(2.0).eta.max()
    assert learned.report()


def test_soft_weights_are_the_formula_and_the_norm_stays_within_the_bound(learned):
    kernel = learned.confidence_kernel(BOUND, c=0.5)
    out = np.setdiff1d(np.arange(20), learned.active)
    assert_array_equal(kernel.eta[learned.active], 2.0)
    soft = np.minimum(1, (0.5 * learned.hidden()[out] / BOUND) ** 2)
    assert_allclose(kernel.eta[out], 2 * soft)
    # A function with ||f|| <= B whose hidden parts satisfy the assumption, at its boundary.
    rng = np.random.default_rng(0)
    for _ in range(20):
        theta = np.zeros(20)
        hidden = rng.standard_normal(len(out))
        theta[out] = 0.5 * learned.hidden()[out] * hidden / np.linalg.norm(hidden)
        rest = rng.standard_normal(len(learned.active))
        theta[learned.active] = rest / np.linalg.norm(rest) * np.sqrt(BOUND**2 - theta @ theta)
        assert np.sum(theta**2 / kernel.eta) <= BOUND**2 * (1 + 1e-12)


def test_without_hidden_parts_or_with_all_of_them_the_kernel_is_plain(learned):
    assert_array_equal(learned.confidence_kernel(BOUND, c=0.0).eta, learned.kernel.eta)
    assert_array_equal(learned.confidence_kernel(BOUND, c=1e6).eta, np.ones(20))


def test_few_tasks_cannot_vouch_for_a_kernel_that_none_of_them_used():
    few = mk.learn_kernel(weak_history(0, m=8, size=1.0)[0], L2, noise_std=SIGMA)
    assert 0 < few.active.size < 20
    assert_array_equal(few.confidence_kernel(3.0).eta, np.ones(20))
    assert few.confidence_kernel(3.0, c=0.5).min_weight < 1
    assert "8 tasks are too few" in few.report()
    enough = mk.learn_kernel(weak_history(0, m=9, size=1.0)[0], L2, noise_std=SIGMA)
    assert enough.confidence_kernel(3.0).min_weight < 1
    assert "too few" not in enough.report()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"norm_bound": 0.0}, "norm_bound is 0.0"), ({"norm_bound": 1.0, "c": -1}, "c is -1")],
)
def test_bad_arguments_are_refused(learned, arguments, words):
    with pytest.raises(mk.InputError, match=words):
        learned.confidence_kernel(**arguments)


def test_the_report_says_how_large_every_unselected_kernel_could_be():
    weak = mk.learn_kernel(weak_history(1, size=0.06)[0], L2, noise_std=SIGMA)
    report = weak.report()
    out = np.setdiff1d(np.arange(20), weak.active)
    shown = report.split("without being selected")[1]
    for j in out:
        assert f"\n  {L2.names[j]} " in shown
    assert report.count("warning:") == 1
    assert "confidence_kernel(norm_bound)" in report
    strong = mk.learn_kernel(weak_history(1, size=10.0)[0], L2, noise_std=SIGMA).report()
    assert "without being selected" in strong
    assert "warning" not in strong


def test_the_report_of_many_kernels_stays_short():
    rng = np.random.default_rng(0)
    base = mk.kernels.tensor_product(2, 10, scaling="l2")
    pairs = [(rng.uniform(-1, 1, (30, 2)), rng.standard_normal(30)) for _ in range(3)]
    report = mk.learn_kernel(mk.History.from_pairs(pairs), base, noise_std=1.0).report()
    assert "more, none larger than these" in report
    assert len(report.splitlines()) < 45


def test_confidence_covers_a_new_task_that_uses_a_kernel_too_weak_to_be_selected():
    # Hard selection is the negative control: its band misses where a kernel was missed.
    hard, soft, runs = 0, 0, 20
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        theta = np.zeros((11, 20))
        theta[:, [2, 5]] = 0.3 * rng.standard_normal((11, 2))
        theta[:, 9] = 0.02 * rng.choice([-1.0, 1.0], 11)  # less than half of what is selected
        learned = mk.learn_kernel(history_of(theta[:10], rng), L2, noise_std=SIGMA, delta=0.05)
        assert 9 not in learned.active
        f = L2.features(GRID) @ theta[10]
        bound = 1.01 * float(np.linalg.norm(theta[10]))
        common = {"noise_std": SIGMA / 10, "norm_bound": bound, "points": GRID}
        bands = [
            mk.ConfidenceSequence(learned.kernel, on_alarm="ignore", **common),
            mk.ConfidenceSequence(
                learned.confidence_kernel(bound), norm_of="kernel", on_alarm="ignore", **common
            ),
        ]
        X = rng.uniform(-1, 1, 12)
        y = L2.features(X) @ theta[10] + SIGMA / 10 * rng.standard_normal(12)
        inside = []
        for band in bands:
            band.tell(X, y)
            lower, upper = band.interval()
            inside.append(bool(((lower <= f + 1e-9) & (f <= upper + 1e-9)).all()))
        hard, soft = hard + inside[0], soft + inside[1]
    assert soft >= runs - 2
    assert hard <= soft - 5
