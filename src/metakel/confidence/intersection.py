"""Running intersection over time: the sets hold at all times together, so any of them may be used.

It is exact on a finite domain that is fixed in advance. At arbitrary points all past sets would
have to be kept, so the intersection is over a few of them; any choice of times is valid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from metakel._arrays import Array
from metakel.confidence.set import ConfidenceSet, blocks

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Intersection:
    """What is kept of earlier sets.

    Parameters
    ----------
    points : (n, d0) array or None
        The finite domain.
    remember : int
        At most how many past sets are kept.
    running : pair of (n,) arrays or None
        Largest lower and smallest upper bound so far at ``points``.
    past : tuple of (time, is_milestone, ConfidenceSet)
        The set of the previous call, and those of the first calls to reach a power of 2.
    """

    points: Array | None
    remember: int
    running: tuple[Array, Array] | None = None
    past: tuple[tuple[int, bool, ConfidenceSet], ...] = ()

    def keeping(self, time: int, before: int, past: ConfidenceSet) -> Intersection:
        """With the set of ``time``, when the call before it had ended at ``before``."""
        milestone = time.bit_length() > before.bit_length()
        entries = (*(entry for entry in self.past if entry[1]), (time, milestone, past))
        return replace(self, past=entries[-self.remember :] if self.remember else ())

    def forgetting(self) -> Intersection:
        """Without earlier sets, because an assumption behind them failed."""
        return replace(self, running=None, past=())

    def narrowed(self, now: ConfidenceSet) -> tuple[Intersection, bool]:
        """With the present set at ``points``; False if no value is left at one of them."""
        if self.points is None:
            return self, True
        lower, upper = now.interval(self.points, refine=False)
        if self.running is not None:
            lower = np.maximum(lower, self.running[0])
            upper = np.minimum(upper, self.running[1])
        agreed = not (lower > upper + ROUNDING * (1 + np.abs(lower) + np.abs(upper))).any()
        running = np.minimum(lower, upper), np.maximum(lower, upper)
        return replace(self, running=running), agreed

    def interval(self, Z: Array, now: ConfidenceSet, *, refine: bool) -> tuple[Array, Array]:
        """Bounds (n,) at any points ``Z``: the present set and the kept ones, of one kernel."""
        sets = [*(entry[2] for entry in self.past), now]
        lower, upper = np.empty((2, len(Z)))
        for block in blocks(len(Z)):
            Phi = now.kernel.features(Z[block]) if now.spectrum.X is None else None
            bounds = np.array(
                [s.interval_from(*s.spectrum.project(Z[block], Phi), refine=refine) for s in sets]
            )  # (sets, 2, block)
            lower[block], upper[block] = bounds[:, 0].max(axis=0), bounds[:, 1].min(axis=0)
            # Where sets of different times are disjoint, the present one counts.
            crossed = lower[block] > upper[block]
            lower[block][crossed] = bounds[-1, 0, crossed]
            upper[block][crossed] = bounds[-1, 1, crossed]
        return lower, upper
