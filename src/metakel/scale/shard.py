"""A shard: tasks that stay where they are and answer with sums.

Every answer depends on its arguments alone, so a shard that is lost with its worker can be made
again anywhere from its `Recipe`. What it keeps between calls only saves work, and is bounded by
``memory``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso import Problem
from metakel.grouplasso.evaluator import Evaluator
from metakel.grouplasso.solve import evaluator_of
from metakel.kernels import KernelDictionary
from metakel.learn.refit import LeastSquares, least_squares
from metakel.scale.blocks import Block, Loss, compressed
from metakel.scale.parts import (
    Index,
    Part,
    Ready,
    Source,
    divide,
    nbytes,
    statistics_bytes,
)
from metakel.scale.spectrum import BlockSpectrum, spectrum_of, summary
from metakel.scale.sums import Certificate, Move, Round, Summary, total


@dataclass(frozen=True, eq=False)
class Recipe:
    """Everything needed to make a shard; ``memory`` in bytes."""

    sources: tuple[Source, ...]
    base: KernelDictionary
    loss: Loss
    memory: int


class Shard:
    """Sums over the tasks of some sources."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._parts: list[Part] | None = None
        self._held = 0  # bytes of points, whole statistics and eigenvalues
        self._spectra: list[BlockSpectrum] | None = None
        self._work: Index = np.empty(0, np.intp)
        self._chosen = recipe.base

    # -- reading -----------------------------------------------------------------------------

    def load(self) -> Summary:
        """Read everything once: what is known before any weight."""
        self._held, self._spectra = 0, []
        grids: dict[bytes, Block] = {}
        parts: list[Part] = []
        summaries: list[Summary] = []
        for source in self.recipe.sources:
            part = Part(source)
            blocks = divide(part, grids, self.recipe.base)
            if blocks:
                parts.append(part)
                summaries += self._summaries(part, blocks)
        for block in grids.values():
            parts.append(Part(None, [block]))
            summaries += self._summaries(parts[-1], [block])
        self._parts = parts
        return total(summaries)

    def _summaries(self, part: Part, blocks: list[Block]) -> Iterator[Summary]:
        recipe = self.recipe
        points = sum(block.nbytes for block in blocks)
        statistics = sum(statistics_bytes(block, recipe.base) for block in blocks)
        held = part.source is None or part.source.held
        if held or self._held + min(points, statistics) <= recipe.memory // 2:
            if part.points is None and statistics < points:
                part.whole = []
            else:
                part.points = blocks
        self._held += points if part.points is not None else 0
        for block in blocks:
            problem = part.problem(block, recipe.base, recipe.loss)
            spectrum = spectrum_of(problem, block.count / len(block.y))
            self._keep_spectrum(spectrum)
            if part.whole is not None:
                part.whole.append(compressed(problem, exact=True))
                self._held += nbytes(part.whole[-1])
            yield summary(problem, spectrum)

    def _keep_spectrum(self, spectrum: BlockSpectrum) -> None:
        if self._spectra is None:
            return
        self._spectra.append(spectrum)
        self._held += spectrum.nbytes
        kept = sum(one.nbytes for one in self._spectra)
        if kept > self.recipe.memory // 4:
            self._held, self._spectra = self._held - kept, None

    @property
    def _loaded(self) -> list[Part]:
        if self._parts is None:
            self.load()
        assert self._parts is not None
        return self._parts

    def _problems(self) -> Iterator[tuple[Problem, float]]:
        for part in self._loaded:
            yield from part.problems(self.recipe.base, self.recipe.loss)

    def _compact(self, work: Index, active: Index) -> Iterator[Ready]:
        """Problems of the groups of ``work`` only, ready to be asked; kept while there is room.

        Where there is room for the statistics only, Gram matrices are made again every time.
        """
        parts = self._loaded
        if not np.array_equal(work, self._work):
            self._work, self._chosen = work, self.recipe.base.select(work.tolist())
            for part in parts:
                part.drop()
        share = active.size / work.size
        room = self._room(share)
        for part in parts:
            if part.ready is not None:
                yield from part.ready
            elif part.compact is not None:
                yield from map(Ready, part.compact)
            else:
                yield from self._compacted(part, room, share)
                room -= part.kept(share)

    def _room(self, share: float) -> int:
        """Bytes left; evaluators grow with the share of active groups, so some may have to go."""
        parts = self._loaded
        room = self.recipe.memory - self._held - sum(part.kept(share) for part in parts)
        for part in reversed(parts):
            if room < 0 and part.ready is not None:
                room += part.kept(share)
                part.compact, part.ready = [ready.problem for ready in part.ready], None
                room -= part.kept(share)
            if room < 0 and part.compact is not None:
                room += part.kept(share)
                part.drop()
        return room

    def _compacted(self, part: Part, room: int, share: float) -> Iterator[Ready]:
        small: list[Problem] = []
        ready: list[Ready] = []
        size = full = 0
        for problem in part.restricted(
            self._chosen, self.recipe.base, self._work, self.recipe.loss
        ):
            made = Ready(problem)
            size, full = size + nbytes(problem), full + made.nbytes(share)
            # What cannot be kept in the end is let go at once.
            small = [*small, problem] if size <= room else []
            ready = [*ready, made] if full <= room else []
            yield made
        if full <= room:
            part.ready = ready
        elif size <= room:
            part.compact = small

    # -- sums --------------------------------------------------------------------------------

    def at(self, work: Index, active: Index, w: Array) -> Round:
        """One point: weights w > 0 on ``active``, places in ``work``."""
        out = []
        for ready in self._compact(work, active):
            unit = ready.unit
            value, scores = ready.at(active, w)
            H = unit**3 * ready.evaluator.hessian(active)
            out.append(Round(2 * unit * value, unit**2 * scores, H))
        return total(out)

    def hessian(self, work: Index, active: Index, w: Array, groups: Index) -> Array:
        """Hessian over ``groups``, places in ``work`` that contain the active ones."""
        out = np.zeros((groups.size, groups.size))
        for ready in self._compact(work, active):
            ready.at(active, w)
            out += ready.unit**3 * ready.evaluator.hessian(groups)
        return out

    def certificate(self, groups: Index, w: Array) -> Certificate:
        """From the data themselves, for weights w > 0 on ``groups``."""
        out = []
        for problem, _ in self._problems():
            evaluator = evaluator_of(problem)
            evaluator.extend(groups)
            evaluator.at(np.arange(groups.size), problem.total / 2 * w)
            out.append(_certificate(evaluator, problem.total / 2, w))
        return total(out)

    def moved(self, work: Index, active: Index, w: Array, active_0: Index, w_0: Array) -> Move:
        """The certificate as far as the working set goes, and the way from another point."""
        out = []
        for ready in self._compact(work, active):
            ready.at(active, w)
            near = _certificate(ready.evaluator, ready.unit, w)
            here = _fitted(ready)
            ready.at(active_0, w_0)
            steps = zip(here, _fitted(ready), strict=True)
            out.append(Move(near, sum(float(np.sum((a - b) ** 2)) for a, b in steps)))
        return total(out)

    def log_det(self, rho: Array) -> Array:
        """(p,) sums of log(1 + v / rho_j) over the eigenvalues v of group j."""
        return total([spectrum.log_det(rho) for spectrum in self._each_spectrum()])

    def tilted(self, top: Array, z: Array) -> Array:
        """(2, p) sums that the Chernoff bound minimises over z."""
        return total([spectrum.tilted(top, z) for spectrum in self._each_spectrum()])

    def _each_spectrum(self) -> Iterator[BlockSpectrum]:
        _ = self._loaded
        if self._spectra is not None:
            yield from self._spectra
        else:
            for problem, repeats in self._problems():
                yield spectrum_of(problem, repeats)

    def least_squares(self, groups: Index) -> LeastSquares:
        """Sums over every task's least-squares fit on these groups."""
        return total(
            [
                least_squares(problem, groups).repeated(repeats)
                for problem, repeats in self._problems()
            ]
        )


def _fitted(ready: Ready) -> list[Array]:
    """What the tasks are fitted by, or what that leaves, where an evaluator stands."""
    beta = ready.evaluator.beta()
    if beta is None:
        ready.evaluator.residual()
        return ready.evaluator.residuals()
    (batch,) = ready.problem.batches
    assert batch.Phi is not None
    return [np.matmul(beta[:, None, :], batch.Phi)[:, 0, :]]


def _certificate(evaluator: Evaluator, unit: float, w: Array) -> Certificate:
    """Where the evaluator is, at weights w in units that do not know N."""
    found = evaluator.residual()
    groups = evaluator.work[evaluator.active]
    norms = found.norms[groups]
    off = _off(evaluator, found.scores[groups], norms, unit * w)
    return Certificate(
        2 * unit * found.square,
        2 * unit * found.inner,
        unit**2 * found.scores,
        norms**2,
        (unit * off) ** 2,
    )


def _off(evaluator: Evaluator, scores: Array, norms: Array, x: Array) -> Array:
    """||z - beta / x|| of the active groups."""
    lam = np.zeros(evaluator.p)
    lam[evaluator.work[evaluator.active]] = norms / x
    with np.errstate(invalid="ignore", divide="ignore"):
        off = evaluator.misfit(lam)
    return np.where(norms > 0, off, np.sqrt(scores))
