"""When to stop: certificates against other rules, on the same sequences of values.

Three quarters of the tasks teach, 50 rows each; the others are searched on 50 of their own rows,
40 steps. Every rule sees the sequence of `prior.optimizer` and stops it at a tolerance of 5 % of
the usual spread of a task, if it is sure. Optuna's evaluators stop at values below the tolerance,
from 20 trials on as its `Terminator` does.
"Probability of regret" stops when, in 512 joint draws of the calibrated Gaussian process given the
values, the best value is within the tolerance of all candidates in a share of 1 - delta.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.docs import markdown
from benchmarks.transfer_data import Pairs
from metakel import learn_prior
from metakel.data import History
from metakel.gp import posterior
from metakel.priors import Prior
from metakel.space import Float, Space

BUDGET, ROWS, TOLERANCE, PATIENCE, DRAWS = 40, 50, 0.05, 10, 512
DELTAS = (0.1, 0.2)
OPTUNA_FEWEST = 20  # trials before a Terminator decides, by default
SPLITS = {"glmnet": 2, "xgboost": 1}


@dataclass(frozen=True, eq=False)
class Sequence:
    """One search.

    Parameters
    ----------
    prior : Prior
    X, y : (n, d0) and (n,) arrays
        All candidates of the task.
    rows : (t,) array
        Which of them were tried.
    certificates : dict of (t,) arrays
        By delta; inf where nothing was promised.
    alarm : int
        After how many values an alarm ended the certificates; 0 if none did.
    tolerance : float
    """

    prior: Prior
    X: np.ndarray
    y: np.ndarray
    rows: np.ndarray
    certificates: dict[float, np.ndarray]
    alarm: int
    tolerance: float

    @property
    def regret(self) -> np.ndarray:
        """(t,) of the best value so far."""
        return self.y.max() - np.maximum.accumulate(self.y[self.rows])


Rule = Callable[[Sequence], int]


def sequences(tasks: Pairs, splits: int) -> list[Sequence]:
    """The searches of all new tasks."""
    space = Space(tuple(Float(f"x{i}", -1.0, 1.0) for i in range(tasks[0][0].shape[1])))
    found = []
    for split in range(splits):
        rng = np.random.default_rng([split, ROWS, 8])
        chosen = [rng.choice(len(y), min(ROWS, len(y)), replace=False) for _, y in tasks]
        part = [(X[i], y[i]) for (X, y), i in zip(tasks, chosen, strict=True)]
        order = rng.permutation(len(part))
        taught, new = np.split(order, [round(0.75 * len(part))])
        prior = learn_prior(History.from_pairs([part[s] for s in taught]), space)
        found += [_search(prior, *part[s]) for s in new]
    return found


def _search(prior: Prior, X: np.ndarray, y: np.ndarray) -> Sequence:
    rows_of = {tuple(x): i for i, x in enumerate(X.tolist())}
    certificates, rows, alarm = {}, [], 0
    for delta in DELTAS:
        optimizer, bounds, rows = prior.optimizer(X, delta=delta), [], []
        for t in range(min(BUDGET, len(rows_of))):
            x = optimizer.ask()
            rows.append(rows_of[tuple(x.values())])
            optimizer.tell(x, y[rows[-1]])
            bounds.append(optimizer.certificate.regret)
            if not alarm and optimizer.alarm is not None:
                alarm = t + 1
        certificates[delta] = np.array(bounds)
    tolerance = TOLERANCE * prior.certificate.spread
    return Sequence(prior, X, y, np.array(rows), certificates, alarm, tolerance)


def first(sure: np.ndarray) -> int:
    """The first time at which a rule is sure; all if it never is."""
    return int(sure.argmax()) + 1 if sure.any() else len(sure)


def by_certificate(delta: float) -> Rule:
    return lambda s: first(s.certificates[delta] <= s.tolerance)


def no_improvement(s: Sequence) -> int:
    best = np.maximum.accumulate(s.y[s.rows])
    same = [t >= PATIENCE and best[t] <= best[t - PATIENCE] for t in range(len(best))]
    return first(np.array(same))


def by_probability(delta: float) -> Rule:
    """Wilson 2024, with the Gaussian process that the prior calibrates its bands with."""

    def rule(s: Sequence) -> int:
        about = s.prior.calibration
        rng, sure = np.random.default_rng(0), []
        centre = about.centre(s.X)
        for t in range(1, len(s.rows) + 1):
            rows = s.rows[:t]
            known = posterior(
                about.kernel, s.X[rows], s.y[rows] - centre[rows], noise_var=about.noise_std**2
            )
            draws = known.sample(s.X, rng, DRAWS) + centre  # (DRAWS, n)
            best = rows[int(s.y[rows].argmax())]
            within = draws.max(axis=1) - draws[:, best] <= s.tolerance
            sure.append(within.mean() >= 1 - delta)
            if sure[-1]:
                break
        return first(np.array(sure)) if sure[-1] else len(s.rows)

    return rule


def by_optuna(name: str) -> Rule:
    """An improvement evaluator of Optuna, compared with the tolerance."""

    def rule(s: Sequence) -> int:
        import optuna
        import optuna.terminator

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = getattr(optuna.terminator, name)(seed=0)
        ranges = {
            f"x{i}": optuna.distributions.FloatDistribution(-1, 1) for i in range(s.X.shape[1])
        }
        study = optuna.create_study(direction="maximize")
        for t, row in enumerate(s.rows):
            params = {f"x{i}": float(v) for i, v in enumerate(s.X[row])}
            trial = optuna.trial.create_trial(
                params=params, distributions=ranges, value=float(s.y[row])
            )
            study.add_trial(trial)
            if t + 1 >= OPTUNA_FEWEST and (
                evaluator.evaluate(study.trials, study.direction) < s.tolerance
            ):
                return t + 1
        return len(s.rows)

    return rule


RULES: dict[str, Rule] = {
    "fixed budget": lambda s: len(s.rows),
    f"no improvement in {PATIENCE}": no_improvement,
    "Optuna RegretBoundEvaluator": by_optuna("RegretBoundEvaluator"),
    "Optuna EMMREvaluator": by_optuna("EMMREvaluator"),
    **{f"probability of regret, delta {delta:g}": by_probability(delta) for delta in DELTAS},
    **{f"certificate, delta {delta:g}": by_certificate(delta) for delta in DELTAS},
}


def stopping_table(tables: dict[str, Pairs], *, quick: bool = False) -> str:
    """All rules on all tables, and what became of the certificates, as Markdown."""
    lines, promises = [], []
    for name, splits in SPLITS.items():
        if name not in tables:
            continue
        found = sequences(tables[name], splits)[: 2 if quick else None]
        for label, rule in RULES.items():
            lines.append(_line(name, label, found, np.array([rule(s) for s in found])))
            print(lines[-1], flush=True)
        promises += [_promised(name, delta, found) for delta in DELTAS]
        print(promises[-2:], flush=True)
    head = ["table", "rule", "evaluations", "stopped early", "above tolerance", "worst regret"]
    about = ["table", "delta", "covered", "covered, where promised to the end", "ended by an alarm"]
    return f"""{markdown(head, lines)}

Certificates of the same searches. "Covered" counts a certificate that promises nothing as true; the
next column leaves out searches whose certificate was ended:

{markdown(about, promises)}"""


def _line(name: str, label: str, found: list[Sequence], stops: np.ndarray) -> list[str]:
    regret = np.array([s.regret[stop - 1] for s, stop in zip(found, stops, strict=True)])
    early = np.array([stop < len(s.rows) for s, stop in zip(found, stops, strict=True)])
    above = regret > np.array([s.tolerance for s in found])
    return [
        name,
        label,
        f"{stops.mean():.1f}",
        f"{early.sum()} of {len(found)}",
        f"{above.mean():.2f}",
        f"{regret.max():.4f}",
    ]


def _promised(name: str, delta: float, found: list[Sequence]) -> list[str]:
    true = np.array([(s.regret <= s.certificates[delta] + 1e-9).all() for s in found])
    kept = np.array([np.isfinite(s.certificates[delta][-1]) for s in found])
    where = f"{true[kept].mean():.2f} of {kept.sum()}" if kept.any() else "none"
    ended = sum(s.alarm > 0 for s in found)
    return [name, f"{delta:g}", f"{true.mean():.2f} of {len(found)}", where, f"{ended}"]
