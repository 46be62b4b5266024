"""Replays on tables of past tasks: how often a policy would have violated a limit.

A fixed policy was unsafe on K of m' tables, and the next task is exchangeable with them. Then it is
unsafe there with probability at most (E K + 1) / (m' + 1), and with confidence 1 - eta over
histories at most the Clopper-Pearson bound. No kernel, norm bound or noise level has to be right:
only the tables, and that the policy has not learned from them.

For a family of policies with a margin, K(margin) counts the tables that are unsafe at this margin
or at a larger one. The smallest margin with K(margin) + 1 <= delta (m' + 1) is unsafe on the next
task with probability at most delta (conformal risk control). Both are Statement 3 of
``docs/guide/safe-search.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, as_number, as_numbers, as_values, check_generator
from metakel.confidence.fallback import Alarm
from metakel.data import Task
from metakel.errors import InputError
from metakel.optimize.limits import Range
from metakel.optimize.optimizer import Optimizer
from metakel.optimize.safe import NoSafePoint
from metakel.search import Finite, candidates


@dataclass(frozen=True, eq=False)
class Table(Task):
    """A past task of which every candidate is known, without noise.

    Parameters
    ----------
    outputs : dict of (n,) arrays
        Other outputs at the same points, by name.
    """

    outputs: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        found = {n: as_values(v, self.n, f"{self.name}, {n}") for n, v in self.outputs.items()}
        object.__setattr__(self, "outputs", found)


class PastRun:
    """A past task, as a policy sees it: candidates, and measurements that are written down.

    Parameters
    ----------
    table : Task
    noise_std : dict
        Noise of a measurement of the objective (under "") and of other outputs.
    rng : Generator
    """

    def __init__(
        self, table: Task, noise_std: Mapping[str, float], rng: np.random.Generator
    ) -> None:
        self._table, self._noise = table, noise_std
        self.rng = rng
        self.domain: Finite = candidates(table.X)
        self.tried: list[int] = []

    def measure(self, x: Any) -> tuple[float, dict[str, float]]:
        """The objective and the other outputs at a candidate, with noise."""
        row = self.domain.encode(x, "replay")
        if len(row) != 1:
            raise InputError(f"measure: {len(row)} points were given; expected one")
        at = int(np.argmin(np.abs(self._table.X - row[0]).max(axis=1)))
        self.tried.append(at)
        outputs = getattr(self._table, "outputs", {})
        value = self._noisy("", self._table.y[at])
        return value, {name: self._noisy(name, values[at]) for name, values in outputs.items()}

    def _noisy(self, name: str, value: float) -> float:
        level = self._noise.get(name, 0.0)
        return float(value + level * self.rng.standard_normal()) if level else float(value)

    def run(self, optimizer: Optimizer, tries: int) -> Optimizer:
        """Let an optimizer over ``domain`` ask and measure this many times."""
        for _ in range(tries):
            x = optimizer.ask()
            value, outputs = self.measure(x)
            optimizer.tell(x, value, outputs or None)
        return optimizer


@dataclass(frozen=True, eq=False)
class Replay:
    """What a policy did on the tables; `replay` makes it.

    Parameters
    ----------
    unsafe : (m',) or (M, m') array of bool
        Whether an unsafe point was tried, on every table; for every margin.
    rows : tuple of lists of int
        Which points of each table were tried, in this order; at the largest margin.
    margins : (M,) array or None
        Increasing.
    """

    unsafe: NDArray[np.bool_]
    rows: tuple[list[int], ...]
    margins: Array | None = None

    @property
    def tasks(self) -> int:
        """How many tables there are."""
        return int(self.unsafe.shape[-1])

    @property
    def count(self) -> int:
        """K, on how many of them an unsafe point was tried; at the largest margin."""
        return int(np.atleast_2d(self.unsafe)[-1].sum())

    @property
    def expected(self) -> float:
        """(K + 1) / (m' + 1): its mean over histories bounds the chance on the next task."""
        return (self.count + 1) / (self.tasks + 1)

    def bound(self, confidence: float = 0.95) -> float:
        """Clopper-Pearson: the chance on the next task is at most this, for most histories."""
        from scipy.special import betaincinv

        if not 0 < as_number("confidence", confidence) < 1:
            raise InputError(f"confidence is {confidence}; expected a number between 0 and 1")
        if self.count == self.tasks:
            return 1.0
        return float(betaincinv(self.count + 1, self.tasks - self.count, confidence))

    def margin(self, delta: float) -> float:
        """The smallest margin at which the next task is unsafe with probability at most delta."""
        if self.margins is None:
            raise InputError("there are no margins; give them to replay as margins=")
        # Unsafe at this margin or at a larger one, so that the count never grows with the margin.
        counts = np.logical_or.accumulate(self.unsafe[::-1], axis=0)[::-1].sum(axis=1)
        enough = np.flatnonzero(counts + 1 <= delta * (self.tasks + 1))
        if not len(enough):
            raise InputError(
                f"no margin up to {self.margins[-1]:g} keeps delta = {delta:g}: at the largest, "
                f"{counts[-1]} of {self.tasks} tables were unsafe; expected at most "
                f"delta (tables + 1) - 1 = {delta * (self.tasks + 1) - 1:.3g}"
            )
        return float(self.margins[enough[0]])

    def __str__(self) -> str:
        return (
            f"an unsafe point was tried on {self.count} of {self.tasks} past tasks; on the next one"
            f" with probability at most {self.expected:.2g} on average over histories, "
            f"{self.bound():.2g} in 19 of 20 cases"
        )


def replay(
    policy: Callable[..., Any],
    tables: Sequence[Task],
    *,
    rng: np.random.Generator,
    at_least: float | None = None,
    at_most: float | None = None,
    limits: Mapping[str, tuple[float | None, float | None]] | None = None,
    noise_std: float | Mapping[str, float] = 0.0,
    margins: Sequence[float] | None = None,
) -> Replay:
    """Play a policy on tables of past tasks, and count where it tried an unsafe point.

    The policy may be anything: an optimizer of this library, or a function of your own. It must
    not have learned from these tables. `NoSafePoint` and `Alarm` end a run without a violation.

    Parameters
    ----------
    policy : callable
        ``policy(past)`` with a `PastRun`, whose ``measure(x)`` it calls as often as it likes; with
        margins ``policy(past, margin)``.
    tables : sequence of Table or Task
        Past tasks with the true values of all candidates.
    rng : Generator
        For the noise, and for the policy as ``past.rng``.
    at_least, at_most : float, optional
        Limits of the objective.
    limits : dict of (at_least, at_most), optional
        Limits of other outputs of the tables, None for no limit.
    noise_std : float or dict
        Noise of the measurements; a dict has that of the objective under "".
    margins : sequence of float, optional
        Of a family of policies, the larger the more careful.
    """
    check_generator(rng)
    ranges = {"": Range.of("replay", at_least, at_most)}
    ranges |= {name: Range.of(f"limit {name!r}", *ends) for name, ends in (limits or {}).items()}
    if not any(allowed.bounded for allowed in ranges.values()):
        raise InputError("there is no limit; expected at_least, at_most or limits")
    tables = list(tables)
    if not tables:
        raise InputError("there are no tables; expected at least one past task")
    violated = [_violations(table, ranges) for table in tables]
    noise = dict(noise_std) if isinstance(noise_std, Mapping) else {"": float(noise_std)}
    grid = None if margins is None else np.sort(as_numbers("margins", margins, (None,)))
    seeds = rng.integers(2**63, size=len(tables))  # the same noise for every margin
    runs = []
    for arguments in [()] if grid is None else [(float(margin),) for margin in grid]:
        pasts = [
            PastRun(table, noise, np.random.default_rng(seed))
            for table, seed in zip(tables, seeds, strict=True)
        ]
        for past in pasts:
            try:
                policy(past, *arguments)
            except (NoSafePoint, Alarm):
                continue
        runs.append(pasts)
    unsafe = np.array(
        [[bool(bad[p.tried].any()) for p, bad in zip(r, violated, strict=True)] for r in runs]
    )
    rows = tuple(past.tried for past in runs[-1])
    return Replay(unsafe[0] if grid is None else unsafe, rows, grid)


def _violations(table: Task, ranges: Mapping[str, Range]) -> NDArray[np.bool_]:
    """(n,) which points of a table violate a limit."""
    bad = np.zeros(table.n, dtype=bool)
    for name, allowed in ranges.items():
        values = getattr(table, "outputs", {}).get(name) if name else table.y
        if values is None:
            raise InputError(f"{table.name} has no output {name!r}; expected a Table that has it")
        bad |= (values < allowed.low) | (values > allowed.high)
    return bad
