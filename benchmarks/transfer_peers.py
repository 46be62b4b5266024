"""Other people's optimizers in `benchmarks.transfer`, as their authors ship them.

Those that search a box have their suggestion moved to the nearest row that was not tried. Optuna:
TPE, its Gaussian processes, TPE that is given the best past configurations first, and CMA-ES
warm-started by the history. SMAC: random forests. BoTorch: a Gaussian process on the new task
alone, its recipe for RGPE (a Gaussian process per past task, weighed by ranks), and `MultiTaskGP`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.transfer_rivals import History, Look, Search, log_ei

ENQUEUED = 10
# Gaussian processes over several tasks are cubic in all runs: so many tasks, and rows of each.
MULTI_TASKS, MULTI_ROWS, MULTI_EVERY = 5, 20, 5
RANK_DRAWS = 256


def nearest(X: np.ndarray, x: np.ndarray, tried: list[int]) -> int:
    """The row that is closest to a point and was not tried."""
    squares = ((X - x) ** 2).sum(axis=1)
    squares[tried] = np.inf
    return int(squares.argmin())


# ---------------------------------------------------------------- Optuna


def _optuna(make: Callable[[History, int], Any], best_first: bool = False) -> Any:
    def method(history: History, rng: np.random.Generator) -> Search:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)

        def search(X: np.ndarray, look: Look, horizon: int, rng: np.random.Generator) -> list[int]:
            sampler = make(history, int(rng.integers(2**31)))
            study = optuna.create_study(direction="maximize", sampler=sampler)
            for x in best_of(history) if best_first else ():
                study.enqueue_trial({f"x{i}": float(v) for i, v in enumerate(x)})
            rows: list[int] = []
            for _ in range(min(horizon, len(X))):
                trial = study.ask()
                x = [trial.suggest_float(f"x{i}", -1, 1) for i in range(X.shape[1])]
                rows.append(nearest(X, np.array(x), rows))
                study.tell(trial, look(rows[-1]))
            return rows

        return search

    return method


def best_of(history: History) -> np.ndarray:
    """(10, d) the best configurations of as many past tasks, those of the best ranks first.

    The rank of a task's best row is how far it stands out, in standard deviations.
    """
    found = [((y.max() - y.mean()) / y.std(), X[y.argmax()]) for X, y in history if y.std() > 0]
    found.sort(key=lambda pair: -pair[0])
    return np.array([x for _, x in found[:ENQUEUED]])


def _tpe(history: History, seed: int) -> Any:
    import optuna

    return optuna.samplers.TPESampler(seed=seed, multivariate=True)


def _gp_sampler(history: History, seed: int) -> Any:
    import optuna

    return optuna.samplers.GPSampler(seed=seed)


def _warm_cma(history: History, seed: int) -> Any:
    """Values of all tasks in standard deviations, as one source."""
    import optuna

    d = history[0][0].shape[1]
    ranges = {f"x{i}": optuna.distributions.FloatDistribution(-1, 1) for i in range(d)}
    trials = [
        optuna.trial.create_trial(
            params={f"x{i}": float(v) for i, v in enumerate(np.clip(x, -1, 1))},
            distributions=ranges,
            value=float((value - y.mean()) / y.std()),
        )
        for X, y in history
        if y.std() > 0
        for x, value in zip(X, y, strict=True)
    ]
    return optuna.samplers.CmaEsSampler(seed=seed, source_trials=trials)


tpe = _optuna(_tpe)
tpe_best_first = _optuna(_tpe, best_first=True)
gp_sampler = _optuna(_gp_sampler)
warm_cma = _optuna(_warm_cma)


# ---------------------------------------------------------------- SMAC


def smac(history: History, rng: np.random.Generator) -> Search:
    """The facade for hyper-parameter optimisation, without history."""
    import logging

    from ConfigSpace import ConfigurationSpace
    from ConfigSpace import Float as Number
    from smac import HyperparameterOptimizationFacade, Scenario
    from smac.runhistory.dataclasses import TrialValue

    def search(X: np.ndarray, look: Look, horizon: int, rng: np.random.Generator) -> list[int]:
        names = [f"x{i}" for i in range(X.shape[1])]
        with TemporaryDirectory() as folder:
            space = ConfigurationSpace()
            space.add([Number(name, (-1.0, 1.0)) for name in names])
            seed = int(rng.integers(2**31 - 1))
            scenario = Scenario(
                space,
                deterministic=True,
                n_trials=horizon,
                seed=seed,
                output_directory=Path(folder),
            )
            facade = HyperparameterOptimizationFacade(
                scenario,
                lambda config, seed=0: 0.0,
                overwrite=True,
                logging_level=logging.ERROR,
            )
            rows: list[int] = []
            for _ in range(min(horizon, len(X))):
                asked = facade.ask()
                x = np.array([asked.config[name] for name in names])
                rows.append(nearest(X, x, rows))
                facade.tell(asked, TrialValue(cost=-look(rows[-1])))
        return rows

    return search


# ---------------------------------------------------------------- BoTorch


def _fitted(X: np.ndarray, y: np.ndarray) -> Any:
    """A SingleTaskGP with its defaults; inputs in [0, 1], outputs standardised by the model."""
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SingleTaskGP(_unit(X), torch.as_tensor(y)[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def _unit(X: np.ndarray) -> Any:
    import torch

    return torch.as_tensor((X + 1) / 2)


def _marginals(model: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) means and standard deviations."""
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.posterior(_unit(X)[:, None])
        return found.mean.numpy().ravel(), found.variance.clamp_min(1e-16).sqrt().numpy().ravel()


def _ready(values: list[float]) -> bool:
    return len(values) >= 2 and np.ptp(values) > 0


def _best_row(score: np.ndarray, rows: list[int]) -> int:
    score = score.copy()
    score[rows] = -np.inf
    return int(np.argmax(score))


def botorch_cold(history: History, rng: np.random.Generator) -> Search:
    """SingleTaskGP refitted after every value, log EI over all rows; two random rows first."""

    def search(X: np.ndarray, look: Look, horizon: int, rng: np.random.Generator) -> list[int]:
        rows: list[int] = []
        values: list[float] = []
        order = rng.permutation(len(X)).tolist()
        while len(rows) < min(horizon, len(X)):
            if _ready(values):
                model = _fitted(X[rows], np.array(values))
                chosen = _best_row(log_ei(*_marginals(model, X), max(values)), rows)
            else:
                chosen = next(i for i in order if i not in rows)
            rows.append(chosen)
            values.append(look(chosen))
        return rows

    return search


def botorch_rgpe(history: History, rng: np.random.Generator) -> Search:
    """The recipe of BoTorch's tutorial on RGPE, with log EI over all rows.

    Weights: the share of draws in which a model misranks the new values least; that of the new task
    leaves one out. A past task that is usually worse than it is left out.
    """
    groups = [(X, (y - y.mean()) / y.std()) for X, y in history if y.std() > 0]
    models = [_fitted(X, y) for X, y in groups]

    def search(X: np.ndarray, look: Look, horizon: int, rng: np.random.Generator) -> list[int]:
        base = [_marginals(model, X) for model in models]
        means, sds = (np.array(part) for part in zip(*base, strict=True))  # (m, n)
        rows = [int(np.argmax(means.mean(axis=0)))]
        values = [look(rows[0])]
        while len(rows) < min(horizon, len(X)):
            y = np.array(values)
            z = (y - y.mean()) / (y.std() if y.std() > 0 else 1.0)
            weights = np.append(np.full(len(models), 1 / len(models)), 0.0)
            own_mean, own_sd = np.zeros(len(X)), np.ones(len(X))
            if len(y) >= 3 and np.ptp(y) > 0:
                own = _fitted(X[rows], z)
                own_mean, own_sd = _marginals(own, X)
                weights = _weights(means[:, rows], sds[:, rows], z, *_left_out(own), rng)
            mean = weights[:-1] @ means + weights[-1] * own_mean
            sd = np.sqrt(weights[:-1] ** 2 @ sds**2 + weights[-1] ** 2 * own_sd**2)
            best = float(mean[rows].max())  # of the ensemble, whose scale is not that of the values
            rows.append(_best_row(log_ei(mean, np.maximum(sd, 1e-9), best), rows))
            values.append(look(rows[-1]))
        return rows

    return search


def _left_out(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """(t,) means and standard deviations of every value given the others, in standard units."""
    import torch

    with torch.no_grad():
        model.train()
        prior = model.likelihood(model(*model.train_inputs))
        precision = torch.linalg.inv(prior.covariance_matrix)
        variance = 1 / precision.diagonal()
        rest = model.train_targets - prior.mean
        mean = model.train_targets - (precision @ rest) * variance
        model.eval()
    return mean.numpy(), variance.clamp_min(1e-12).sqrt().numpy()


def _weights(
    means: np.ndarray,
    sds: np.ndarray,
    z: np.ndarray,
    own_mean: np.ndarray,
    own_sd: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """(m + 1,) of the past tasks and the new one."""
    all_means, all_sds = np.vstack([means, own_mean]), np.vstack([sds, own_sd])
    draws = all_means + all_sds * rng.standard_normal((RANK_DRAWS, *all_means.shape))
    # Past models are compared among values; the new task's own with the values themselves.
    pairs = (draws[..., :, None] < draws[..., None, :]) ^ (z[:, None] < z[None])
    losses = pairs.sum(axis=(2, 3))
    losses[:, -1] = ((draws[:, -1, :, None] < z[None, None]) ^ (z[:, None] < z[None])).sum((1, 2))
    usual, limit = np.median(losses[:, :-1], axis=0), np.quantile(losses[:, -1], 0.95)
    losses[:, :-1][:, usual > limit] = len(z) ** 2 + 1
    best = losses == losses.min(axis=1, keepdims=True)
    best[:, -1] &= best.sum(axis=1) == 1
    found: np.ndarray = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    return found


def multi_task(history: History, rng: np.random.Generator) -> Search:
    """BoTorch's MultiTaskGP over 5 past tasks of 20 rows and the new one, log EI over all rows.

    Fitted anew after every fifth value.
    """
    varying = [(X, y) for X, y in history if y.std() > 0]
    parts = []
    for s in rng.permutation(len(varying))[:MULTI_TASKS]:
        X, y = varying[s]
        rows = rng.permutation(len(y))[:MULTI_ROWS]
        parts.append((X[rows], (y[rows] - y.mean()) / y.std()))

    def search(X: np.ndarray, look: Look, horizon: int, rng: np.random.Generator) -> list[int]:
        rows: list[int] = []
        values: list[float] = []
        state = None
        order = rng.permutation(len(X)).tolist()
        while len(rows) < min(horizon, len(X)):
            if _ready(values):
                y = np.array(values)
                z = (y - y.mean()) / y.std()
                model, state = _multi_fitted(parts, X[rows], z, state, len(rows) % MULTI_EVERY == 2)
                chosen = _best_row(log_ei(*_marginals(model, X), float(z.max())), rows)
            else:
                chosen = next(i for i in order if i not in rows)
            rows.append(chosen)
            values.append(look(chosen))
        return rows

    return search


def _multi_fitted(
    parts: History, X: np.ndarray, z: np.ndarray, state: Any, fit: bool
) -> tuple[Any, Any]:
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import MultiTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.set_num_threads(1)
    last = len(parts)
    inputs = [
        torch.hstack([_unit(A), torch.full((len(A), 1), float(s), dtype=torch.float64)])
        for s, (A, _) in enumerate([*parts, (X, z)])
    ]
    outputs = torch.as_tensor(np.concatenate([*(y for _, y in parts), z]))[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MultiTaskGP(
            torch.vstack(inputs),
            outputs,
            task_feature=-1,
            output_tasks=[last],
            outcome_transform=None,
        )
        if state is not None:
            model.load_state_dict(state)
        if fit or state is None:
            fit_gpytorch_mll(
                ExactMarginalLogLikelihood(model.likelihood, model),
                optimizer_kwargs={"options": {"maxiter": 50}},
            )
        model.eval()
    return model, model.state_dict()
