r"""A start set that is safe on the next task, calibrated on past tasks.

Half of the past tasks teach: they give the kernels, and a score a(x) that says how far inside the
limits past tasks were at x. The other half calibrates. For each of its tasks let

.. math:: V_s = \sup\{a(x) : \text{a limit may be violated at } x\},

by a band of its own record. If the next task is exchangeable with these m' tasks, its V is larger
than the ceil((1 - delta)(m' + 1))-th smallest V_s with probability at most delta; otherwise all
points with a larger score are safe, as long as the band of the record that the next task would have
left holds at one point: the unsafe one with the largest score, which the noise has no part in. So
the band need not hold for all points at once. Nothing else is assumed of the score (Theorem 26 of
``docs/theory.md``).

The norm of a task minus the mean of the teaching tasks is calibrated together with V: the larger
of the two, each in units of the teaching tasks, is the score of a task. So both share one delta.
The record has to be right in one direction for it, that of the task minus the mean.

Of a prior, the records of everything that past tasks measured (`PastOutputs`) say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log, sqrt

import numpy as np

from metakel._arrays import Array, as_number, probability
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.kernels import KernelDictionary, KernelSum
from metakel.kernels.sum import KernelFunction
from metakel.learn import learn_kernel
from metakel.optimize.replays import conformal_rank
from metakel.priors import PastOutput, PastOutputs
from metakel.safe.limits import OBJECTIVE, PastFunction, PastScore, Range, SafeStart
from metakel.search import Domain

NEGLIGIBLE = 1e-8  # singular values below this share of the largest count as never observed


@dataclass(frozen=True, eq=False)
class LimitHistory:
    """Records of one output of past tasks; of several, the same tasks in the same order.

    Parameters
    ----------
    history : History
    base : KernelDictionary or KernelSum
        Base kernels to learn from, or a kernel that was not learned from the tasks that calibrate.
    noise_std : float
        Noise of a measurement.
    at_least, at_most : float, optional
        The limits; one of them, or both.
    """

    history: History
    base: KernelDictionary | KernelSum
    noise_std: float
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.history, History):
            raise InputError(f"history is a {type(self.history).__name__}; expected a History")
        as_number("noise_std", self.noise_std, 0)

    @property
    def range(self) -> Range:
        """Values that are allowed."""
        return Range.of("safe_start", self.at_least, self.at_most)

    @classmethod
    def of(cls, output: PastOutput, allowed: Range) -> LimitHistory:
        """The records of a prior, with these limits."""
        return cls(output.history, output.kernel, output.noise_std, *allowed.to_list())


def safe_start(
    history: History,
    base: KernelDictionary | KernelSum,
    *,
    domain: Domain,
    noise_std: float,
    at_least: float | None = None,
    at_most: float | None = None,
    limits: Mapping[str, LimitHistory] | None = None,
    delta: float = 0.05,
    delta_records: float = 0.01,
    delta_learning: float = 0.02,
    teach: float = 0.5,
) -> SafeStart:
    """Points that are safe on the next task, from past tasks alone.

    The tasks have to be exchangeable: recorded in the same way, none of them chosen by its result
    or by an optimizer that has learned from the others. The limits must not be chosen by looking
    at the calibrating tasks, which are the last ones of the history.

    Parameters
    ----------
    history : History
        Records of the objective.
    base : KernelDictionary or KernelSum
        Base kernels to learn from, or a kernel that was not learned from these tasks.
    domain : Domain
        Where the next task will be searched. Of a continuous domain, a few thousand points stand
        for all.
    noise_std : float
        Noise of the records. 0 says that every calibrating task recorded exact values at all
        points of the domain; then the records need no band, and no kernel has to be right for the
        start set.
    at_least, at_most : float, optional
        Limits of the objective, in the sign of the history.
    limits : dict of LimitHistory, optional
        Other limited outputs.
    delta : float
        Probability with which the calibration may fail, over histories and the next task. At least
        1 / delta - 1 calibrating tasks are needed.
    delta_records : float
        Probability with which the band of a record may fail. The points of a record must not
        depend on its values.
    delta_learning : float
        Probability with which the noise may mislead the learning of a kernel, for all together.
    teach : float
        Share of the tasks, from the first on, that teach.
    """
    outputs = {OBJECTIVE: LimitHistory(history, base, noise_std, at_least, at_most)}
    outputs |= dict(limits or {})
    if not any(output.range.bounded for output in outputs.values()):
        raise InputError("there is no limit; expected at_least, at_most or limits")
    probability("delta", delta)
    probability("delta_records", delta_records)
    m = len(history.tasks)
    first = round(as_number("teach", teach, 0, 1) * m)
    if not 1 <= first < m or any(len(o.history.tasks) != m for o in outputs.values()):
        found = ", ".join(f"{name} {len(o.history.tasks)}" for name, o in outputs.items())
        raise InputError(
            f"past tasks: {found}; expected the same number for every output, and at least one "
            f"each to teach and to calibrate (teach={teach:g})"
        )
    exact = all(output.noise_std == 0 for output in outputs.values())
    learn = [name for name, o in outputs.items() if isinstance(o.base, KernelDictionary)]
    part = delta_learning / max(len(learn), 1)
    X = domain.start_points(np.random.default_rng(0)).X
    failure = 0.0 if exact else delta_records / (1 + len(outputs))  # the point, and the norms
    taught = {name: _Taught.of(o, first, part, failure, X) for name, o in outputs.items()}
    scores = tuple(t.score for t in taught.values() if t.score is not None)
    heights = np.min([score(X) for score in scores], axis=0)
    V = _highest_risks(heights, [t.margins for t in taught.values()])
    # Where records do not span the features there is no norm bound to calibrate.
    norms = {name: t.norms for name, t in taught.items() if np.isfinite(t.norms[:first]).all()}
    rank = conformal_rank(delta, m - first)
    units = [_units(values[:first]) for values in (V, *norms.values())]
    parts = zip((V, *norms.values()), units, strict=True)
    combined = np.max([(values - middle) / size for values, (middle, size) in parts], axis=0)
    q = inf if rank > m - first else float(np.sort(combined[first:])[rank - 1])
    level, *radii = (middle + q * size for middle, size in units)
    bounds = {name: r for name, r in zip(norms, radii, strict=True) if np.isfinite(r)}
    functions = {
        name: PastFunction(t.center, bounds.get(name), t.noise_std, outputs[name].range)
        for name, t in taught.items()
    }
    spent = delta + (0.0 if exact else delta_records) + (delta_learning if learn else 0.0)
    return SafeStart(scores, level, functions, spent, m - first, rank, delta)


@dataclass(frozen=True, eq=False)
class _Taught:
    """One output: what the teaching tasks say, and bounds of every task at the points ``X``."""

    center: KernelFunction
    score: PastScore | None
    noise_std: float
    margins: Array  # (m, N) how far inside the limits the band of each task is
    norms: Array  # (m,) largest norm minus the centre that the band of each task allows

    @classmethod
    def of(cls, output: LimitHistory, first: int, delta: float, level: float, X: Array) -> _Taught:
        tasks, kernel = output.history.tasks, output.base
        if isinstance(kernel, KernelDictionary):
            noise = output.noise_std or None
            past = History(tasks[:first])
            kernel = learn_kernel(past, kernel, noise_std=noise, delta=delta).kernel
        if not (kernel.finite and len(kernel.active)):
            raise InputError(
                "safe_start needs a kernel with features that is not empty; nothing was learned "
                "from the teaching tasks, or the kernel has no features"
            )
        records = [TaskRecord.of(kernel, task, output.noise_std) for task in tasks]
        theta = np.array([record.theta for record in records])
        center = KernelFunction(kernel, theta[:first].mean(axis=0))
        spread = np.cov(theta[:first].T, ddof=0).reshape(kernel.dim, kernel.dim)
        values, vectors = np.linalg.eigh(spread)
        root = vectors * np.sqrt(np.maximum(values, 0))
        score = PastScore(center, root, output.range) if output.range.bounded else None
        Phi = kernel.features(X)
        margins = np.array([output.range.margin(*r.band(Phi, level)) for r in records])
        if not level:
            margins[first:] = [_exact_margin(output, task, X) for task in tasks[first:]]
        norms = np.array([r.largest_norm(center.coefficients, level) for r in records])
        noise = output.noise_std or max(record.rest for record in records) or 1e-9
        return cls(center, score, float(noise), margins, norms)


@dataclass(frozen=True, eq=False)
class TaskRecord:
    """Least squares on the record of one task, in the features of a kernel."""

    theta: Array  # (d,)
    directions: Array  # (d, r) orthonormal
    singular: Array  # (r,) of the whitened features
    rest: float  # root mean square of what the features leave

    @classmethod
    def of(cls, kernel: KernelSum, task: Task, noise_std: float) -> TaskRecord:
        F, scale = kernel.features(task.X), noise_std or 1.0
        left, singular, right = np.linalg.svd(F / scale, full_matrices=False)
        kept = singular > NEGLIGIBLE * singular.max(initial=0)
        left, singular, right = left[:, kept], singular[kept], right[kept]
        theta = right.T @ (left.T @ task.y / scale / singular)
        rest = sqrt(float(np.mean((task.y - F @ theta) ** 2)))
        return cls(theta, right.T, singular, rest)

    def band(self, Phi: Array, delta: float) -> tuple[Array, Array]:
        """(N,) bounds at features (N, d), each of which fails with probability ``delta``.

        They are infinite in directions that were not recorded.
        """
        inside = Phi @ self.directions
        half = _deviation(delta) * np.sqrt(((inside / self.singular) ** 2).sum(axis=1))
        hidden = (Phi**2).sum(axis=1) - (inside**2).sum(axis=1)
        half[hidden > 1e-9 * (Phi**2).sum(axis=1)] = inf
        mean = Phi @ self.theta
        return mean - half, mean + half

    def largest_norm(self, center: Array, delta: float) -> float:
        r"""Bound of the norm of the task minus ``center``; fails with probability ``delta``.

        With r u = theta - centre, ||u|| = 1, and b = theta_hat - centre, the error <u, b> - r has
        standard deviation ||u/s||, so r <= <u, b> + z ||u/s|| but for delta. The largest value over
        all u is at most the root of mu + sum b_i^2 mu / (mu - z^2/s_i^2), for every mu.
        """
        if len(self.singular) < len(self.theta):
            return inf
        b = self.directions.T @ (self.theta - center)
        variances = (_deviation(delta) / self.singular) ** 2
        if not variances.any():
            return float(np.linalg.norm(b))
        mu = variances.max() * (1 + np.geomspace(1e-4, 1e6, 500)[:, None])
        squares = mu[:, 0] + (b**2 * (mu / (mu - variances))).sum(axis=1)
        return sqrt(float(squares.min()))


def _deviation(delta: float) -> float:
    """By how many standard deviations noise exceeds its mean with probability ``delta`` at most."""
    return sqrt(2 * log(1 / delta)) if delta else 0.0


def _exact_margin(output: LimitHistory, task: Task, X: Array) -> Array:
    """(N,) how far inside exact values are, of a task that recorded every point of the domain."""
    rows = {x.tobytes(): y for x, y in zip(task.X + 0.0, task.y, strict=True)}
    try:
        values = np.array([rows[x.tobytes()] for x in X + 0.0])
    except KeyError:
        raise InputError(
            f"{task.name}: noise_std is 0, which says that exact values of all {len(X)} points of "
            f"the domain were recorded; {len(rows)} points were. Give the noise of the records"
        ) from None
    return output.range.margin(values, values)


def _highest_risks(heights: Array, margins: list[Array]) -> Array:
    """(m,) V_s: the largest score at which the bands of task s do not exclude a violation."""
    risky = np.min(margins, axis=0) < 0  # (m, N)
    return np.asarray(np.where(risky, heights, -inf).max(axis=1))


def _units(values: Array) -> tuple[float, float]:
    """Middle and size of the finite values of the teaching tasks."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    return float(np.median(finite)), float(finite.std()) or 1.0


# Shares of delta: for the calibration of the start set and the norms, and for noisy records.
CALIBRATING, RECORDS = 0.5, 0.1


def start_of(
    past: PastOutputs, limits: Mapping[str, Range], domain: Domain, *, delta: float
) -> SafeStart:
    """Where past tasks allow the next one to begin, and what they say of its outputs.

    ``limits`` are by the names of outputs, and that of the objective may be among them. delta is
    that of the whole search; the start set and the norms get three fifths of it.
    """
    objective, *others = past.names
    unknown = [name for name in limits if name not in past.outputs]
    if unknown:
        raise InputError(
            f"there is a limit on {unknown[0]!r}, of which no past measurements are known; "
            f"known are {', '.join(past.names)}"
        )
    goal, (low, high) = past.outputs[objective], limits.get(objective, Range()).to_list()
    return safe_start(
        goal.history,
        goal.kernel,
        domain=domain,
        noise_std=goal.noise_std,
        at_least=low,
        at_most=high,
        limits={n: LimitHistory.of(past.outputs[n], limits[n]) for n in others if n in limits},
        delta=CALIBRATING * delta,
        delta_records=RECORDS * delta,
    )
