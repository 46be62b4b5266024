r"""Learned processes on a task with choices that no past task had.

Of a new choice the past says what it says of all choices alike: where a known one has 1 in its
column, it has 1/K in the columns of all K known ones. Beyond that it has an effect of its own, and
one that depends on the other inputs x,

    k((x, u), (z, v)) = k(x, z) + VARIANCE / 2 (u'v) (1 + 3 x'z / d),

with u the columns of the new choices. Between known choices everything stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np

from metakel._arrays import Array
from metakel.gp.processes import PointCache, PointDerivatives, TaskProcess
from metakel.kernels.stationary import Matern52ARD

# In units of the variance of a task: that of a cold start, as nothing is known of the choice.
VARIANCE = 1.0


@dataclass(frozen=True, eq=False)
class WithNewChoices:
    """A process of the past on points that have columns of new choices.

    Parameters
    ----------
    past : TaskProcess
        With d inputs.
    places : (d0, d) array
        Where each column lies among those of the past: X @ places is what the past knows of X.
    new : (q,) tuple of int
        Which columns are those of new choices.
    """

    past: TaskProcess
    places: Array
    new: tuple[int, ...]

    @property
    def noise(self) -> float:
        """Variance of what no function explains, in units of the squared scale."""
        return self.past.noise

    @property
    def learned(self) -> bool:
        """Whether past tasks taught it."""
        return self.past.learned

    @property
    def stationary(self) -> tuple[Matern52ARD, float]:
        """Of the past."""
        return self.past.stationary

    def with_new_inputs(self, d_new: int) -> WithNewChoices:
        """The process on points with ``d_new`` more inputs, which come last."""
        rows, columns = self.places.shape
        places = np.zeros((rows + d_new, columns + d_new))
        places[:rows, :columns], places[rows:, columns:] = self.places, np.eye(d_new)
        return WithNewChoices(self.past.with_new_inputs(d_new), places, self.new)

    def with_new_choices(self, places: Array, new: Sequence[int]) -> WithNewChoices:
        """The process with columns of even more choices."""
        return WithNewChoices(self, places, tuple(new))

    def shares_kernel(self, other: TaskProcess) -> bool:
        """Whether the other one is this one for another noise."""
        return self.past.shares_kernel(getattr(other, "past", other))

    @cached_property
    def _slopes(self) -> Array:
        """(d0, 1 + d) of level and inputs of the past, by which an effect of its own is spanned."""
        unit = sqrt(VARIANCE / 2)
        return np.insert(unit * sqrt(3 / self.places.shape[1]) * self.places, 0, 0.0, axis=1)

    def _own(self, Z: Array) -> tuple[Array, Array]:
        """Level and inputs of the past (n, 1 + d), and own effects (n, q, 1 + d), at points."""
        along = Z @ self._slopes
        along[:, 0] = sqrt(VARIANCE / 2)
        return along, Z[:, self.new, None] * along[:, None]

    def prepare(self, Z: Array) -> PointCache:
        """Everything about points (n, d0) that is needed more than once."""
        found, own = self.past.prepare(Z @ self.places), _flat(self._own(Z)[1])
        diag = found.diag + np.einsum("nj,nj->n", own, own)
        return replace(found, phi=np.concatenate([found.phi, own], axis=1), diag=diag)

    def gram(self, left: PointCache, right: PointCache) -> Array:
        """(n, k) values k(x, z)."""
        smooth = self.past.gram(_without_phi(left), _without_phi(right))
        return smooth + left.phi @ right.phi.T

    def derivatives(self, points: PointCache, Z: Array) -> PointDerivatives:
        """Of mean, eigenfunctions, own effects and k(z, z) at points (n, d0) and their cache."""
        along, own = self._own(Z)
        slopes = np.einsum("nq,dj->nqjd", Z[:, self.new], self._slopes)
        for i, column in enumerate(self.new):
            slopes[:, i, :, column] += along
        known = points.phi.shape[1] - _flat(own).shape[1]
        found = self.past.derivatives(replace(points, phi=points.phi[:, :known]), Z @ self.places)
        return PointDerivatives(
            np.concatenate([found.phi @ self.places.T, _flat(slopes)], axis=1),
            found.mean @ self.places.T,
            found.diag @ self.places.T + 2 * np.einsum("nqj,nqjd->nd", own, slopes),
        )

    def gram_derivative(
        self, left: PointCache, right: PointCache, slopes: PointDerivatives
    ) -> Array:
        """(n, k, d0) derivatives of k(x, z) in z."""
        smooth = _without_phi(left), _without_phi(right), replace(slopes, phi=slopes.phi[:, :0])
        dK = self.past.gram_derivative(*smooth) @ self.places.T
        dK += np.einsum("nj,kjd->nkd", left.phi, slopes.phi, optimize=True)
        return np.asarray(dK)


def _without_phi(points: PointCache) -> PointCache:
    return replace(points, phi=points.phi[:, :0])


def _flat(effects: Array) -> Array:
    """Effects of q choices (n, q, j, ...) side by side (n, q j, ...)."""
    n, q, j, *rest = effects.shape
    return effects.reshape(n, q * j, *rest)
