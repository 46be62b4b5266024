"""Which groups are worked on: Newton's method inside a growing set, a certificate around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel.errors import InputError
from metakel.grouplasso.evaluate import Evaluator, Residual
from metakel.grouplasso.newton import Iterate, dual_value, evaluate, minimise

Array = NDArray[np.float64]
Progress = Callable[[int, float], None]
FIRST = 10  # groups to begin with
# Where lambda is this far below lambda_max hardly any group stays out, so more enter at once.
TINY = 1e-4
ROUNDS = 200


@dataclass(frozen=True)
class End:
    """Where the optimisation stopped."""

    residual: Residual
    objective: float
    gap: float
    iterations: int


def optimise(
    evaluator: Evaluator,
    lam: Array,
    x: Array | None,
    *,
    tol: float,
    max_iterations: int,
    progress: Progress | None,
) -> End:
    """Minimise over all groups, from x (p,) or from scratch, to a gap of tol times the energy."""
    target = tol * evaluator.energy
    state = np.zeros(evaluator.work.size) if x is None else x[evaluator.work]
    if x is not None and (outside := _outside(evaluator, x > 0)).size:
        evaluator.extend(outside)
        state = x[evaluator.work]
    fresh = x is None
    taken = 0
    if not fresh:
        # A good start is polished before anything is read from the raw data.
        now = evaluate(evaluator, lam[evaluator.work], state)
        now = minimise(evaluator, now, tol=0.3 * target, max_iterations=max_iterations)
        state, taken = now.x, now.iterations
    end = _certify(evaluator, lam, taken)
    if not np.isfinite(end.residual.scores).all():
        j = int(np.flatnonzero(~np.isfinite(end.residual.scores))[0])
        raise InputError(f"the features of group {j} hold nan or infinite numbers")
    first = True
    for round_ in range(ROUNDS):
        if end.gap <= target or end.iterations >= max_iterations:
            break
        ratio = np.sqrt(end.residual.scores) / lam
        candidates = _outside(evaluator, ratio > 1)
        room = max(FIRST if first else FIRST // 2, int(np.count_nonzero(state)))
        if first and float(ratio.max()) * TINY > 1:
            room *= 4
        new = np.sort(candidates[np.argsort(-ratio[candidates], kind="stable")][:room])
        if new.size:
            evaluator.extend(new)
            state = np.concatenate([state, np.zeros(new.size)])
        if fresh:
            now = evaluate(evaluator, lam[evaluator.work], evaluator.start(lam[evaluator.work]))
        else:
            now = Iterate(
                state, lam[evaluator.work], end.residual.inner, end.residual.scores[evaluator.work]
            )
        # Far from the end the working set will change anyway, so a rough answer does.
        rough = candidates.size > 0 and evaluator.rough
        before, fresh, first = end, False, False
        found = minimise(
            evaluator,
            now,
            tol=max(0.3 * target, 0.03 * end.gap if rough else 0.0),
            max_iterations=max_iterations - end.iterations,
        )
        state = found.x
        end = _certify(evaluator, lam, end.iterations + found.iterations)
        if progress is not None:
            progress(round_, end.gap / evaluator.energy)
        complete = not new.size and not _outside(evaluator, end.residual.scores > lam * lam).size
        if complete and not end.gap < 0.5 * before.gap:
            break  # rounding leaves nothing to gain
    return end


def _outside(evaluator: Evaluator, chosen: NDArray[np.bool]) -> NDArray[np.intp]:
    outside = chosen.copy()
    outside[evaluator.work] = False
    return np.flatnonzero(outside)


def _certify(evaluator: Evaluator, lam: Array, iterations: int) -> End:
    residual = evaluator.residual()
    primal = residual.square + float(np.dot(lam, residual.norms))
    dual = dual_value(residual.inner, residual.square, np.sqrt(residual.scores), lam)
    return End(residual, primal, primal - dual, iterations)
