"""Eq. 8 over shards: what `grouplasso.solve` and the lambda rules ask of a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError, ShardError
from metakel.grouplasso.batch import Batch
from metakel.kernels import KernelDictionary
from metakel.learn.refit import LeastSquares
from metakel.scale.blocks import Loss
from metakel.scale.evaluator import Point, ShardedEvaluator
from metakel.scale.executors import Executor
from metakel.scale.journal import Journal
from metakel.scale.shard import Recipe
from metakel.scale.sums import Certificate, Round, Summary, total

Index = NDArray[np.intp]
NEAR = 0.2  # a bound on the scores may exceed the last ones by this share


@dataclass(frozen=True)
class Progress:
    """How far a pass over the shards has come.

    Parameters
    ----------
    stage : str
        "reading", "round 3", "certificate", ...
    done, of : int
        Shards.
    seconds : float
        Since the pass began.
    """

    stage: str
    done: int
    of: int
    seconds: float

    @property
    def left(self) -> float:
        """Seconds that the rest of the pass will take if it goes on like this."""
        return self.seconds * (self.of - self.done) / self.done


Monitor = Callable[[Progress], None]


class ShardedProblem:
    """Tasks cut into shards, of which only sums are known here."""

    def __init__(
        self,
        executor: Executor,
        recipes: Sequence[Recipe],
        base: KernelDictionary,
        sizes: Index,
        *,
        loss: Loss = "points",
        progress: Monitor | None = None,
        journal: Journal | None = None,
        before: ShardedProblem | None = None,
    ) -> None:
        """``before`` is a problem whose shards come first, with everything known of them."""
        self.base, self.loss = base, loss
        self.executor, self.journal = executor, journal
        self.sizes: Index = sizes if before is None else np.concatenate([before.sizes, sizes])
        self._progress = progress
        self.shards = [executor.add(recipe) for recipe in recipes]
        self._summaries: dict[int, Summary] = {}
        self._rounds: dict[int, tuple[Point, Round]] = {}
        self._certificates: dict[int, tuple[Point, Certificate]] = {}
        self.start: Array | None = None
        self.work: Index = np.empty(0, np.intp)  # what the shards have statistics of
        self.rounds = 0
        self._before = before  # whose shards are ours, too, and must live as long
        if before is not None:
            self.shards = [*before.shards, *self.shards]
            self._summaries = dict(before._summaries)
            self._rounds = dict(before._rounds)
            self._certificates = dict(before._certificates)
            self.work = before.work

    # -- what a problem is asked for ---------------------------------------------------------

    @property
    def m(self) -> int:
        """How many tasks there are."""
        return self.sizes.size

    @property
    def p(self) -> int:
        """How many groups there are."""
        return self.base.p

    @property
    def total(self) -> int:
        """N, the number of observations."""
        return int(self.sizes.sum())

    @property
    def rows(self) -> int:
        """What sums are divided by; where all tasks count alike they weigh 1/n_s in shards."""
        return self.total if self.loss == "points" else self.m

    @property
    def dims(self) -> tuple[int | None, ...]:
        """Columns of each group, None in kernel mode."""
        return self.base.dims if self.base.finite else (None,) * self.p

    @property
    def kernel_mode(self) -> bool:
        """Whether only Gram matrices are known."""
        return not self.base.finite

    @property
    def task_weights(self) -> Array:
        """(m,) weights of the loss."""
        if self.loss == "points":
            return np.ones(self.m)
        return self.total / (self.m * self.sizes)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """Not here."""
        raise InputError("coefficients and residuals stay with the shards; only sums are known")

    def columns(self, j: int) -> slice:
        """The columns of group j."""
        return self.base.groups[j]

    def evaluator(self) -> ShardedEvaluator:
        """What the solver asks."""
        return ShardedEvaluator(self)

    @cached_property
    def summary(self) -> Summary:
        """What is known before any weight; reads every shard that was not read yet.

        One that cannot be read does not undo the others: after the file is put right (or left
        out), only that shard is read.
        """
        waiting = [k for k in self.shards if k not in self._summaries]
        answers = self._call("load", waiting, (), "reading")
        found = zip(waiting, answers, strict=True)
        self._summaries |= {k: a for k, a in found if not isinstance(a, ShardError)}
        _raise_errors(answers)
        return total([self._summaries[k] for k in self.shards])

    def spectrum(self) -> SumsOfEigenvalues:
        """Eigenvalues for the lambda rules."""
        return SumsOfEigenvalues(self)

    def spectra(self) -> list[Array]:
        """Not here: `spectrum` has their sums."""
        raise InputError("eigenvalues stay with the shards; only sums are known")

    def energies(self, vectors: Sequence[Array]) -> Array:
        """Not here."""
        raise InputError(
            "lambda rules that simulate noise need every observation in memory; for shards use "
            "'self-normalised', 'hkz', 'chernoff', 'dimension-free' or 'paper'"
        )

    def group_scores(self) -> Array:
        """(p,) squared norms of every group's correlation with the observations."""
        return self.summary.scores * (self.total / self.rows) ** 2

    def least_squares(self, active: Index) -> LeastSquares:
        """Sums over the least-squares fits of every task, for `refit`."""
        fit: LeastSquares = total(self.ask("least_squares", (active,), "refit"))
        return fit

    # -- asking shards -----------------------------------------------------------------------

    def cover(self, groups: Index) -> Index:
        """Have the shards keep statistics of these groups; where each stands among them."""
        new = groups[~np.isin(groups, self.work)]
        if new.size:
            self.work = np.concatenate([self.work, new])
        order = np.argsort(self.work)
        return order[np.searchsorted(self.work, groups, sorter=order)]

    @property
    def stage(self) -> str:
        """Which round it is, for messages."""
        return f"round {self.rounds + 1}"

    def round(self, point: Point) -> Round:
        """One point, asked only of shards that have not just answered it."""
        waiting = [
            k for k in self.shards
            if k not in self._rounds or not self._rounds[k][0].same(point)
        ]  # fmt: skip
        answers = self._call("at", waiting, (point.work, point.active, point.w), self.stage)
        _raise_errors(answers)
        for k, found in zip(waiting, answers, strict=True):
            self._rounds[k] = point, found
        return total([self._rounds[k][1] for k in self.shards])

    def certificate(self, point: Point) -> Certificate:
        """What the duality gap needs, from the points themselves where no bound does.

        A shard that was certified at a point nearby is not read again: its residuals have moved by
        a known distance, which bounds the scores of groups outside the working set,
        ||Phi_j' r|| <= ||Phi_j' r_0|| + ||Phi_j|| ||r - r_0||. Everything else is exact.
        """
        found = self._bounds(point)
        waiting = [k for k in self.shards if k not in found]
        answers = self._call("certificate", waiting, (point.groups, point.w), "certificate")
        _raise_errors(answers)
        for k, answer in zip(waiting, answers, strict=True):
            self._certificates[k] = point, answer
            found[k] = answer
        return total([found[k] for k in self.shards])

    def _bounds(self, point: Point) -> dict[int, Certificate]:
        """Certificates of the shards whose last one is near enough."""
        begins: list[tuple[Point, list[int]]] = []  # shards by where they were certified last
        for k in self.shards:
            if k in self._certificates:
                before = self._certificates[k][0]
                shards = next((s for p, s in begins if p.same(before)), None)
                if shards is None:
                    begins.append((before, shards := []))
                shards.append(k)
        bounds = {}
        for before, shards in begins:
            if not np.isin(before.groups, point.work).all():
                continue
            places = np.array([np.flatnonzero(point.work == j)[0] for j in before.groups])
            args = (point.work, point.active, point.w, places, before.w)
            answers = self._call("moved", shards, args, "certificate")
            _raise_errors(answers)
            for k, move in zip(shards, answers, strict=True):
                raw = np.sqrt(self._certificates[k][1].scores)
                further = np.sqrt(self._summaries[k].widest * move.distance)
                if (further <= NEAR * raw).all():
                    scores = (raw + further) ** 2
                    scores[point.work] = move.near.scores
                    bounds[k] = replace(move.near, scores=scores)
        return bounds

    def ask(self, method: str, args: tuple[Any, ...], stage: str) -> list[Any]:
        """Answers of all shards, in their order."""
        answers = self._call(method, self.shards, args, stage)
        _raise_errors(answers)
        return answers

    def note(self, point: Point) -> None:
        """A point that the solver has accepted, written down so that learning can go on from it."""
        if self.journal is not None:
            self.journal.write(point.groups, point.w)

    def _call(self, method: str, shards: list[int], args: tuple[Any, ...], stage: str) -> list[Any]:
        if not shards:
            return []
        begin = monotonic()

        def done(count: int) -> None:
            if self._progress is not None:
                self._progress(Progress(stage, count, len(shards), monotonic() - begin))

        return self.executor.call(method, shards, args, done)

    def close(self) -> None:
        """Let go of the shards (and of a cluster that was started for them)."""
        self.executor.close()


class SumsOfEigenvalues:
    """`metakel.learn.rule_spectrum.Spectrum` over shards, whose eigenvalues lack (N/rows)^2."""

    def __init__(self, problem: ShardedProblem) -> None:
        summary = problem.summary
        self._problem = problem
        self._unit = (problem.total / problem.rows) ** 2
        self.counts = summary.counts
        self.top = self._unit * summary.top
        self.trace = self._unit * summary.trace
        self.frobenius = self._unit * np.sqrt(summary.squares)

    def log_det(self, rho: Array) -> Array:
        """(p,) sums of log(1 + v / rho_j)."""
        return total(self._problem.ask("log_det", (rho / self._unit,), "lambda"))

    def tilted(self, top: Array, z: Array) -> Array:
        """(2, p) sums that the Chernoff bound minimises over z."""
        return total(self._problem.ask("tilted", (top / self._unit, z), "lambda"))


def _raise_errors(answers: list[Any]) -> None:
    errors = [answer for answer in answers if isinstance(answer, ShardError)]
    if errors:
        others = len(answers) - len(errors)
        lines = [str(error) for error in errors]
        raise ShardError("\n".join([*lines, f"({others} other shards answered and are kept)"]))
