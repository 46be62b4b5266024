"""The optimizers that are asked: each is told observations, then asked for one point.

Points live in [-1, 1]^2 and values are to be maximised. What an asker needs to be in the state of
having been told t observations is done in `prepare`, off the clock; what it must do for every new
point, such as fitting its model again, is done in the first function that `prepare` returns. The
second one, off the clock again, goes back to the state before.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np

from metakel.confidence import ConfidenceSequence
from metakel.kernels import KernelSum
from metakel.optimize import GPUCB, Optimizer
from metakel.search import box

Ask = Callable[[], Any]
Undo = Callable[[], Any]
NOISE, NORM_BOUND = 0.05, 8.0
SQUARE = [(-1.0, 1.0), (-1.0, 1.0)]


def nothing() -> None:
    """Nothing has to be undone."""


def optimizer(kernel: KernelSum, seed: int) -> Optimizer:
    """Ours, as the benchmark uses it."""
    return GPUCB(
        ConfidenceSequence(kernel, noise_std=NOISE, norm_bound=NORM_BOUND, norm_of="kernel"),
        box(SQUARE),
        rng=np.random.default_rng(seed),
    )


@dataclass(frozen=True)
class Ours:
    """GPUCB: one ask, or the tell before it as well."""

    kernel: KernelSum
    with_tell: bool = False

    def prepare(self, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[Ask, Undo]:
        asker = optimizer(self.kernel, seed)
        for x, value in zip(X, y, strict=True):
            asker.tell(x, value)

        def tell_and_ask() -> None:
            # One observation more than t; the same one again changes next to nothing.
            asker.tell(X[-1], y[-1])
            asker.ask()

        def forget() -> None:
            asker.drop(asker.pending)

        return (tell_and_ask if self.with_tell else asker.ask), forget


@dataclass(frozen=True)
class BoTorch:
    """SingleTaskGP and UCB; ``refit`` fits the hyper-parameters for every ask."""

    refit: bool

    def prepare(self, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[Ask, Undo]:
        import torch
        from botorch.acquisition import UpperConfidenceBound
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Normalize, Standardize
        from botorch.optim import optimize_acqf
        from gpytorch.mlls import ExactMarginalLogLikelihood

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        bounds = torch.tensor(SQUARE, dtype=torch.double).T
        points = torch.tensor(X, dtype=torch.double)
        values = torch.tensor(y, dtype=torch.double)[:, None]

        def model() -> Any:
            scaling = Normalize(d=2, bounds=bounds)
            return SingleTaskGP(
                points, values, input_transform=scaling, outcome_transform=Standardize(m=1)
            )

        def fitted() -> Any:
            fresh = model()
            fit_gpytorch_mll(ExactMarginalLogLikelihood(fresh.likelihood, fresh))
            return fresh

        frozen = fitted().state_dict()

        def ask() -> Any:
            if self.refit:
                gp = fitted()
            else:
                gp = model()
                gp.load_state_dict(frozen)
            acquisition = UpperConfidenceBound(gp.eval(), beta=4.0)
            return optimize_acqf(acquisition, bounds, q=1, num_restarts=10, raw_samples=512)

        ask()
        return ask, nothing


@dataclass(frozen=True)
class Optuna:
    """GPSampler, logEI."""

    def prepare(self, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[Ask, Undo]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        space = {name: optuna.distributions.FloatDistribution(-1, 1) for name in ("x0", "x1")}
        sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=0)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(
            [
                optuna.trial.create_trial(
                    params={"x0": float(x[0]), "x1": float(x[1])},
                    distributions=space,
                    value=float(value),
                )
                for x, value in zip(X, y, strict=True)
            ]
        )

        def fail() -> None:
            for trial in study.get_trials(deepcopy=False):
                if not trial.state.is_finished():
                    study.tell(trial.number, state=optuna.trial.TrialState.FAIL)

        return lambda: study.ask(space), fail


@dataclass(frozen=True)
class BayesOpt:
    """bayes_opt, UCB."""

    def prepare(self, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[Ask, Undo]:
        from bayes_opt import BayesianOptimization
        from bayes_opt.acquisition import UpperConfidenceBound

        asker = BayesianOptimization(
            f=None,
            pbounds={"x0": SQUARE[0], "x1": SQUARE[1]},
            acquisition_function=UpperConfidenceBound(kappa=2.0),
            random_state=seed,
            allow_duplicate_points=True,
            verbose=0,
        )
        for x, value in zip(X, y, strict=True):
            with redirect_stdout(io.StringIO()):  # it prints every point that it has seen before
                asker.register(params={"x0": x[0], "x1": x[1]}, target=value)
        return asker.suggest, nothing


@dataclass(frozen=True)
class ScikitOptimize:
    """skopt, LCB; its model is fitted when it is told."""

    def prepare(self, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[Ask, Undo]:
        from skopt import Optimizer

        asker = Optimizer(
            SQUARE, base_estimator="GP", acq_func="LCB", n_initial_points=1, random_state=seed
        )
        if len(X) > 1:
            asker.tell(X[:-1].tolist(), (-y[:-1]).tolist(), fit=False)

        def tell_and_ask() -> Any:
            asker.tell(X[-1].tolist(), float(-y[-1]))
            return asker.ask()

        return tell_and_ask, nothing


RIVALS: dict[str, tuple[str, Any]] = {
    "BoTorch, frozen, UCB (10 restarts, 512 raw)": ("botorch", BoTorch(refit=False)),
    "BoTorch, refit, UCB (10 restarts, 512 raw)": ("botorch", BoTorch(refit=True)),
    "Optuna GPSampler, logEI": ("optuna", Optuna()),
    "bayes_opt suggest, UCB": ("bayes_opt", BayesOpt()),
    "scikit-optimize tell + ask, LCB": ("skopt", ScikitOptimize()),
}
