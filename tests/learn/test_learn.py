"""learn_kernel: the paper's example is recovered, every choice does what it says."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import metakel as mk
from metakel.errors import ShapeError
from metakel.learn import EtaWeights
from reproduction.synthetic import sample_history, true_kernel

L2 = mk.kernels.legendre(20, scaling="l2")
SUP = mk.kernels.legendre(20, scaling="sup")


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


def test_uniform_weights_are_one_on_the_selection_and_eta_is_proposition_4_1():
    _, history = example(1)
    uniform = mk.learn_kernel(history, L2, noise_std=0.01)
    assert_array_equal(uniform.kernel.eta[uniform.active], 1.0)
    assert uniform.kernel.min_weight == 1.0
    raw = mk.learn_kernel(history, L2, noise_std=0.01, weights=EtaWeights("raw"))
    norms = [np.linalg.norm(raw.solution.beta[:, g]) for g in L2.groups]
    assert_allclose(raw.kernel.eta, norms, rtol=1e-10)
    summed = mk.learn_kernel(history, L2, noise_std=0.01, weights=EtaWeights("sum"))
    assert_allclose(summed.kernel.eta, raw.kernel.eta / raw.kernel.eta.sum(), rtol=1e-12)
    smallest = mk.learn_kernel(history, L2, noise_std=0.01, weights=EtaWeights("c1"))
    assert_allclose(smallest.kernel.min_weight, 1.0)
    given = mk.learn_kernel(history, L2, noise_std=0.01, weights=EtaWeights("c1", 2.0))
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
        history, L2, noise_std=0.01, lam=0.03, weights=EtaWeights("raw", refit=True)
    )
    assert_allclose(weighed.kernel.eta, learned.refitted())


def test_gram_only_and_mixed_dictionaries_learn_the_same_as_features():
    _, history = example(3, m=8, n=25)
    base = mk.kernels.legendre(8, scaling="l2")
    twins = [
        mk.kernels.from_gram(
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


def test_an_empty_selection_is_explained_and_usable():
    _, history = example(0, m=5)
    learned = mk.learn_kernel(history, L2, noise_std=100.0)
    assert learned.active.size == 0
    assert "none stands out from the noise" in str(learned)
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


def test_progress_is_reported():
    _, history = example(0, m=5)
    seen = []
    mk.learn_kernel(history, L2, noise_std=0.01, progress=lambda i, gap: seen.append(gap))
    assert seen
    assert seen[-1] <= 1e-10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lam": "best"}, "known rules.*square-root"),
        ({"lam": "aic", "noise_std": None}, "known rules.*square-root"),
        ({"lam": None}, "lam is None.*known rules"),
        ({"lam": "monte-carlo", "rng": 0}, "rng is 0; expected a numpy.random.Generator"),
        ({"lam": -1.0}, "> 0"),
        ({"strength": 0.0}, r"strength is 0.0; expected a number in \(0, 1\]"),
        ({"strength": "half"}, "strength is 'half'"),
        ({"noise_std": 0.0}, "positive number"),
        ({"noise_std": np.nan}, "positive number"),
        ({"noise_std": None, "lam": "hkz"}, "needs noise_std"),
        ({"delta": 1.5}, "delta"),
        ({"weights": "equal"}, "'uniform' or EtaWeights"),
        ({"loss": "mean"}, "'points' or 'tasks'"),
    ],
)
def test_bad_options_are_refused(options, words):
    _, history = example(0, m=3)
    history = mk.History((*history.tasks, mk.Task([0.0], [0.0])))  # ragged, so that loss matters
    with pytest.raises(mk.InputError, match=words):
        mk.learn_kernel(history, L2, **{"noise_std": 0.1, **options})


def test_bad_weights_are_refused():
    with pytest.raises(mk.InputError, match="'sum', 'c1' or 'raw'"):
        EtaWeights("max")
    with pytest.raises(mk.InputError, match="beta_min is -1"):
        EtaWeights("c1", -1.0)


def test_bad_data_are_refused():
    _, history = example(0, m=3)
    with pytest.raises(ShapeError, match="take 2 inputs but the tasks have 1"):
        mk.learn_kernel(history, mk.kernels.legendre_2d(3, scaling="l2"), noise_std=0.1)
    with pytest.raises(mk.InputError, match=r"History\.from_pairs"):
        mk.learn_kernel([(0, 1)], L2)


@pytest.mark.parametrize("scale", ["sum", "c1", "raw"])
def test_a_refit_that_finds_nothing_above_the_noise_gives_the_empty_kernel(scale):
    _, history = example(0, m=3)
    options = {"lam": 0.03, "weights": EtaWeights(scale, refit=True)}
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
    explained = inspect.getdoc(mk.learn_kernel)
    for name in inspect.signature(mk.learn_kernel).parameters:
        assert f"\n{name} : " in explained, name


GRID = np.linspace(-1, 1, 30)


def odd_history(noise, m=20, level=0.0):
    """Random sums of P3 and P5 on a grid, as a table of a deterministic function would have."""
    rng = np.random.default_rng(0)
    F = mk.kernels.legendre(5, scaling="l2").features(GRID)[:, [2, 4]]
    return mk.History.from_pairs(
        (GRID, F @ rng.normal(size=2) + noise * rng.normal(size=30) + level * rng.normal())
        for _ in range(m)
    )


def size_of(history):
    return np.sqrt(np.mean(np.concatenate([task.y for task in history]) ** 2))


@pytest.mark.parametrize("noise", [0.0, *10.0 ** -np.arange(12, 3, -1)])
def test_a_history_with_next_to_no_noise_is_learned_from(noise):
    history = odd_history(noise)
    assert mk.learn_kernel(history, L2, lam="square-root").names == ("P3", "P5")
    learned = mk.learn_kernel(history, L2)
    assert set(learned.names) >= {"P3", "P5"}
    assert learned.active.size <= 3
    floor = 1e-6 * size_of(history)
    assert_allclose(learned.noise_std, max(noise, floor), rtol=0.05)
    assert learned.exact_fit == (noise < floor)
    assert learned.exact_fit == ("1e-6 of their root mean square" in learned.report())


def test_tasks_that_are_multiples_of_one_another_or_constant_are_learned_from():
    cubes = mk.History.from_pairs([(GRID, a * GRID**3) for a in (1.0, 2.0, 3.0)] * 5)
    learned = mk.learn_kernel(cubes, mk.kernels.legendre(5, scaling="l2"), lam="square-root")
    assert learned.names == ("P1", "P3")
    levels = mk.History.from_pairs([(GRID, np.full(30, a)) for a in (1.0, 2.0, 3.0)] * 5)
    with_level = mk.kernels.legendre(5, scaling="l2", degrees=range(5))
    assert mk.learn_kernel(levels, with_level).names == ("P0",)
    # What was learned predicts without a warning about rounding: warnings are errors here.
    noise = learned.noise_std**2
    known = mk.posterior(learned.kernel, GRID[::7], 4 * GRID[::7] ** 3, noise_var=noise)
    assert_allclose(known.mean(GRID), 4 * GRID**3, atol=1e-4)


def test_a_fit_that_is_exact_for_want_of_observations_is_no_estimate_of_the_noise():
    rng = np.random.default_rng(0)
    few = mk.History.from_pairs([(rng.uniform(-1, 1, 3), rng.normal(size=3)) for _ in range(30)])
    learned = mk.learn_kernel(few, L2)
    assert not learned.exact_fit
    assert_allclose(learned.noise_std, size_of(few))


LENGTHS = mk.kernels.squared_exponential([0.1, 0.3, 1.0])


def test_learning_nothing_with_unknown_noise_is_said_where_it_happens():
    history = odd_history(0.05)
    with pytest.warns(UserWarning, match=r"root mean square of y; pass noise_std=") as said:
        learned = mk.learn_kernel(history, LENGTHS, lam="square-root", strength=1.0)
    assert said[0].filename == __file__
    assert "50%" in str(said[0].message)  # more than noise would reach
    assert learned.names == ()
    assert_allclose(learned.noise_std, size_of(history))
    assert str(said[0].message) in learned.report()
    with pytest.warns(UserWarning, match="nothing was learned") as said:
        again = learned.update(odd_history(0.06, m=2))
    assert said[0].filename == __file__
    assert again.active.size == 0
    # The remedy that it names, without a warning; and the default strength finds the signal.
    assert mk.learn_kernel(history, LENGTHS, noise_std=0.05, strength=1.0).names
    assert mk.learn_kernel(history, LENGTHS).names


def test_noise_alone_is_no_reason_to_warn():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        pure = mk.History.from_pairs([(GRID, rng.normal(size=30)) for _ in range(20)])
        report = mk.learn_kernel(pure, L2, lam="square-root").report()  # warnings are errors here
        assert "nothing was learned" in report
        assert "50%" not in report


def test_what_a_test_finds_beyond_the_selection_is_said():
    history = odd_history(0.05, level=2.0)
    base = mk.kernels.legendre(13, scaling="l2", degrees=range(13))
    learned = mk.learn_kernel(history, base, lam="square-root", strength=1.0)
    report = learned.report()
    assert "also finds: P3, P5" in report
    # Least squares on all features does not take them for noise.
    assert_allclose(learned.noise_std, 0.05, rtol=0.1)
    assert "counts as noise" not in report
    counted = replace(learned, noise_source="residuals").report()
    assert "counts as noise" in counted


def test_a_kernel_that_is_missed_does_not_count_as_noise():
    for seed in range(5):
        history, truth = weak_signal(seed, noise_std=0.02)
        learned = mk.learn_kernel(history, L2)
        assert_allclose(learned.noise_std, 0.02, rtol=0.15)
        assert set(truth) <= set(learned.active)
        nothing = mk.learn_kernel(history, L2, lam=100.0)
        assert nothing.active.size == 0
        assert nothing.noise_std == learned.noise_std


@pytest.mark.parametrize("loss", ["points", "tasks"])
def test_noise_is_estimated_from_the_tasks_with_more_points_than_features(loss):
    rng = np.random.default_rng(3)
    sizes = [2, 10, 26, 60, 60]
    X = [rng.uniform(-1, 1, n) for n in sizes]
    pairs = [(x, 2 * x + rng.normal(0, 0.3, len(x))) for x in X]
    learned = mk.learn_kernel(mk.History.from_pairs(pairs), L2, loss=loss)
    rss = sum(np.linalg.lstsq(L2.features(x), y, rcond=None)[1][0] for x, y in pairs[2:])
    expected = np.sqrt(rss / (6 + 40 + 40))
    assert_allclose(learned.noise_std, expected, rtol=1e-8)
    assert_allclose(learned.noise_std, 0.3, rtol=0.2)
    assert learned.rule == "self-normalized"
    short = mk.learn_kernel(mk.History.from_pairs(pairs[:3]), L2)  # 6 degrees of freedom
    assert short.rule == "self-normalized"
    assert short.noise_source == "cross-validation"
    by_hand = mk.learn_kernel(mk.History.from_pairs(pairs[:3]), L2, lam="cv").noise_std
    assert_allclose(short.noise_std, by_hand)
    alone = mk.learn_kernel(mk.History.from_pairs(pairs[4:]), LENGTHS)  # nothing to hold out
    assert (alone.rule, alone.noise_source) == ("square-root", "residuals")


@pytest.mark.parametrize("snr", [1.0, 20.0])
def test_with_fewer_points_than_features_the_noise_is_about_right(snr):
    """What the square-root lasso misses counts as noise there: many times too much."""
    found, pivotal = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        pairs = []
        for n in rng.integers(8, 15, 12):
            x = rng.uniform(-1, 1, n)
            theta = snr * rng.standard_normal(3)
            pairs.append((x, L2.features(x)[:, [1, 4, 9]] @ theta + rng.standard_normal(n)))
        history = mk.History.from_pairs(pairs)
        found.append(mk.learn_kernel(history, L2))
        pivotal.append(mk.learn_kernel(history, L2, lam="square-root").noise_std)
    assert {learned.noise_source for learned in found} == {"cross-validation"}
    assert_allclose(np.mean([learned.noise_std for learned in found]), 1.0, rtol=0.2)
    assert np.mean(pivotal) > 1.3
    assert "estimated by cross-validation" in str(found[0])


def test_noise_alone_of_unknown_level_selects_nothing_where_points_are_few():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        pairs = [(rng.uniform(-1, 1, 10), rng.standard_normal(10)) for _ in range(12)]
        learned = mk.learn_kernel(mk.History.from_pairs(pairs), L2)
        assert not learned.active.size
        assert_allclose(learned.noise_std, 1.0, rtol=0.2)


def test_points_that_repeat_count_as_degrees_of_freedom():
    rng = np.random.default_rng(0)
    x = np.repeat(np.linspace(-1, 1, 5), 8)
    pairs = [(x, x**3 + rng.normal(0, 0.1, 40)) for _ in range(20)]
    assert_allclose(mk.learn_kernel(mk.History.from_pairs(pairs), L2).noise_std, 0.1, rtol=0.1)


def test_base_kernels_of_another_type_are_named_with_a_call_that_works():
    with pytest.raises(mk.InputError, match=r"base is a list; .* legendre\(20, scaling=\"l2\"\)"):
        mk.learn_kernel(odd_history(0.1), [1, 2])


def test_an_indefinite_kernel_is_not_learned():
    tanh = mk.kernels.from_gram(lambda X, Z: np.tanh(2 * X @ Z.T + 1), name="tanh")
    with pytest.raises(mk.InputError, match=r"group 0 has negative eigenvalues, from -2.7"):
        mk.learn_kernel(odd_history(0.05), tanh, noise_std=0.05)


def test_a_learned_kernel_is_shown_in_a_line():
    shown = repr(mk.learn_kernel(odd_history(0.05), L2))
    assert "P3" in shown
    assert "(estimated)" in shown
    assert len(shown) < 250
    assert "\n" not in shown


def pure_noise(seed, m=10, n=30):
    rng = np.random.default_rng(seed)
    return mk.History.from_pairs(
        [(rng.uniform(-1, 1, n), rng.standard_normal(n)) for _ in range(m)]
    )


def noise_selects(rule, strength, runs=200):
    """In how many histories of noise alone a kernel is selected."""
    known = {} if rule == "square-root" else {"noise_std": 1.0}
    learned = [
        mk.learn_kernel(pure_noise(seed), L2, lam=rule, strength=strength, **known)
        for seed in range(runs)
    ]
    return sum(one.active.size > 0 for one in learned)


@pytest.mark.parametrize("rule", ["self-normalized", "chernoff", "square-root"])
def test_at_half_of_lambda_noise_alone_selects_nothing(rule):
    assert noise_selects(rule, 0.5) <= stats.binom.ppf(1 - 1e-4, 200, 0.1)


@pytest.mark.parametrize("rule", ["chernoff", "square-root"])
def test_at_a_quarter_of_lambda_noise_alone_selects_kernels(rule):
    assert noise_selects(rule, 1 / 4, runs=50) > 40


def test_strength_multiplies_the_lambda_of_a_rule_and_not_a_given_one():
    _, history = example(0, m=10, n=25, noise_std=0.1)
    half, whole = (mk.learn_kernel(history, L2, noise_std=0.1, strength=s) for s in (0.5, 1.0))
    assert_allclose(half.lam, whole.lam / 2, rtol=1e-12)
    assert_array_equal(mk.learn_kernel(history, L2, noise_std=0.1).lam, half.lam)
    given = [mk.learn_kernel(history, L2, lam=0.1, strength=s).lam for s in (0.5, 1.0)]
    assert_array_equal(*given)
    again = whole.update(pure_noise(0))
    assert_array_equal(
        again.lam, mk.learn_kernel(again.history, L2, noise_std=0.1, strength=1.0).lam
    )


def test_half_of_lambda_finds_kernels_weaker_than_the_noise():
    found = {0.5: 0, 1.0: 0}
    for seed in range(20):
        history, truth = weak_signal(seed)
        for strength in found:
            learned = mk.learn_kernel(history, L2, noise_std=0.1, strength=strength)
            found[strength] += set(truth) <= set(learned.active)
    assert found[0.5] >= 17
    assert found[1.0] <= 3


def weak_signal(seed, *, noise_std=0.1, size=0.06, m=20, n=30):
    """Five of twenty kernels, each with coefficients of this typical size."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(20, 5, replace=False)
    X = rng.uniform(-1, 1, (m, n))
    values = [L2.features(x)[:, truth] @ rng.normal(0, size, 5) for x in X]
    pairs = [(x, f + rng.normal(0, noise_std, n)) for x, f in zip(X, values, strict=True)]
    return mk.History.from_pairs(pairs), truth
