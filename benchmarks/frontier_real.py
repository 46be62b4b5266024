"""Safe search on the bundled table: never much worse than a configuration that is in use.

The output is the AUC minus that of the recorded row closest to alpha = 0.5, lambda = 2^-8, which
stands for the configuration in use. It must not fall below -0.1.

Every second of the 37 data sets is the new task once; all others are its history, 60 rows of each.
The rules choose among the 1000 recorded rows of the new task, and begin at the row in use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

import metakel as mk
from benchmarks.seeds import Result
from metakel.data import History
from metakel.priors import learn_outputs
from metakel.safe import NoSafePoint, SafePrior

FLOOR, DELTA, TRIES, RECORDS, EVERY = -0.1, 0.2, 10, 60, 2
IN_USE = {"alpha": 0.5, "lambda": 2.0**-8}
Rule = Callable[[np.ndarray, np.ndarray, int, int], list[int]]


OURS = "**metakel, safe search**"


def tasks() -> range:
    """The data sets that are the new task once."""
    return range(0, len(gains()), EVERY)


def one_task(s: int) -> Result:
    """Unsafe tries and regret of every rule on one data set."""
    rules: dict[str, Rule] = {
        "BoTorch, EI where P(feasible) >= 95 %": _botorch,
        "Optuna, GPSampler with a constraint": _optuna,
    }
    whole = gains()
    y, rows = whole[s].y, _ours(whole, s)
    tried = {OURS: rows} | {n: rule(whole[s].X, y, rows[0], s) for n, rule in rules.items()}
    return {
        name: {
            "unsafe": (y[chosen] < FLOOR).tolist(),
            "regret": float((y.max() - _best(y, chosen)) / np.ptp(y)),
        }
        for name, chosen in tried.items()
    }


def real_rows(found: Sequence[Result]) -> list[tuple[str, ...]]:
    """A row for every rule."""
    rows = []
    for name in found[0]:
        runs = [result[name] for result in found]
        anywhere = sum(any(run["unsafe"]) for run in runs)
        share = np.mean(np.concatenate([run["unsafe"] for run in runs]))
        regret = np.mean([run["regret"] for run in runs])
        rows.append((name, f"{anywhere} of {len(runs)}", f"{share:.3f}", f"{regret:.3f}"))
    return rows


def gains() -> History:
    """The bundled tasks, with values relative to the configuration in use."""
    whole = mk.datasets.load_glmnet()
    used = whole.space.encode([IN_USE])
    nearest = [int(np.argmin(((task.X - used) ** 2).sum(axis=1))) for task in whole]
    tasks = (replace(t, y=t.y - t.y[row]) for t, row in zip(whole, nearest, strict=True))
    return replace(whole, tasks=tuple(tasks))


def _best(y: np.ndarray, rows: list[int]) -> float:
    return float(max((y[row] for row in rows if y[row] >= FLOOR), default=y.min()))


def _ours(whole: History, s: int) -> list[int]:
    """Rows that safe search tries."""
    rng, new = np.random.default_rng(s), whole[s]
    others = [whole[int(i)] for i in rng.permutation(len(whole)) if i != s]
    thinned = []
    for task in others:
        kept = rng.choice(task.n, RECORDS, replace=False)
        thinned.append(replace(task, X=task.X[kept], y=task.y[kept]))
    past = replace(whole, tasks=tuple(thinned))
    prior = replace(mk.learn_prior(past, certify="none"), past=learn_outputs({"auc": past}))
    decoded = [dict(row) for row in whole.space.decode(new.X)]
    source = SafePrior(prior, {"auc": (FLOOR, None)}, [decoded[int(np.argmin(np.abs(new.y)))]])
    tuner = mk.Tuner(source, candidates=decoded, delta=DELTA, seed=s)
    rows: list[int] = []
    places = {tuple(row.values()): i for i, row in enumerate(decoded)}
    for _ in range(TRIES):
        try:
            x = tuner.ask()
        except (mk.Alarm, NoSafePoint):
            break
        rows.append(places[tuple(x.values())])
        tuner.tell(x, float(new.y[rows[-1]]))
    return rows


def _botorch(X: np.ndarray, y: np.ndarray, first: int, seed: int) -> list[int]:
    """A Gaussian process of the new task alone, and expected improvement inside the filter."""
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from gpytorch.mlls import ExactMarginalLogLikelihood
    from scipy.special import ndtr

    torch.manual_seed(seed)
    Z, rows = torch.tensor((X + 1) / 2), [first]
    while len(rows) < TRIES:
        values = torch.tensor(y[rows])[:, None]
        if len(rows) == 1:  # one value has no spread to fit; the nearest other row
            order = np.argsort(((X - X[first]) ** 2).sum(axis=1))
            rows.append(int(order[1]))
            continue
        model = SingleTaskGP(Z[rows], values, outcome_transform=Standardize(1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        with torch.no_grad():
            posterior = model.posterior(Z)
            mean, sd = posterior.mean[:, 0].numpy(), posterior.variance[:, 0].sqrt().numpy()
            heights = LogExpectedImprovement(model, values.max())(Z[:, None]).numpy()
        allowed = ndtr((mean - FLOOR) / np.maximum(sd, 1e-12)) >= 0.95
        allowed[rows] = False
        if not allowed.any():
            break
        rows.append(int(np.argmax(np.where(allowed, heights, -np.inf))))
    return rows


def _optuna(X: np.ndarray, y: np.ndarray, first: int, seed: int) -> list[int]:
    """The nearest row to what the sampler suggests; the constraint is floor - value <= 0."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.GPSampler(
        seed=seed,
        n_startup_trials=1,
        constraints_func=lambda trial: (FLOOR - trial.user_attrs["auc"],),
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    names = [f"x{i}" for i in range(X.shape[1])]
    study.enqueue_trial(dict(zip(names, map(float, X[first]), strict=True)))
    rows: list[int] = []
    for _ in range(TRIES):
        trial = study.ask()
        x = np.array([trial.suggest_float(name, -1.0, 1.0) for name in names])
        rows.append(int(np.argmin(((X - x) ** 2).sum(axis=1))))
        trial.set_user_attr("auc", float(y[rows[-1]]))
        study.tell(trial, float(y[rows[-1]]))
    return rows
