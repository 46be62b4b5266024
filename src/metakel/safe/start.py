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

Of a prior, the records of everything that past tasks measured (`PastOutputs`) say where to begin:
`SafePrior` is what `Tuner`, the command line and the report know of safe search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import Any, ClassVar

import numpy as np

from metakel._arrays import Array, as_number, probability
from metakel.charts import number
from metakel.confidence import ConfidenceSequence
from metakel.data import History, Task
from metakel.errors import Hint, InputError
from metakel.kernels import KernelDictionary, KernelSum
from metakel.kernels.sum import KernelFunction
from metakel.learn import learn_kernel
from metakel.optimize import GPUCB, Optimizer, Trial
from metakel.optimize.model import Model
from metakel.optimize.replays import conformal_rank
from metakel.safe.limits import OBJECTIVE, PastFunction, PastScore, Range, SafeStart
from metakel.safe.model import DELTA_HINT, START_HINT, Limited
from metakel.search import Domain
from metakel.tuner.source import PriorSource, RunOptions, named_domain

NEGLIGIBLE = 1e-8  # singular values below this share of the largest count as never observed
# Shares of delta: for the calibration of the start set and the norms, and for noisy records.
CALIBRATING, RECORDS = 0.5, 0.1


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


# A prior with limits


@dataclass(frozen=True, eq=False)
class SafePrior(PriorSource):
    """A prior whose runs ask only for configurations that respect limits, for `Tuner`.

    With probability 1 - delta all configurations of a run respect all limits. It decides by the
    confidence bounds of kernels learned from half of the past tasks, not by the mixture of the
    prior, which promises nothing of single configurations.

    Parameters
    ----------
    prior : Prior
        With records of the limited outputs (`learn_outputs`).
    limits : dict of pairs
        Smallest and largest allowed value by the names of outputs, as in
        ``{"temperature": (None, 90)}``; the objective may be among them.
    start : sequence of dicts
        Configurations that you know to respect the limits. By default past tasks vouch for some.
    """

    limits: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    start: Sequence[Mapping[str, Any]] = ()
    ranges: Mapping[str, Range] = field(init=False)
    delta: ClassVar[float] = 0.1  # by default, that any limit is violated in a whole run

    def __post_init__(self) -> None:
        space, start = self.prior.space, tuple(self.prior.space.normalize(r) for r in self.start)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "ranges", {str(n): _range(n, e) for n, e in self.limits.items()})
        if not self.ranges:
            raise InputError("SafePrior without a limit; expected limits={name: (low, high)}")
        for name in self.ranges:
            if name in space.names:
                raise InputError(
                    f"{name!r} is a parameter ({space[name].describe()}), and limits are about "
                    "what is measured",
                    Hint("hold it", f"fixed={{{name!r}: value}}", f"--fix {name}=VALUE"),
                    Hint("learn with a smaller range", "space=...", "metakel learn --space"),
                )

    def optimizer(self, options: RunOptions) -> Optimizer:
        if options.extrapolate:
            raise InputError(
                "extrapolate beside limits: past tasks vouch for nothing beyond recorded ranges"
            )
        domain = named_domain(self.space, options)
        return self.search(domain, np.random.default_rng(options.seed), options.delta)

    def search(self, domain: Domain, rng: np.random.Generator, delta: float) -> Optimizer:
        """The search on a domain."""
        found = self._start(domain, delta)
        if not self.start:
            _refuse_empty(found, domain)
        goal = found.outputs[OBJECTIVE]
        low, high = goal.range.to_list()
        sequence = ConfidenceSequence(
            found.kernel,
            noise_std=goal.noise_std,
            norm_bound=found.norm_bound,
            norm_of="kernel",
            center=found.center,
            delta=delta,
            delta_learning=found.delta if self.start else 0.0,
        )
        start = list(self.start) or found
        limited = Limited(sequence, at_least=low, at_most=high, limits=found.limits(), start=start)
        return GPUCB(limited, domain, rng=rng, minimize=self.minimize)

    def _start(self, domain: Domain, delta: float) -> SafeStart:
        """Where past tasks allow this one to begin, and what they say of its outputs.

        The start set and the norms get three fifths of delta, which is that of the whole search.
        """
        past = self.prior.past
        if past is None:
            raise InputError(
                "the prior has no records of measured outputs, which limits need",
                Hint(
                    "learn it with them",
                    "replace(prior, past=learn_outputs(...))",
                    "metakel learn with --limit-output NAME, also for the objective itself",
                ),
            )
        unknown = [name for name in self.ranges if name not in past.outputs]
        if unknown:
            raise InputError(
                f"there is a limit on {unknown[0]!r}, of which no past measurements are known; "
                f"known are {', '.join(past.names)}"
            )
        objective, *others = past.names
        histories = {
            name: LimitHistory(
                o.history, o.kernel, o.noise_std, *self.ranges.get(name, Range()).to_list()
            )
            for name, o in past.outputs.items()
        }
        goal = histories[objective]
        return safe_start(
            goal.history,
            goal.base,
            domain=domain,
            noise_std=goal.noise_std,
            at_least=goal.at_least,
            at_most=goal.at_most,
            limits={name: histories[name] for name in others if name in self.ranges},
            delta=CALIBRATING * delta,
            delta_records=RECORDS * delta,
        )

    # In words

    def __str__(self) -> str:
        return ", ".join(f"{name} {allowed}" for name, allowed in self.ranges.items())

    @property
    def rules(self) -> Mapping[str, Any]:
        return {
            "text": f"the limits {self}",
            "outputs": [name for name in self.ranges if name != self.output],
            "limits": {name: allowed.to_list() for name, allowed in self.ranges.items()},
            "start": list(self.start),
        }

    def promise(self, delta: float) -> str:
        whose = "you vouch for" if self.start else "past tasks vouch for"
        return (
            f"limits: {self}. The search begins where {whose} it, and tries no configuration that "
            f"violates one, with probability {1 - delta:g} for the whole run, if the next task is "
            "like the past ones and the learned kernels and noise levels hold for it"
        )

    def remarks(self, trials: Sequence[Trial], number: int) -> list[str]:
        this = next(trial for trial in trials if trial.number == number)
        said = []
        # A run that is stuck looks like one that makes progress slowly.
        first = next(trial.number for trial in trials if trial.point == this.point)
        if first != number:
            said.append(
                f"the same as {first}: no other configuration is known to respect the limits, and "
                "measuring it again averages the noise. More past tasks, or more configurations "
                "that you vouch for (--start), widen the search"
            )
        for name, allowed in self.ranges.items():
            value = self._measured(this, name)
            if value is not None and not allowed.low <= value <= allowed.high:
                said.append(
                    f"measured beyond a limit: {name} {value:.6g} is not {allowed} (the limits are "
                    "about values without noise)"
                )
        return said

    def account(
        self, trials: Sequence[Trial], models: tuple[Model, Model], points: Array, delta: float
    ) -> tuple[str, list[tuple[str, ...]]]:
        rows: list[tuple[str, ...]] = [("limited output", "allowed", "measured", "measured beyond")]
        for name, allowed in self.ranges.items():
            found = [self._measured(trial, name) for trial in trials]
            values = [value for value in found if value is not None]
            beyond = sum(not allowed.low <= value <= allowed.high for value in values)
            spread = f"{number(min(values))} to {number(max(values))}" if values else "never"
            rows.append((name, str(allowed), spread, str(beyond)))
        before, after = (float(model.allowed(points).mean()) for model in models)
        text = (
            f"Known to be safe: {before:.0%} of the space before the run, {after:.0%} after it. "
            "All configurations that were asked for respect the limits, with probability "
            f"{1 - delta:g} for the whole run, if the learned kernels and noise levels hold for "
            "this task. This is about values without noise: a measurement slightly beyond a limit "
            "is no violation."
        )
        return text, rows

    def _measured(self, trial: Trial, name: str) -> float | None:
        return trial.value if name == self.output else trial.outputs.get(name)


def _range(name: str, ends: Sequence[float | None]) -> Range:
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise InputError(
            f"the limit of {name!r} is {ends!r}; expected a pair (smallest, largest), with None "
            "where there is no limit"
        )
    allowed = Range.of(f"limit of {name!r}", *ends)
    if not allowed.bounded:
        raise InputError(f"the limit of {name!r} allows everything; leave it out")
    return allowed


def _refuse_empty(start: SafeStart, domain: Domain) -> None:
    """Say what is missing where past tasks vouch for no configuration at all."""
    if start.rank > start.tasks:
        raise InputError(
            f"{start.tasks} past tasks are left to calibrate the first configuration, and "
            f"{start.needed} are needed at this delta ({2 * (start.needed - start.tasks)} more "
            "past tasks, as half of them teach)",
            START_HINT,
            DELTA_HINT,
        )
    X = domain.start_points(np.random.default_rng(0)).X
    scores = start.score(X)
    if not (scores > start.level).any():
        best = domain.decode(X[int(np.argmax(scores))])
        raise InputError(
            f"by the past tasks no configuration is safe: the safest is {best}, on average "
            f"{scores.max():.3g} standard deviations of past tasks within the limits, and more "
            f"than {start.level:.3g} are needed",
            START_HINT,
            DELTA_HINT,
        )
