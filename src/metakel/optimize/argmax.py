"""The argmax of Eq. 11 over a domain, which keeps what does not change from step to step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from metakel._arrays import Array
from metakel.confidence.set import ConfidenceSet
from metakel.confidence.spectrum import Spectrum
from metakel.kernels.sum import KernelSum
from metakel.optimize.acquisition import Acquisition
from metakel.search import Candidates, Domain
from metakel.search.domain import WithGradient


@dataclass(eq=False)
class Search:
    """Parameters
    ----------
    domain : Domain
    candidates : Candidates
        Where every search starts; all points of a finite domain.
    """

    domain: Domain
    candidates: Candidates
    _features: tuple[KernelSum, Array] | None = field(default=None, repr=False)

    def next_point(
        self,
        present: ConfidenceSet,
        spread: Spectrum,
        rng: np.random.Generator,
        *,
        ceiling: Array | None,
        exclude: Array,
    ) -> Array:
        """(d0,) where the upper bound is largest.

        Parameters
        ----------
        present : ConfidenceSet
        spread : Spectrum
            Observations and pending points.
        rng : Generator
            Breaks ties.
        ceiling : (n,) array or None
            Bounds at the candidates that are known besides, from earlier times.
        exclude : (k, d0) array
            Points not to choose.
        """
        acquisition = Acquisition(present, spread)

        def upper(Z: Array) -> Array:
            known = ceiling if Z is self.candidates.X else None
            if known is not None and spread is present.spectrum and np.isfinite(known).all():
                return known  # nothing is pending, and the present set is one of all times
            values = acquisition.upper(Z, self._look(present.kernel, Z))
            return values if known is None else np.minimum(values, known)

        x, _ = self.domain.maximise(
            upper,
            rng,
            gradient=_gradient(acquisition),
            exclude=exclude,
            candidates=self.candidates,
        )
        return x

    def largest_upper(self, present: ConfidenceSet, ceiling: Array | None) -> float:
        """The largest upper bound in the domain, as far as the search finds it."""
        if ceiling is not None:
            return float(ceiling.max())
        if not np.isfinite(present.norm_bound) and np.isinf(present.upper(self.candidates.X)).any():
            return np.inf
        acquisition = Acquisition(present, present.spectrum)

        def upper(Z: Array) -> Array:
            return acquisition.upper(Z, self._look(present.kernel, Z))

        _, values = self.domain.maximisers(upper, self.candidates, gradient=_gradient(acquisition))
        return float(values.max())

    def _look(self, kernel: KernelSum, Z: Array) -> Array | None:
        """(n, d) features for a first look: in single precision where a smooth climb follows it."""
        if Z is self.candidates.X:
            return self._features_for(kernel)
        if self.candidates.neighbours is None or not (kernel.finite and kernel.smooth):
            return None
        return kernel.features(Z).astype(np.float32)

    def _features_for(self, kernel: KernelSum) -> Array | None:
        """(n, d) features of the candidates, computed once per kernel; None where it has none.

        In a box the candidates are only a start, for which single precision is enough.
        """
        if not kernel.finite:
            return None
        if self._features is None or self._features[0] is not kernel:
            features = kernel.features(self.candidates.X)
            if self.candidates.neighbours is not None:
                features = features.astype(np.float32)
            self._features = kernel, features
        return self._features[1]


def _gradient(acquisition: Acquisition) -> WithGradient | None:
    return acquisition.upper_and_gradient if acquisition.set.kernel.smooth else None
