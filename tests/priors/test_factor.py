"""One factor: textbook formulas at every time, however it grew."""

from __future__ import annotations

import numpy as np
import pytest
from histories import draw_task, learn, simulate
from numpy.testing import assert_allclose, assert_array_equal

from metakel.gp import posterior
from metakel.gp.averages import (
    SHORTLIST,
    expected_improvement,
    largest_improvement,
    mixture_weights,
    predict,
    ucb_width,
    upper_bound,
)
from metakel.gp.factor import Factor, Prediction
from metakel.gp.processes import ColdProcess
from metakel.optimize import ACQUISITIONS, Record, Trial, outcomes
from metakel.optimize.outcomes import OutputScale

RNG = np.random.default_rng(0)
PARTS = ("offset", "slope", "variance", "noise")


@pytest.fixture(scope="module")
def prior():
    return learn(simulate(np.random.default_rng(3)))


@pytest.fixture(scope="module")
def told():
    f = draw_task(np.random.default_rng(4))
    X = np.random.default_rng(5).uniform(-1, 1, (12, 2))
    return X, f(X)


def more(belief, x, value):
    return belief.appended(x[None], np.array([value]))


def values(X, y):
    trials = [
        Trial(i, x, x).with_result(float(v)) for i, (x, v) in enumerate(zip(X, y, strict=True))
    ]
    return outcomes(Record(tuple(trials), ((*range(len(y)),),)), d0=X.shape[1], scale=OutputScale())


def shapes(prior):
    return [prior.task_gp, ColdProcess.typical(2)]


@pytest.mark.parametrize("which", [0, 1])
def test_means_and_variances_are_those_of_the_posterior(prior, told, which):
    X, y = told
    Z = RNG.uniform(-1, 1, (30, 2))
    shape, model = shapes(prior)[which], prior.model
    belief = Factor.of(shapes(prior), model, np.concatenate([Z, X]))
    for i, (x, value) in enumerate(zip(X, y, strict=True)):  # candidates, and others
        belief = more(belief, x if i % 2 else np.nextafter(x, 2), value)

    class Kernel:
        def __call__(self, A, B=None):
            right = shape.prepare(A if B is None else B)
            return shape.gram(shape.prepare(A), right) + model.level_variance

        def diag(self, A):
            return np.diag(self(A))

    scale = 1.7
    rest = (y - model.level) / scale - shape.prepare(X).mean
    reference = posterior(Kernel(), X, rest, noise_var=shape.noise)
    mean = model.level + scale * (shape.prepare(Z).mean + reference.mean(Z))
    for terms in (belief.prediction, belief.elsewhere().at(Z)):
        assert_allclose((terms.offset + scale * terms.slope)[which, :30], mean, atol=1e-7)
        assert_allclose(np.sqrt(terms.variance[which, :30]), reference.std(Z), atol=1e-6)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("scale", [0.3, 1.7])
def test_supposed_points_are_predictions_one_deviation_below_and_no_evidence(
    prior, told, which, scale
):
    X, y = told
    Z = np.random.default_rng(8).uniform(-1, 1, (30, 2))
    supposed = np.concatenate([Z[:3], Z[:1]])  # one of them twice
    belief = Factor.of([shapes(prior)[which]], prior.model, Z)
    for x, value in zip(X, y, strict=True):
        belief = more(belief, x, value)
    after, one_by_one = belief.with_fantasies(supposed), belief
    for x in supposed:
        terms = one_by_one.elsewhere().at(x[None])
        low = terms.offset + scale * (terms.slope - np.sqrt(terms.variance))
        one_by_one = more(one_by_one, x, float(low[0, 0]))
    pairs = (
        (after.prediction, one_by_one.prediction),
        (after.elsewhere().at(Z), one_by_one.elsewhere().at(Z)),
    )
    for terms, told_so in pairs:
        mean, low = (t.offset + scale * t.slope for t in (terms, told_so))
        assert_allclose(mean, low, atol=1e-4)
        assert_allclose(terms.variance, told_so.variance, atol=1e-6)
    assert_allclose(after.log_likelihoods, belief.log_likelihoods)
    assert not np.allclose(one_by_one.log_likelihoods, belief.log_likelihoods)


def test_likelihoods_are_those_of_the_normal_density(prior, told):
    from scipy.stats import multivariate_normal

    X, y = told
    belief = Factor.of([prior.task_gp], prior.model, X)
    for i in range(len(X)):
        belief = more(belief, X[i], y[i])
    prepared = prior.task_gp.prepare(X)
    K = prior.task_gp.gram(prepared, prepared) + prior.model.level_variance
    K += prior.task_gp.noise * np.eye(len(X))
    direct = [
        multivariate_normal(prior.model.level + s * prepared.mean, s**2 * K).logpdf(y)
        for s in prior.model.scales
    ]
    ours = belief.log_likelihoods[0]
    assert_allclose(ours - ours[0], np.array(direct) - direct[0], atol=1e-6)
    assert_allclose(ours - len(X) / 2 * np.log(2 * np.pi), direct, atol=1e-6)


def test_expected_improvement_and_prediction_are_those_of_simulation(prior, told):
    X, y = told
    Z = RNG.uniform(-1, 1, (6, 2))
    belief = Factor.of(shapes(prior), prior.model, Z)
    for x, value in zip(X[:4], y[:4], strict=True):
        belief = more(belief, x, value)
    mix = mixture_weights(belief.log_likelihoods, (0.5, 0.5), prior.model)
    terms = belief.prediction
    rng, count = np.random.default_rng(0), 400_000
    drawn = rng.choice(mix.weights.size, count, p=mix.weights.ravel())
    member, scale = np.divmod(drawn, mix.weights.shape[1])
    s = prior.model.scales[scale]
    g = rng.standard_normal(count)
    best = float(y[:4].max())
    gain, (mean, sd) = expected_improvement(terms, mix, best), predict(terms, mix)
    for z in range(6):
        base, tilt, var = (
            getattr(terms, name)[member, z] for name in ("offset", "slope", "variance")
        )
        center = base + s * tilt
        values = center + s * np.sqrt(var) * g
        assert_allclose(mean[z], values.mean(), atol=0.02)
        assert_allclose(sd[z], values.std(), rtol=0.02)
        wide = (
            center + s * np.sqrt(1.5**2 * var + terms.noise[member]) * g
        )  # INFLATION; what will be seen
        assert_allclose(gain[z], np.maximum(wide - best, 0).mean(), atol=0.01, rtol=0.03)


def test_the_upper_bound_is_averaged_over_beliefs_and_scales(prior, told):
    X, y = told
    belief = more(Factor.of(shapes(prior), prior.model, X), X[0], y[0])
    mix, p = mixture_weights(belief.log_likelihoods, (0.5, 0.5), prior.model), belief.prediction
    direct = sum(
        weight * (p.offset[i] + s * (p.slope[i] + 3 * np.sqrt(p.variance[i])))
        for i, weights in enumerate(mix.weights)
        for s, weight in zip(prior.model.scales, weights, strict=True)
    )
    assert_allclose(upper_bound(p, mix, 3.0), direct, atol=1e-9)


def test_processes_that_share_their_kernel_decide_like_separate_ones(prior, told):
    X, y = told
    Z = np.clip(RNG.uniform(-1, 1, (40, 2)), -0.99, 0.99)
    optimizer = prior.optimizer(prior.space.decode(Z))
    separate, start = prior.task_processes
    Z = optimizer._last.start.X
    beliefs = [Factor.of([process], prior.model, Z) for process in separate]
    model = optimizer.model
    model = model.given(values(X, y))
    beliefs = [belief.appended(X, y) for belief in beliefs]
    mix = mixture_weights([b.log_likelihoods[0] for b in beliefs], start, prior.model)
    assert_allclose(model.mix.weights, mix.weights, atol=1e-6)
    parts = ([getattr(b.prediction, name)[0] for b in beliefs] for name in PARTS)
    expected = upper_bound(Prediction(*map(np.array, parts)), mix, ucb_width(len(y)))
    assert_allclose(model.upper_bound().values(Z), expected, atol=1e-6)
    assert_allclose(model.upper_bound().values(Z.copy()), expected, atol=1e-6)
    assert model.transfer_weight == pytest.approx(1 - mix.members[-1], abs=1e-6)


def test_the_shortlist_holds_the_best(prior, told):
    X, y = told
    Z = RNG.uniform(-1, 1, (600, 2))
    belief = Factor.of(shapes(prior), prior.model, Z)
    for x, value in zip(X, y, strict=True):
        belief = more(belief, x, value)
        mix = mixture_weights(belief.log_likelihoods, (0.95, 0.05), prior.model)
        terms = belief.prediction
        full = expected_improvement(terms, mix, float(y.max()))
        some = largest_improvement(terms, mix, float(y.max()))
        assert int(np.argmax(full)) == int(np.argmax(some))
        assert np.isneginf(some).sum() == len(Z) - SHORTLIST


@pytest.mark.parametrize("acquisition", ["ucb", "ei"])
def test_points_score_alike_as_candidates_and_elsewhere(prior, told, acquisition):
    X, y = told
    optimizer = prior.optimizer(prior.space.decode(prior.space.sample(RNG, 40)))
    model, Z = optimizer.model, optimizer._last.start.X
    for t in range(1, len(y) + 1):  # as processes lose their weight
        model = model.given(values(X[:t], y[:t]))
        score = ACQUISITIONS[acquisition](model, float(y[:t].max()))
        here, there = score.values(Z), score.values(Z.copy())
        assert_allclose(here, there, atol=1e-6 * np.ptp(here))


def assert_same(one, other, Z, atol=1e-9):
    kept = np.arange(len(one.frame.processes)) % 2 == 0
    pairs = (
        (one.prediction, other.prediction),
        (one.elsewhere(kept).at(Z), other.elsewhere(kept).at(Z)),
    )
    for found, expected in pairs:
        for name in PARTS:
            assert_allclose(getattr(found, name), getattr(expected, name), atol=atol)
    assert_allclose(one.log_likelihoods, other.log_likelihoods, atol=atol)


def test_a_prefix_of_one_factor_is_its_own_factor(prior, told):
    """What was believed after every value stands in the factor of all of them."""
    X, y = told
    Z = np.concatenate([RNG.uniform(-1, 1, (20, 2)), X[:3]])
    empty = Factor.of(prior.task_processes[0], prior.model, Z)
    whole = empty.appended(X, y)
    evidence = whole.evidence(np.arange(len(y) + 1))
    for t in range(len(y) + 1):
        own = empty.appended(X[:t], y[:t])
        assert_same(whole.leading(t), own, Z)
        assert_allclose(evidence[:, t], own.log_likelihoods, atol=1e-9)
        assert_same(whole.leading(t).appended(X[t:], y[t:]), whole, Z)
        changed = np.where(np.arange(len(y)) < t, y, y + 1)
        assert_same(whole.given(X, changed), empty.appended(X, changed), Z)


def test_branches_that_grew_from_one_factor_do_not_disturb_each_other(prior, told):
    X, y = told
    trunk = Factor.of([prior.task_gp], prior.model, X).appended(X[:4], y[:4])
    before = trunk.prediction.offset.copy()
    one, other, again = (more(trunk, X[i], v) for i, v in ((4, 5.0), (5, -5.0), (4, 5.0)))
    assert_array_equal(one.elsewhere().at(X).offset, again.elsewhere().at(X).offset)
    assert not np.allclose(one.prediction.offset, other.prediction.offset)
    assert_array_equal(trunk.prediction.offset, before)


def test_values_taken_in_at_once_are_those_taken_in_one_by_one(prior, told):
    X, y = told
    Z = RNG.uniform(-1, 1, (20, 2))
    empty = Factor.of(prior.task_processes[0], prior.model, Z)
    at_once = more(empty, X[0], y[0]).at_once(X[1:6], y[1:6]).at_once(X[6:], y[6:])
    assert_same(at_once, empty.appended(X, y), Z, atol=1e-6)


def test_derivatives_are_those_of_the_predictions(prior, told):
    X, y = told
    gp = Factor.of(prior.task_processes[0], prior.model, X).at_once(X, y)
    Z, step = RNG.uniform(-0.9, 0.9, (5, 2)), 1e-6
    found = gp.elsewhere().gradient(Z)
    for i in range(2):
        ahead, behind = (gp.elsewhere().at(Z + sign * step * np.eye(2)[i]) for sign in (1, -1))
        for name in ("offset", "slope", "variance"):
            expected = (getattr(ahead, name) - getattr(behind, name)) / (2 * step)
            assert_allclose(getattr(found, name)[:, :, i], expected, atol=1e-4)
