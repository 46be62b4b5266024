"""A shard: tasks that stay where they are and answer with sums.

They are read once, then kept as far as memory allows. In order of priority the memory holds

1. the points, or the statistics of all columns where those are smaller (half of it),
2. eigenvalues, for the lambda rules (a quarter),
3. statistics of the working set,
4. evaluators on top of these, with Gram matrices and factorisations.

Whatever does not fit is read and computed again when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError, ShardError
from metakel.grouplasso import Problem
from metakel.grouplasso.newton import Evaluator
from metakel.grouplasso.problem import group_energies
from metakel.grouplasso.solve import evaluator_of
from metakel.kernels import KernelDictionary
from metakel.learn.problem import LeastSquares, Loss, least_squares
from metakel.learn.rules import tilted
from metakel.scale.blocks import (
    TaskBlock,
    TaskSource,
    compressed,
    nbytes,
    restricted,
    split_by_inputs,
    stack,
)
from metakel.scale.evaluator import (
    Evaluation,
    Index,
    LocalCertificate,
    ShardCertificate,
    Summary,
    TaskSums,
    WeightPoint,
    total,
)


class Shard(TaskSums):
    """Sums over the tasks of some sources, which are read when they are first asked about.

    Until then a shard is small, so it can be sent to another process. What it keeps between calls
    only saves work: if a shard is lost with its process, a new one gives the same answers.

    Parameters
    ----------
    sources : sequence of TaskSource
    base : KernelDictionary
    loss : "points" or "tasks"
    memory : int
        Bytes that may be kept between calls.
    """

    def __init__(
        self, sources: Sequence[TaskSource], base: KernelDictionary, loss: Loss, memory: int
    ) -> None:
        self._store = TaskStore(sources, base, loss, memory)

    def __str__(self) -> str:
        first, *others = map(str, self._store.sources)
        return f"{first}, and {len(others)} more" if others else first

    def summarize(self) -> Summary:
        return total(_summary(problem, spectrum) for problem, spectrum in self._store.load())

    def evaluate(self, point: WeightPoint) -> Evaluation:
        return total(_evaluation(cached, point) for cached in self._store.evaluators(point))

    def hessian(self, point: WeightPoint, groups: Index) -> Array:
        out = np.zeros((groups.size, groups.size))
        for cached in self._store.evaluators(point):
            cached.at(point)
            out += cached.unit**3 * cached.evaluator.hessian(groups)
        return out

    def certify(self, point: WeightPoint) -> ShardCertificate:
        return total(_certified(problem, point) for problem, _ in self._store.problems())

    def recertify(self, point: WeightPoint, previous: WeightPoint) -> LocalCertificate:
        return total(
            _recertified(cached, point, previous) for cached in self._store.evaluators(point)
        )

    def log_det(self, rho: Array) -> Array:
        return total(spectrum.log_det(rho) for spectrum in self._store.spectra())

    def tilted(self, top: Array, z: Array) -> Array:
        return total(spectrum.tilted(top, z) for spectrum in self._store.spectra())

    def least_squares(self, groups: Index) -> LeastSquares:
        return total(
            least_squares(problem, groups).repeated(multiplicity)
            for problem, multiplicity in self._store.problems()
        )


def _summary(problem: Problem, spectrum: BlockSpectrum) -> Summary:
    scores = sum(group_energies(problem, batch, batch.y) for batch in problem.batches)
    assert isinstance(scores, np.ndarray)
    if not np.isfinite(scores).all():
        j = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ShardError(f"the features of group {j} hold nan or infinite numbers")
    values, times = spectrum.values, spectrum.multiplicity
    weights = problem.task_weights[: len(values[0])]
    return Summary(
        energy=sum(float(np.vdot(batch.y, batch.y)) for batch in problem.batches),
        scores=scores,
        gram_trace=times * np.array([(v.sum(axis=1) / weights).sum() for v in values]),
        counts=times * np.array([float(v.size) for v in values]),
        top=np.array([v.max(initial=0.0) for v in values]),
        gram_top=np.array([(v.max(axis=1) / weights).max(initial=0.0) for v in values]),
        trace=times * np.array([v.sum() for v in values]),
        squares=times * np.array([np.vdot(v, v) for v in values]),
    )


def _evaluation(cached: CachedEvaluator, point: WeightPoint) -> Evaluation:
    unit = cached.unit
    value, scores = cached.at(point)
    hessian = cached.evaluator.hessian(point.active)
    return Evaluation(2 * unit * value, unit**2 * scores, unit**3 * hessian)


def _certified(problem: Problem, point: WeightPoint) -> ShardCertificate:
    evaluator, unit = evaluator_of(problem), problem.total / 2
    evaluator.extend(point.groups)
    evaluator.at(np.arange(point.groups.size), unit * point.w)
    return _certificate(evaluator, unit, point.w)


def _recertified(
    cached: CachedEvaluator, point: WeightPoint, previous: WeightPoint
) -> LocalCertificate:
    cached.at(point)
    certificate = _certificate(cached.evaluator, cached.unit, point.w)
    here = _fits(cached)
    cached.at(previous)
    moves = zip(here, _fits(cached), strict=True)
    return LocalCertificate(certificate, sum(float(np.sum((a - b) ** 2)) for a, b in moves))


def _fits(cached: CachedEvaluator) -> list[Array]:
    """Fitted values of the tasks, or their residuals: both move by the same distance."""
    beta = cached.evaluator.beta()
    if beta is None:
        return list(cached.evaluator.residual().rows)
    (batch,) = cached.problem.batches
    assert batch.Phi is not None
    return [np.matmul(beta[:, None, :], batch.Phi)[:, 0, :]]


def _certificate(evaluator: Evaluator, unit: float, w: Array) -> ShardCertificate:
    """Where ``evaluator.at`` was last called, in units that know no N."""
    found = evaluator.residual()
    groups = evaluator.work[evaluator.active]
    norms = found.norms[groups]
    misfit = _misfit(evaluator, found.scores[groups], norms, unit * w)
    return ShardCertificate(
        2 * unit * found.square,
        2 * unit * found.inner,
        unit**2 * found.scores,
        norms**2,
        (unit * misfit) ** 2,
    )


def _misfit(evaluator: Evaluator, scores: Array, norms: Array, x: Array) -> Array:
    """||z - beta / x|| of the active groups."""
    lam = np.zeros(evaluator.p)
    lam[evaluator.work[evaluator.active]] = norms / x
    with np.errstate(invalid="ignore", divide="ignore"):
        misfit = evaluator.misfit(lam)
    return np.where(norms > 0, misfit, np.sqrt(scores))


@dataclass(frozen=True, eq=False)
class BlockSpectrum:
    """Eigenvalues of one block, (k, r_j) for group j; each counts ``multiplicity`` times."""

    values: list[Array]
    multiplicity: float

    @classmethod
    def of(cls, problem: Problem, multiplicity: float) -> BlockSpectrum:
        """Eigenvalues times the weights of the loss (`Problem.spectra`); shared inputs count once.

        ``multiplicity`` is the number of tasks for which each task of the block stands.
        """
        (batch, *_) = problem.batches
        if batch.Phi is None or set(problem.dims) != {1}:
            values = problem.spectra()
        else:
            squares = np.einsum("sdn,sdn->sd", batch.Phi, batch.Phi)
            weighted = np.ascontiguousarray((problem.task_weights[:, None] * squares).T)
            values = list(weighted[:, :, None])
        if multiplicity != 1.0:  # the k tasks have one Gram matrix
            return cls([v[:1] for v in values], multiplicity * problem.m)
        return cls(values, 1.0)

    @property
    def nbytes(self) -> int:
        return sum(v.nbytes for v in self.values)

    def log_det(self, rho: Array) -> Array:
        """(p,) sums of log(1 + v / rho_j)."""
        sums = [np.log1p(v / r).sum() for v, r in zip(self.values, rho, strict=True)]
        return self.multiplicity * np.array(sums)

    def tilted(self, top: Array, z: Array) -> Array:
        """(2, p) sums that the Chernoff bound minimises over z."""
        sums = [
            [part.sum() for part in tilted(v / t, each)]
            for v, t, each in zip(self.values, top, z, strict=True)
        ]
        return self.multiplicity * np.array(sums).T


class CachedEvaluator:
    """The evaluator of a problem with all of its groups in the working set.

    It remembers the point of the last call. ``unit`` turns weights w into x = unit w.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.unit = problem.total / 2
        self.evaluator: Evaluator = evaluator_of(problem)
        self.evaluator.extend(np.arange(problem.p))
        self._at: tuple[Index, Array] | None = None
        self._found = 0.0, np.empty(0)

    def at(self, point: WeightPoint) -> tuple[float, Array]:
        """Value and scores at a point, computed unless it is the point of the last call."""
        active, w = point.active, point.w
        last = self._at
        if last is None or not (np.array_equal(last[0], active) and np.array_equal(last[1], w)):
            self._found = self.evaluator.at(active, self.unit * w)
            self._at = active, w
        return self._found

    def nbytes(self, active_share: float) -> int:
        """Size with Gram matrices of all groups, of active ones against all, and inverses."""
        share = active_share
        factor = 3.0 if self.problem.kernel_mode else 2.3 + share + 2 * share**2
        return int(factor * nbytes(self.problem))


class Part:
    """The tasks of one source whose inputs few others have, or tasks on the same inputs.

    ``points`` or ``statistics`` of all columns are kept, or none of them, and the source is read
    again. Of the working set ``evaluators`` or ``small`` problems are kept, or none of them.
    """

    def __init__(self, source: TaskSource | None) -> None:
        self.source = source  # None for tasks on the same inputs, which may have several sources
        self.tasks: Index = np.empty(0, np.intp)  # which tasks of the source
        self.points: list[TaskBlock] | None = None
        self.statistics: list[Problem] | None = None
        self.small: list[Problem] | None = None
        self.evaluators: list[CachedEvaluator] | None = None

    def drop_working_set(self) -> None:
        self.small = self.evaluators = None

    def working_set_nbytes(self, active_share: float) -> int:
        """Bytes kept of the working set, of whose groups this share is active."""
        if self.evaluators is not None:
            return sum(evaluator.nbytes(active_share) for evaluator in self.evaluators)
        return sum(map(nbytes, self.small or []))

    def blocks(self, base: KernelDictionary) -> list[TaskBlock]:
        """The points, as kept or read again."""
        if self.points is not None:
            return self.points
        assert self.source is not None
        return stack(self.source.read(), self.tasks, base)

    def problem(self, block: TaskBlock, base: KernelDictionary, loss: Loss) -> Problem:
        """Eq. 8 for a block of this part; an error names the source."""
        try:
            return block.problem(base, loss)
        except InputError as error:
            raise ShardError(f"{self.source or 'tasks on shared inputs'}: {error}") from None


class TaskStore:
    """Problems over the tasks of some sources, kept within ``memory`` bytes."""

    def __init__(
        self, sources: Sequence[TaskSource], base: KernelDictionary, loss: Loss, memory: int
    ) -> None:
        self.sources, self.base, self.loss, self.memory = sources, base, loss, memory
        self._parts: list[Part] | None = None
        self._spectra: list[BlockSpectrum] | None = None
        self._held = 0  # bytes of points, statistics of all columns and eigenvalues
        self._work: Index = np.empty(0, np.intp)
        self._selected = base  # the kernels of the working set

    # -- all groups --------------------------------------------------------------------------

    def load(self) -> Iterator[tuple[Problem, BlockSpectrum]]:
        """Read everything once, block by block."""
        self._held, self._spectra = 0, []
        grids: dict[bytes, TaskBlock] = {}
        parts: list[Part] = []
        for source in self.sources:
            part = Part(source)
            rows = source.read()
            part.tasks = split_by_inputs(rows, grids)
            blocks = stack(rows, part.tasks, self.base)
            if blocks:
                parts.append(part)
                yield from self._load_part(part, blocks)
        for block in grids.values():
            part = Part(None)
            part.points = [block]
            parts.append(part)
            yield from self._load_part(part, [block])
        self._parts = parts

    def _load_part(
        self, part: Part, blocks: list[TaskBlock]
    ) -> Iterator[tuple[Problem, BlockSpectrum]]:
        points = sum(block.nbytes for block in blocks)
        statistics = sum(block.statistics_nbytes(self.base) for block in blocks)
        in_memory = part.source is None or part.source.in_memory
        if in_memory or self._held + min(points, statistics) <= self.memory // 2:
            if part.points is None and statistics < points:
                part.statistics = []
            else:
                part.points = blocks
        self._held += points if part.points is not None else 0
        for block in blocks:
            problem = part.problem(block, self.base, self.loss)
            spectrum = BlockSpectrum.of(problem, block.multiplicity)
            self._keep_spectrum(spectrum)
            if part.statistics is not None:
                part.statistics.append(compressed(problem, exact=True))
                self._held += nbytes(part.statistics[-1])
            yield problem, spectrum

    def _keep_spectrum(self, spectrum: BlockSpectrum) -> None:
        if self._spectra is None:
            return
        self._spectra.append(spectrum)
        self._held += spectrum.nbytes
        kept = sum(one.nbytes for one in self._spectra)
        if kept > self.memory // 4:
            self._held, self._spectra = self._held - kept, None

    @property
    def parts(self) -> list[Part]:
        """The tasks, read if they were not yet."""
        if self._parts is None:
            for _ in self.load():
                pass
        assert self._parts is not None
        return self._parts

    def problems(self) -> Iterator[tuple[Problem, float]]:
        """Every block with all groups, and the number of tasks for which each of its own stands."""
        for part in self.parts:
            if part.statistics is not None:
                yield from ((problem, 1.0) for problem in part.statistics)
            else:
                for block in part.blocks(self.base):
                    yield part.problem(block, self.base, self.loss), block.multiplicity

    def spectra(self) -> Iterator[BlockSpectrum]:
        """Eigenvalues of every block."""
        _ = self.parts
        if self._spectra is not None:
            yield from self._spectra
        else:
            yield from (BlockSpectrum.of(*found) for found in self.problems())

    # -- the working set ---------------------------------------------------------------------

    def evaluators(self, point: WeightPoint) -> Iterator[CachedEvaluator]:
        """Evaluators of the groups of ``point.work`` only, kept while there is room.

        Where there is room for the statistics only, Gram matrices are made again every time.
        """
        parts = self.parts
        if not np.array_equal(point.work, self._work):
            self._work, self._selected = point.work, self.base.select(point.work.tolist())
            for part in parts:
                part.drop_working_set()
        share = point.active.size / point.work.size
        room = self._make_room(share)
        for part in parts:
            if part.evaluators is not None:
                yield from part.evaluators
            elif part.small is not None:
                yield from map(CachedEvaluator, part.small)
            else:
                yield from self._restrict(part, room, share)
                room -= part.working_set_nbytes(share)

    def _make_room(self, share: float) -> int:
        """Bytes left; evaluators grow with the share of active groups, so some may have to go."""
        kept = sum(part.working_set_nbytes(share) for part in self.parts)
        room = self.memory - self._held - kept
        for part in reversed(self.parts):
            if room < 0 and part.evaluators is not None:
                room += part.working_set_nbytes(share)
                part.small = [evaluator.problem for evaluator in part.evaluators]
                part.evaluators = None
                room -= part.working_set_nbytes(share)
            if room < 0 and part.small is not None:
                room += part.working_set_nbytes(share)
                part.drop_working_set()
        return room

    def _restrict(self, part: Part, room: int, share: float) -> Iterator[CachedEvaluator]:
        small: list[Problem] = []
        evaluators: list[CachedEvaluator] = []
        small_nbytes = full_nbytes = 0
        for problem in self._small_problems(part):
            made = CachedEvaluator(problem)
            small_nbytes += nbytes(problem)
            full_nbytes += made.nbytes(share)
            # What cannot be kept in the end is let go at once.
            small = [*small, problem] if small_nbytes <= room else []
            evaluators = [*evaluators, made] if full_nbytes <= room else []
            yield made
        if full_nbytes <= room:
            part.evaluators = evaluators
        elif small_nbytes <= room:
            part.small = small

    def _small_problems(self, part: Part) -> Iterator[Problem]:
        """Every block of a part with the groups of the working set only, and as few rows as do."""
        if part.statistics is not None:
            for problem in part.statistics:
                yield compressed(restricted(problem, self._work), exact=False)
        else:
            for block in part.blocks(self.base):
                problem = part.problem(block, self._selected, self.loss)
                yield compressed(problem, exact=False)
