"""learn_kernel: the paper's example is recovered, every choice does what it says."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import metakel as mk
from metakel.grouplasso import lambda_max
from metakel.learn import as_problem
from metakel.paper.synthetic import sample_history, true_kernel

L2 = mk.legendre(20, scaling="l2")
SUP = mk.legendre(20, scaling="sup")


def example(seed, base=L2, m=50, n=50, noise_std=0.01):
    rng = np.random.default_rng(seed)
    truth = true_kernel(base, sparsity=5, rng=rng, smallest=0.05)
    return truth, sample_history(truth, m=m, n=n, norm=10, noise_std=noise_std, rng=rng)


def recovered(seed, base=L2, **options):
    truth, history = example(seed, base)
    found = mk.learn_kernel(history, base, noise_std=0.01, **options).active
    return set(truth.active) <= set(found), found.size


@pytest.mark.parametrize("base", [L2, SUP], ids=["l2", "sup"])
def test_the_default_rule_recovers_the_support(base):
    results = [recovered(seed, base) for seed in range(20)]
    assert sum(hit for hit, _ in results) >= 19
    assert np.mean([size for _, size in results]) <= 6


def test_the_papers_lambda_recovers_the_support_of_l2_features_and_loses_it_with_sup():
    assert sum(recovered(seed, lam=0.03)[0] for seed in range(20)) >= 19
    assert sum(recovered(seed, SUP, lam=0.03)[0] for seed in range(20)) <= 2


def test_unknown_noise_is_estimated_and_the_support_recovered():
    for seed in range(5):
        truth, history = example(seed)
        learned = mk.learn_kernel(history, L2)
        assert set(truth.active) <= set(learned.active)
        assert_allclose(learned.noise_std, 0.01, rtol=0.05)
        assert learned.rule == "square-root"
        assert not learned.noise_known


def test_learning_scales_with_the_observations():
    _, history = example(0, m=10)
    scaled = mk.History.from_pairs([(t.X, 7 * t.y) for t in history])
    one = mk.learn_kernel(history, L2)
    other = mk.learn_kernel(scaled, L2)
    assert_allclose(other.solution.eta, 7 * one.solution.eta, rtol=1e-5, atol=1e-8)
    assert_allclose(other.noise_std, 7 * one.noise_std, rtol=1e-6)


def test_uniform_weights_are_one_on_the_selection_and_eta_is_proposition_4_1():
    _, history = example(1)
    uniform = mk.learn_kernel(history, L2, noise_std=0.01)
    assert_array_equal(uniform.kernel.eta[uniform.active], 1.0)
    assert uniform.kernel.min_weight == 1.0
    raw = mk.learn_kernel(history, L2, noise_std=0.01, weights="eta", scale="raw")
    norms = [np.linalg.norm(raw.solution.beta[:, g]) for g in L2.groups]
    assert_allclose(raw.kernel.eta, norms, rtol=1e-10)
    summed = mk.learn_kernel(history, L2, noise_std=0.01, weights="eta", scale="sum")
    assert_allclose(summed.kernel.eta, raw.kernel.eta / raw.kernel.eta.sum(), rtol=1e-12)
    smallest = mk.learn_kernel(history, L2, noise_std=0.01, weights="eta", scale="c1")
    assert_allclose(smallest.kernel.min_weight, 1.0)
    given = mk.learn_kernel(history, L2, noise_std=0.01, weights="eta", scale="c1", beta_min=2.0)
    assert_allclose(given.kernel.eta, raw.kernel.eta / 2, rtol=1e-12)


def test_refit_removes_the_shrinkage():
    truth, history = example(2)
    rng = np.random.default_rng(2)
    true_kernel(L2, sparsity=5, rng=rng, smallest=0.05)
    learned = mk.learn_kernel(history, L2, noise_std=0.01, lam=0.03)
    # The tasks themselves, without noise: least squares on the true support gives the truth.
    exact = [
        np.linalg.lstsq(L2.features(t.X)[:, truth.active], t.y, rcond=None)[0] for t in history
    ]
    norms = np.linalg.norm(exact, axis=0)
    shrunk = learned.solution.eta[truth.active] / norms
    assert shrunk.max() < 0.999
    assert_allclose(learned.refitted()[truth.active] / norms, 1, atol=5e-3)
    weighed = mk.learn_kernel(
        history, L2, noise_std=0.01, lam=0.03, weights="eta", scale="raw", refit=True
    )
    assert_allclose(weighed.kernel.eta, learned.refitted())


def test_gram_only_and_mixed_dictionaries_learn_the_same_as_features():
    _, history = example(3, m=8, n=25)
    base = mk.legendre(8, scaling="l2")
    twins = [
        mk.from_gram(
            lambda X, Z, i=i: np.outer(*(base.features(A)[:, i] for A in (X, Z))), name=f"g{i}"
        )
        for i in range(8)
    ]
    mixed = sum(twins[1:4], twins[0]) + base.select([4, 5, 6, 7])
    features = mk.learn_kernel(history, base, noise_std=0.5)
    grams = mk.learn_kernel(history, mixed, noise_std=0.5, lam=features.lam)
    assert features.active.size >= 1
    assert_allclose(grams.solution.eta, features.solution.eta, atol=1e-6)
    assert grams.solution.beta is None
    Z = np.linspace(-1, 1, 7)
    assert_allclose(grams.kernel(Z), features.kernel(Z), atol=1e-12)
    with pytest.raises(mk.InputError, match="needs feature kernels"):
        grams.refitted()


def test_ragged_tasks_and_the_two_losses():
    rng = np.random.default_rng(5)
    truth = true_kernel(L2, sparsity=3, rng=rng, smallest=0.1)
    parts = [
        sample_history(truth, m=1, n=n, norm=10, noise_std=0.01, rng=rng)[0]
        for n in (5, 40, 41, 200)
    ]
    history = mk.History(tuple(parts))
    points = as_problem(history, L2, "points")
    tasks = as_problem(history, L2, "tasks")
    assert_allclose(points.task_weights, 1)
    assert_allclose(tasks.task_weights * tasks.sizes, history.total / 4)
    equal = as_problem(mk.History((parts[1], parts[1])), L2, "tasks")
    assert_allclose(equal.task_weights, 1)
    a = mk.learn_kernel(history, L2, noise_std=0.01, lam=0.1)
    b = mk.learn_kernel(history, L2, noise_std=0.01, lam=0.1, loss="tasks")
    assert a.solution.converged
    assert b.solution.converged
    assert np.abs(a.solution.eta - b.solution.eta).max() > 1e-3


def test_an_empty_selection_is_explained_and_usable():
    _, history = example(0, m=5)
    learned = mk.learn_kernel(history, L2, noise_std=100.0)
    assert learned.active.size == 0
    assert "none stands out of the noise" in str(learned)
    assert not learned.kernel(np.linspace(-1, 1, 3)).any()
    assert learned.kernel.dim == 0


@pytest.mark.parametrize(
    "history",
    [
        mk.History.from_pairs([([0.3], [1.0])]),
        mk.History.from_pairs([(np.full(5, 0.2), np.arange(5.0))]),
        mk.History.from_pairs([(np.linspace(-1, 1, 9), np.full(9, 2.0))] * 2),
        mk.History.from_pairs([(np.linspace(-1, 1, 9), np.zeros(9))]),
    ],
    ids=["one point", "one place", "constant", "zero"],
)
def test_degenerate_histories_learn_something_certified(history):
    learned = mk.learn_kernel(history, L2, noise_std=0.1)
    assert learned.solution.converged
    assert np.isfinite(learned.kernel.eta).all()
    assert str(learned)


def test_report_lists_strengths_and_what_would_have_been_kept():
    truth, history = example(4)
    report = mk.learn_kernel(history, L2, noise_std=0.01).report()
    for j in truth.active:
        assert L2.names[j] in report
    assert "would have been kept" in report
    short = sample_history(truth, m=5, n=10, norm=10, noise_std=0.01, rng=np.random.default_rng(0))
    assert "no statement on what was missed" in mk.learn_kernel(short, L2, noise_std=0.01).report()


def test_progress_is_told():
    _, history = example(0, m=5)
    seen = []
    mk.learn_kernel(history, L2, noise_std=0.01, progress=lambda i, gap: seen.append(gap))
    assert seen
    assert seen[-1] <= 1e-10


def test_selection_is_the_same_below_lambda_max_only():
    _, history = example(6, m=5)
    top = lambda_max(as_problem(history, L2))
    assert mk.learn_kernel(history, L2, noise_std=1, lam=1.01 * top).active.size == 0
    assert mk.learn_kernel(history, L2, noise_std=1, lam=0.99 * top).active.size == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lam": "best"}, "known rules"),
        ({"lam": -1.0}, "> 0"),
        ({"noise_std": 0.0}, "positive number"),
        ({"noise_std": np.nan}, "positive number"),
        ({"noise_std": None, "lam": "hkz"}, "needs noise_std"),
        ({"delta": 1.5}, "delta"),
        ({"weights": "equal"}, "'uniform' or 'eta'"),
        ({"scale": "max"}, "'sum', 'c1' or 'raw'"),
        ({"beta_min": -1}, "beta_min"),
        ({"loss": "mean"}, "'points' or 'tasks'"),
    ],
)
def test_bad_options_are_refused(options, words):
    _, history = example(0, m=3)
    history = mk.History((*history.tasks, mk.Task([0.0], [0.0])))  # ragged, so that loss matters
    with pytest.raises(mk.InputError, match=words):
        mk.learn_kernel(history, L2, **{"noise_std": 0.1, **options})


def test_bad_data_are_refused():
    _, history = example(0, m=3)
    with pytest.raises(mk.ShapeError, match="take 2 inputs but the tasks have 1"):
        mk.learn_kernel(history, mk.legendre_2d(3, scaling="l2"), noise_std=0.1)
    with pytest.raises(mk.InputError, match=r"History\.from_pairs"):
        mk.learn_kernel([(0, 1)], L2)


@pytest.mark.parametrize("scale", ["sum", "c1", "raw"])
def test_a_refit_that_finds_nothing_above_the_noise_gives_the_empty_kernel(scale):
    _, history = example(0, m=3)
    options = {"lam": 0.03, "weights": "eta", "scale": scale, "refit": True}
    drowned = mk.learn_kernel(history, L2, noise_std=1e4, **options)
    assert drowned.active.size
    assert not drowned.refitted().any()
    assert not drowned.kernel.eta.any()
    clear = mk.learn_kernel(history, L2, noise_std=0.01, **options)
    assert clear.kernel.active.size


def test_the_pivotal_rule_selects_the_same_whether_the_noise_is_known_or_not():
    _, history = example(0)
    given, estimated = (
        mk.learn_kernel(history, L2, noise_std=noise, lam="square-root") for noise in (0.3, None)
    )
    assert given.rule == estimated.rule == "square-root"
    assert_array_equal(given.solution.eta, estimated.solution.eta)
    assert given.noise_known
    assert given.noise_std == 0.3
    assert_allclose(estimated.noise_std, 0.01, rtol=0.1)


def test_every_argument_is_explained():
    from inspect import signature

    for name in signature(mk.learn_kernel).parameters:
        assert f"\n    {name} : " in mk.learn_kernel.__doc__, name
