"""What a tuner decides with: a prior, or a learned kernel."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from metakel.errors import InputError
from metakel.learn import LearnedKernel
from metakel.optimize import GPUCB, Optimizer
from metakel.priors import Prior
from metakel.priors.storage import to_version_1
from metakel.search import CandidateTable, Domain, SearchSpace
from metakel.space import Space


@dataclass(frozen=True, eq=False)
class TuningSource:
    """A prior or a learned kernel, as a tuner sees it.

    Parameters
    ----------
    learned : Prior or LearnedKernel
    norm_bound : float or None
        For a learned kernel: B of `ConfidenceSequence`. With it, kernels that were not selected
        keep the weight that they can have (`LearnedKernel.confidence_kernel`).
    """

    learned: Prior | LearnedKernel
    norm_bound: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.learned, Prior | LearnedKernel):
            raise InputError(
                f"prior is a {type(self.learned).__name__}; expected a Prior or a learned kernel: "
                "Prior.load(path) reads a prior that was saved, learn_prior(history) learns one, "
                "learn_kernel(history, base) learns a kernel"
            )
        if isinstance(self.learned, Prior) and self.norm_bound is not None:
            raise InputError("norm_bound belongs to a learned kernel; a prior has its own")
        if self._history_space is None:
            raise InputError(
                "the kernel was learned from a history without named parameters; expected one that "
                "was read with names (History.from_csv, from_frame, ...)"
            )

    @property
    def _history_space(self) -> Space | None:
        if isinstance(self.learned, Prior):
            return self.learned.space
        return getattr(self.learned.history, "space", None)

    @property
    def space(self) -> Space:
        """Parameters and their recorded ranges."""
        found = self._history_space
        assert found is not None  # checked above
        return found

    @property
    def output(self) -> str:
        """What is measured."""
        if isinstance(self.learned, Prior):
            return self.learned.info.output
        report = getattr(self.learned.history, "report", None)
        return "y" if report is None else str(report.output)

    @property
    def minimize(self) -> bool:
        """Whether small values are good."""
        if isinstance(self.learned, Prior):
            return self.learned.info.minimize
        report = getattr(self.learned.history, "report", None)
        return report is not None and bool(report.minimize)

    @cached_property
    def digest(self) -> str:
        """Sixteen characters by which a journal knows what it was begun with."""
        if isinstance(self.learned, Prior):
            return digest(to_version_1(self.learned))
        learned = self.learned
        return digest([learned.kernel.to_json(), learned.noise_std, learned.delta, self.norm_bound])

    def optimizer(
        self,
        *,
        rng: np.random.Generator,
        candidates: Sequence[Mapping[str, Any]] | None,
        fixed: Mapping[str, Any],
        extrapolate: bool,
        delta: float,
    ) -> Optimizer:
        """The optimizer that decides."""
        if isinstance(self.learned, Prior):
            return self.learned.optimizer(
                candidates, rng=rng, fixed=fixed, extrapolate=extrapolate, delta=delta
            )
        domain: Domain
        if candidates is None:
            domain = SearchSpace(self.space, self.space, dict(fixed), extrapolate)
        else:
            X = self.space.encode(list(candidates), extrapolate=extrapolate)
            domain = CandidateTable.of(candidates, X, self.space)
        bound, learned = self.norm_bound, self.learned
        return GPUCB(
            learned.kernel if bound is None else learned.confidence_kernel(bound),
            domain,
            rng=rng,
            noise_std=learned.noise_std,
            norm_bound=bound,
            norm_of="truth" if bound is None else "kernel",
            delta=delta,
            delta_learning=learned.delta,
            maximize=not self.minimize,
        )


def digest(data: Any) -> str:
    """Sixteen characters that differ for different data."""
    text = json.dumps(data, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
