"""Eq. 8 over shards: what `metakel.grouplasso.solve` and the lambda rules ask of a problem."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel._files import Format, write_file
from metakel.errors import InputError, ShardError
from metakel.grouplasso.problem import TaskBatch
from metakel.kernels import KernelDictionary
from metakel.learn.problem import LeastSquares, Loss
from metakel.scale.evaluator import (
    Evaluation,
    Index,
    LocalCertificate,
    ShardCertificate,
    ShardedEvaluator,
    ShardedSpectrum,
    Summary,
    TaskSums,
    WeightPoint,
    total,
)
from metakel.scale.executors import Executor, OnAnswer

LOG = logging.getLogger("metakel")
FORMAT = Format("metakel-rounds", version=1, noun="checkpoint")


class Checkpoint:
    """A file with the weights of the last accepted round.

    Weights are stored as w = (2/N) x, which depends neither on lambda nor on the number of tasks.

    Parameters
    ----------
    path : path
    content : any JSON value
        What is learned from what. A file that was written for something else is refused.
    """

    def __init__(self, path: str | Path, content: Any) -> None:
        self.path = Path(path)
        self._content = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        self._round = 0

    def write(self, groups: Index, w: Array) -> None:
        """Replace the last round; a crash leaves either the old one or the new one."""
        self._round += 1
        content = {
            "about": self._content,
            "round": self._round,
            "groups": groups.tolist(),
            "w": w.tolist(),
        }
        write_file(self.path, FORMAT.dump(content))

    def read(self, p: int) -> Array | None:
        """(p,) weights w of the last round, or None if there is none."""
        if not self.path.exists():
            return None
        weights = np.zeros(p)
        with FORMAT.read_file(self.path) as content:
            if content["about"] != self._content:
                raise InputError(
                    "it is a checkpoint for other tasks, base kernels or loss; remove it, or "
                    "choose another file"
                )
            weights[content["groups"]] = content["w"]
            self._round = content["round"]
        LOG.info("continuing from round %d in %s", self._round, self.path)
        return weights


NEAR = 0.2  # a bound on the scores may exceed the last ones by this share


@dataclass(frozen=True)
class Progress:
    """How far a pass over the shards has come.

    Parameters
    ----------
    stage : str
        "reading", "lambda", "round 3", "certificate" or "refit".
    done, total : int
        Number of shards.
    seconds : float
        Since the pass began.
    """

    stage: str
    done: int
    total: int
    seconds: float

    @property
    def seconds_left(self) -> float:
        """Estimate for the rest of the pass, from the time per shard so far."""
        return self.seconds * (self.total - self.done) / self.done


ProgressCallback = Callable[[Progress], None]


def reporting(progress: ProgressCallback | None, stage: str, total: int) -> OnAnswer:
    """What to call after every answer of a pass that begins now."""
    begin = monotonic()

    def report(done: int) -> None:
        if progress is not None:
            progress(Progress(stage, done, total, monotonic() - begin))

    return report


class ShardedProblem:
    """`metakel.learn.problem.OutOfCoreProblem` over shards, of which only sums are known here.

    Parameters
    ----------
    executor : Executor
        Holds the shards and asks them.
    shards : sequence of TaskSums
        In the order in which their answers are added. They were not asked anything yet.
    base : KernelDictionary
        The base kernels, in the order of the groups in the shards' answers.
    sizes : (m,) array
        Observations of each task.
    loss : "points" or "tasks"
    progress : callable(Progress), optional
    checkpoint : Checkpoint, optional
        Where accepted rounds are saved.
    previous : ShardedProblem, optional
        A problem whose shards come first, with everything known of them.
    """

    def __init__(
        self,
        executor: Executor,
        shards: Sequence[TaskSums],
        base: KernelDictionary,
        sizes: Index,
        *,
        loss: Loss = "points",
        progress: ProgressCallback | None = None,
        checkpoint: Checkpoint | None = None,
        previous: ShardedProblem | None = None,
    ) -> None:
        self.base, self.loss, self.sizes = base, loss, sizes
        self.executor = executor
        self.shards = [executor.add(shard) for shard in shards]
        self.start: Array | None = None
        self.work: Index = np.empty(0, np.intp)  # groups that the shards have statistics of
        self.rounds = 0
        self._progress, self._checkpoint = progress, checkpoint
        self._summaries: dict[int, Summary] = {}
        self._evaluations: dict[int, tuple[WeightPoint, Evaluation]] = {}  # the last of each shard
        self._certificates: dict[int, tuple[WeightPoint, ShardCertificate]] = {}
        self._previous = previous  # closes our executor when it is collected, so we keep it
        if previous is not None:
            self.sizes = np.concatenate([previous.sizes, sizes])
            self.shards = [*previous.shards, *self.shards]
            self.work = previous.work
            self._summaries = dict(previous._summaries)
            self._evaluations = dict(previous._evaluations)
            self._certificates = dict(previous._certificates)

    # -- what a problem is asked for ---------------------------------------------------------

    @property
    def m(self) -> int:
        """Number of tasks."""
        return self.sizes.size

    @property
    def p(self) -> int:
        """Number of groups."""
        return self.base.p

    @property
    def total(self) -> int:
        """N, the number of observations."""
        return int(self.sizes.sum())

    @property
    def divisor(self) -> int:
        """What the loss divides sums of squares by: with ``loss="tasks"`` shards divide by n_s."""
        return self.total if self.loss == "points" else self.m

    @property
    def weight_scale(self) -> float:
        """Task weights of Eq. 8 over those that the shards use."""
        return self.total / self.divisor

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
    def batches(self) -> tuple[TaskBatch, ...]:
        """Refused: the data stay with the shards."""
        raise InputError("coefficients and residuals stay with the shards; only sums are known")

    def columns(self, j: int) -> slice:
        """The columns of group j."""
        return self.base.groups[j]

    def evaluator(self) -> ShardedEvaluator:
        """The sums that the solver asks for."""
        return ShardedEvaluator(self)

    def spectrum(self) -> ShardedSpectrum:
        """The sums over eigenvalues that the lambda rules ask for."""
        return ShardedSpectrum(self)

    def spectra(self) -> list[Array]:
        """Refused: `spectrum` has the sums."""
        raise InputError("eigenvalues stay with the shards; only sums are known")

    def energies(self, vectors: Sequence[Array]) -> Array:
        """Refused: noise cannot be simulated here."""
        raise InputError(
            "lambda rules that simulate noise need every observation in memory; for shards use "
            "'self-normalised', 'hkz', 'chernoff', 'dimension-free' or 'paper'"
        )

    def group_scores(self) -> Array:
        """(p,) squared norms of every group's correlation with the observations."""
        return self.summary.scores * self.weight_scale**2

    def least_squares(self, active: Index) -> LeastSquares:
        """Sums over the least-squares fits of every task, for `metakel.learn.problem`."""
        fit: LeastSquares = self.ask("least_squares", (active,), "refit")
        return fit

    # -- asking shards -----------------------------------------------------------------------

    @cached_property
    def summary(self) -> Summary:
        """What is known before any weight; reads every shard that was not read yet.

        A shard that cannot be read does not undo the others: after its file is repaired (or left
        out), only that shard is read.
        """
        unread = [k for k in self.shards if k not in self._summaries]
        answers = self._call("summarize", unread, (), "reading")
        found = zip(unread, answers, strict=True)
        self._summaries |= {k: a for k, a in found if not isinstance(a, ShardError)}
        raise_errors(answers)
        return total(self._summaries[k] for k in self.shards)

    def extend_work(self, groups: Index) -> Index:
        """Add groups to the working set of the shards; returns the place of each in it."""
        new = groups[~np.isin(groups, self.work)]
        if new.size:
            self.work = np.concatenate([self.work, new])
        order = np.argsort(self.work)
        return order[np.searchsorted(self.work, groups, sorter=order)]

    @property
    def stage(self) -> str:
        """Name of the current round, for `Progress`."""
        return f"round {self.rounds + 1}"

    def evaluate(self, point: WeightPoint) -> Evaluation:
        """Value, gradient and Hessian; asks only shards whose last answer was for another point."""
        waiting = [
            k for k in self.shards
            if k not in self._evaluations or not self._evaluations[k][0].same(point)
        ]  # fmt: skip
        answers = self._call("evaluate", waiting, (point,), self.stage)
        raise_errors(answers)
        for k, found in zip(waiting, answers, strict=True):
            self._evaluations[k] = point, found
        return total(self._evaluations[k][1] for k in self.shards)

    def certify(self, point: WeightPoint) -> ShardCertificate:
        """What the duality gap needs, from the points themselves where no bound suffices.

        A shard that was certified at a point nearby is not read again: its residuals have moved by
        a known distance, which bounds the scores of groups outside the working set,
        ||Phi_j' r|| <= ||Phi_j' r_0|| + ||Phi_j|| ||r - r_0||. Everything else is exact.
        """
        found = self._bounds(point)
        waiting = [k for k in self.shards if k not in found]
        answers = self._call("certify", waiting, (point,), "certificate")
        raise_errors(answers)
        for k, answer in zip(waiting, answers, strict=True):
            self._certificates[k] = point, answer
            found[k] = answer
        return total(found[k] for k in self.shards)

    def _bounds(self, point: WeightPoint) -> dict[int, ShardCertificate]:
        """Certificates of the shards whose last one is near enough."""
        bounds = {}
        for certified, shards in self._last_certified():
            if not np.isin(certified.groups, point.work).all():
                continue
            places = np.array([np.flatnonzero(point.work == j)[0] for j in certified.groups])
            args = (point, WeightPoint(point.work, places, certified.w))
            answers = self._call("recertify", shards, args, "certificate")
            raise_errors(answers)
            for k, local in zip(shards, answers, strict=True):
                bound = self._bound(k, point, local)
                if bound is not None:
                    bounds[k] = bound
        return bounds

    def _last_certified(self) -> list[tuple[WeightPoint, list[int]]]:
        """Points of the last certificates, and the shards of each."""
        found: list[tuple[WeightPoint, list[int]]] = []
        for k in self.shards:
            if k in self._certificates:
                point = self._certificates[k][0]
                shards = next((shards for other, shards in found if other.same(point)), None)
                if shards is None:
                    found.append((point, shards := []))
                shards.append(k)
        return found

    def _bound(
        self, k: int, point: WeightPoint, local: LocalCertificate
    ) -> ShardCertificate | None:
        """The certificate with bounds for scores outside the working set, None if they are far."""
        last = np.sqrt(self._certificates[k][1].scores)
        increase = np.sqrt(self._summaries[k].gram_top * local.distance)
        if not (increase <= NEAR * last).all():
            return None
        scores = (last + increase) ** 2
        scores[point.work] = local.certificate.scores
        return replace(local.certificate, scores=scores)

    def ask(self, method: str, args: tuple[Any, ...], stage: str) -> Any:
        """The sum of the answers of all shards."""
        answers = self._call(method, self.shards, args, stage)
        raise_errors(answers)
        return total(answers)

    def save(self, point: WeightPoint) -> None:
        """Save a point that the solver has accepted, so that learning can continue from it."""
        if self._checkpoint is not None:
            self._checkpoint.write(point.groups, point.w)

    def _call(self, method: str, shards: list[int], args: tuple[Any, ...], stage: str) -> list[Any]:
        if not shards:
            return []
        report = reporting(self._progress, stage, len(shards))
        return self.executor.call(method, shards, args, report)

    def close(self) -> None:
        """Release the shards, and a cluster that was started for them."""
        self.executor.close()


def raise_errors(answers: list[Any]) -> None:
    """Those of all shards together, with their files and rows."""
    errors = [answer for answer in answers if isinstance(answer, ShardError)]
    if errors:
        others = len(answers) - len(errors)
        kept = "shard answered and is kept" if others == 1 else "shards answered and are kept"
        raise ShardError("\n".join([*map(str, errors), f"({others} other {kept})"]))
