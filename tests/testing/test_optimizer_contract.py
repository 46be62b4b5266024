"""Our models and optimizers keep the published contract, and broken ones do not pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import metakel as mk
from gpucb import gpucb
from metakel.optimize import Model, Optimizer, Score
from metakel.testing import check_model, check_optimizer, check_score

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.9, 0.9, (5, 2))
Z = RNG.uniform(-0.9, 0.9, (12, 2))
KERNEL = mk.KernelSum.uniform(mk.kernels.tensor_product(2, 3, scaling="l2"), weight=1.0)
STATIONARY = mk.KernelSum.uniform(mk.kernels.squared_exponential([0.5], d0=2), weight=1.0)
SQUARE = mk.box([(-1, 1), (-1, 1)])


def f(x):
    return float(np.sin(3 * x[0]) - x[1] ** 2)


Y = np.array([f(x) for x in X])


def history():
    pairs = []
    for s in range(8):
        points = np.random.default_rng(s).uniform(-1, 1, (20, 2))
        pairs.append((points, np.array([f(x + 0.1 * s) for x in points])))
    return mk.History.from_pairs(pairs)


PRIOR = mk.learn_prior(history())


class Linear(Model):
    """A model of somebody else: Bayesian linear regression, in forty lines."""

    noise = 0.1

    def __init__(self, P=np.eye(3), b=np.zeros(3), extra=0.0):  # noqa: B008
        self.P, self.b, self.extra = P, b, extra

    @property
    def d0(self):
        return 2

    def _features(self, Z):
        return np.column_stack([np.ones(len(Z)), Z])

    def given(self, outcomes):
        F = self._features(outcomes.X) / self.noise
        return type(self)(np.eye(3) + F.T @ F, F.T @ outcomes.y / self.noise)

    def with_fantasies(self, X):
        F = self._features(X) / self.noise
        return type(self)(self.P, self.b, F.T @ F)

    def predict(self, Z):
        F = self._features(Z)
        spread = np.linalg.inv(self.P + self.extra)
        return F @ np.linalg.solve(self.P, self.b), np.sqrt(np.einsum("ni,ij,nj->n", F, spread, F))


def certified(kernel=KERNEL, **options):
    rng = np.random.default_rng(0)
    settings = {"noise_std": 0.1, "norm_bound": 3.0, **options}
    return gpucb(kernel, SQUARE, rng=rng, **settings)


MODELS = {
    "own": Linear(),
    "certified": certified().model,
    "without features": certified(STATIONARY).model,
    "fixed nu": certified(nu=2.0, norm_bound=None).model,
    "prior": PRIOR.task_model(),
}
OPTIMIZERS = {
    "own": lambda: Optimizer(Linear(), SQUARE, rng=np.random.default_rng(0)),
    "own, a rule of its own": lambda: Optimizer(
        Linear(), SQUARE, rng=np.random.default_rng(0), acquisition=probability_of_improvement
    ),
    "certified": certified,
    "grid": lambda: gpucb(
        KERNEL,
        mk.grid([(-1, 1)] * 2, 11),
        rng=np.random.default_rng(0),
        noise_std=0.1,
        norm_bound=3.0,
    ),
    "prior": PRIOR.optimizer,
    "prior, ei": lambda: PRIOR.optimizer(acquisition="ei"),
    "table": lambda: PRIOR.optimizer(PRIOR.space.decode(PRIOR.space.sample(RNG_TABLE(), 30))),
}


def RNG_TABLE():
    return np.random.default_rng(5)


def probability_of_improvement(model, best):
    def values(Z):
        mean, sd = model.predict(Z)
        return mean if best is None else (mean - best) / sd

    return Score(values)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_keeps_the_contract(name):
    check_model(MODELS[name], X, Y, Z)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_keeps_the_contract(name):
    check_optimizer(OPTIMIZERS[name], lambda x: f(list(x.values()) if isinstance(x, dict) else x))


class FantasiesAreEvidence(Linear):
    def with_fantasies(self, X):
        F = self._features(X) / self.noise
        return type(self)(self.P + F.T @ F, self.b - F.sum(axis=0))

    @property
    def log_evidence(self):
        return -float(self.b @ self.b)


class ForgetsTheFirst(Linear):
    def given(self, outcomes):
        return super().given(replace(outcomes, X=outcomes.X[1:], y=outcomes.y[1:]))


class ChangesItself(Linear):
    def given(self, outcomes):
        after = super().given(outcomes)
        self.P = after.P
        return after


class NeverSurer(Linear):
    def predict(self, Z):
        return super().predict(Z)[0], np.ones(len(Z))


class Nan(Linear):
    def predict(self, Z):
        return np.full(len(Z), np.nan), np.ones(len(Z))


class WrongGradient(Linear):
    def upper_bound(self):
        values = super().upper_bound().values
        return Score(values, lambda Z: (values(Z), np.ones_like(Z)))


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (FantasiesAreEvidence, "a fantasy changes the evidence"),
        (ForgetsTheFirst, "the order of the observations matters"),
        (ChangesItself, "surer|changed the model itself"),
        (NeverSurer, "does not make the model surer"),
        (Nan, "not finite"),
        (WrongGradient, "the gradient in input"),
    ],
)
def test_a_broken_model_fails_its_law(broken, law):
    with pytest.raises(AssertionError, match=law):
        check_model(broken(), X, Y, Z)


def test_a_random_acquisition_fails_the_optimizer_contract():
    def random(model, best):
        return Score(lambda Z: np.random.default_rng().random(len(Z)))

    with pytest.raises(AssertionError):
        check_score(random(Linear(), None), Z)
    with pytest.raises(AssertionError):
        check_optimizer(
            lambda: Optimizer(Linear(), SQUARE, rng=np.random.default_rng(0), acquisition=random), f
        )
