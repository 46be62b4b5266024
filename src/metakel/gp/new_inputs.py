r"""Learned processes on a task that has inputs which no past task had.

With x the inputs that the past knows and u the new ones, the learned mean m(x) ignores u, and

    k((x, u), (z, v)) = k(x, z) + NEW_VARIANCE c(u, v) ((1 - INTERACTION) + INTERACTION c0(x, z)).

c is a Matern-5/2 kernel set by hand, as of a cold start, and c0 the correlation that past tasks
share. So the new inputs may have an effect of their own, and one that depends on the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array
from metakel.gp.processes import LearnedProcess, PointCache, PointDerivatives
from metakel.kernels.stationary import Matern52ARD

# In units of the variance of a task: new inputs are taken to matter less than the known ones do
# together, as they were not worth tuning before.
NEW_VARIANCE = 0.3
INTERACTION = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class ExtendedProcess(LearnedProcess):
    """A `LearnedProcess` with more inputs than its past.

    In a `PointCache`, ``scaled`` holds the known inputs and then the new ones, and ``norms``
    (n, 2) those of both.

    Parameters
    ----------
    new : Matern52ARD
        Kernel of the new inputs.
    """

    new: Matern52ARD

    @property
    def _d(self) -> int:
        """How many inputs the past knows."""
        return len(self.basis.shared.lengthscales)

    def mean(self, X: Array) -> Array:
        return super().mean(X[:, : self._d])

    def prepare(self, Z: Array) -> PointCache:
        past = super().prepare(Z[:, : self._d])
        scaled, norms = self.new.scale(Z[:, self._d :])
        return PointCache(
            np.concatenate([past.scaled, scaled], axis=1),
            np.column_stack([past.norms, norms]),
            past.phi,
            past.mean,
            past.diag + NEW_VARIANCE * self.new.signal,
        )

    def gram(self, left: PointCache, right: PointCache) -> Array:
        K0, C = self._shared(left, right), self._new(left, right)
        C *= self._interaction(K0)
        C += self.residual_weight * K0
        C += left.phi @ right.phi.T
        return C

    def derivatives(self, points: PointCache, Z: Array) -> PointDerivatives:
        past = super().derivatives(self._past(points), Z[:, : self._d])
        more = Z.shape[1] - self._d
        return PointDerivatives(
            np.pad(past.phi, ((0, 0), (0, 0), (0, more))),
            np.pad(past.mean, ((0, 0), (0, more))),
            np.pad(past.diag, ((0, 0), (0, more))),
        )

    def gram_derivative(
        self, left: PointCache, right: PointCache, slopes: PointDerivatives
    ) -> Array:
        d, shared = self._d, self.basis.shared
        dK0 = shared.slopes_of_scaled(left.scaled[:, :d], right.scaled[:, :d])
        dC = self.new.slopes_of_scaled(left.scaled[:, d:], right.scaled[:, d:])
        dC *= NEW_VARIANCE * self._interaction(self._shared(left, right))[:, :, None]
        rate = self.residual_weight + INTERACTION / shared.signal * self._new(left, right)
        dK = rate[:, :, None] * dK0
        if left.phi.shape[1]:
            dK += np.einsum("nj,kjd->nkd", left.phi, slopes.phi[:, :, :d], optimize=True)
        return np.concatenate([dK, dC], axis=2)

    def _shared(self, left: PointCache, right: PointCache) -> Array:
        """(n, k) values of the kernel that past tasks share."""
        d = self._d
        return self.basis.shared.of_scaled(
            left.scaled[:, :d], left.norms[:, 0], right.scaled[:, :d], right.norms[:, 0]
        )

    def _new(self, left: PointCache, right: PointCache) -> Array:
        """(n, k) values NEW_VARIANCE c(u, v)."""
        d = self._d
        C = self.new.of_scaled(
            left.scaled[:, d:], left.norms[:, 1], right.scaled[:, d:], right.norms[:, 1]
        )
        C *= NEW_VARIANCE
        return C

    def _interaction(self, K0: Array) -> Array:
        """(n, k) how alike the effect of the new inputs is, given the shared kernel."""
        return (1 - INTERACTION) + INTERACTION / self.basis.shared.signal * K0

    def _past(self, points: PointCache) -> PointCache:
        """As a `LearnedProcess` without new inputs would have prepared them."""
        diag = points.diag - NEW_VARIANCE * self.new.signal
        return PointCache(
            points.scaled[:, : self._d], points.norms[:, 0], points.phi, points.mean, diag
        )
