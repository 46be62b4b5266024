"""Where decisions come from: a prior, a learned kernel, or whatever else makes an optimizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from metakel._arrays import Array
from metakel.confidence import ConfidenceSequence
from metakel.errors import InputError
from metakel.learn import LearnedKernel
from metakel.optimize import GPUCB, Optimizer, Trial
from metakel.optimize.model import Model
from metakel.priors import Prior
from metakel.search import CandidateTable, Domain, SearchSpace
from metakel.space import Space
from metakel.tuner.events import digest

if TYPE_CHECKING:
    from metakel.tuner.options import RunOptions

DELTA = 0.2  # by default, the probability with which a certificate may fail


class Source(ABC):
    """What a tuner knows of whatever decides.

    A source that promises something of what it asks for says so in words: `rules` for the journal,
    `promise` before the first evaluation, `remarks` after each, `account` for the report.
    """

    @property
    @abstractmethod
    def space(self) -> Space:
        """Parameters and their recorded ranges."""

    @property
    @abstractmethod
    def output(self) -> str:
        """What is measured."""

    @property
    @abstractmethod
    def minimize(self) -> bool:
        """Whether small values are good."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Sixteen characters by which a journal knows what it was begun with."""

    @abstractmethod
    def optimizer(self, options: RunOptions) -> Optimizer:
        """What decides: the same for the same source and options, in every process."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the past tasks, where they are known."""
        return ()

    @property
    def output_range(self) -> tuple[float, float]:
        """Between which all values lie."""
        return -inf, inf

    @property
    def anywhere(self) -> bool:
        """Whether runs count that were done with values beyond the space."""
        return False

    @property
    def delta(self) -> float:
        """By default, the probability with which a promise may fail."""
        return DELTA

    @property
    def rules(self) -> Mapping[str, Any]:
        """What every configuration has to respect, as JSON; empty where anything may be tried.

        ``text`` has it in words, and ``outputs`` what has to be measured beside the output.
        """
        return {}

    @property
    def others(self) -> tuple[str, ...]:
        """What has to be measured beside the output."""
        return tuple(self.rules.get("outputs", ()))

    @property
    def identity(self) -> dict[str, Any]:
        """What a journal notes, so that it goes on with the same source only."""
        ends = self.output_range
        return {
            "prior": self.digest,
            "output": self.output,
            "minimize": self.minimize,
            "space": self.space.to_dict(),
            **({"output_range": list(ends)} if np.isfinite(ends).all() else {}),
            **({"rules": dict(self.rules)} if self.rules else {}),
            **({"anywhere": True} if self.anywhere else {}),
        }

    def promise(self, delta: float) -> str:
        """What is promised of all that will be asked for; empty where nothing is."""
        return ""

    def remarks(self, trials: Sequence[Trial], number: int) -> list[str]:
        """What to say of the value of a trial, beside the value."""
        return []

    def account(
        self, trials: Sequence[Trial], models: tuple[Model, Model], points: Array, delta: float
    ) -> tuple[str, list[tuple[str, ...]]]:
        """How a run kept the rules: a text, and rows of a table with their titles first.

        ``models`` are those before and after it, and ``points`` (n, d0) stand for all.
        """
        return "", []


@dataclass(frozen=True, eq=False)
class PriorSource(Source):
    """A prior, as a tuner sees it."""

    prior: Prior

    @property
    def space(self) -> Space:
        return self.prior.space

    @property
    def output(self) -> str:
        return self.prior.info.output

    @property
    def minimize(self) -> bool:
        return self.prior.info.minimize

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.prior.info.tasks

    @property
    def output_range(self) -> tuple[float, float]:
        return self.prior.output_range

    @property
    def anywhere(self) -> bool:
        return True

    @cached_property
    def digest(self) -> str:
        """A prior is known by the runs it was learned from and by how.

        Another number of threads, or another machine, rounds what is learned differently, and that
        is the same prior.
        """
        prior = self.prior
        parts = (prior.task_gp is None, prior.calibration is None, prior.cold_weight)
        return digest([prior.space.to_dict(), asdict(prior.info), *parts])

    def optimizer(self, options: RunOptions) -> Optimizer:
        return self.prior.optimizer(
            options.rows,
            rng=np.random.default_rng(options.seed),
            fixed=options.fixed,
            extrapolate=options.extrapolate,
            delta=options.delta,
            space=options.space,
        )


@dataclass(frozen=True, eq=False)
class KernelSource(Source):
    """A kernel that was learned from a history with named parameters, for `Tuner`.

    Parameters
    ----------
    learned : LearnedKernel
    norm_bound : float
        B of `ConfidenceSequence`, which says how large kernels can be that were not selected.
    """

    learned: LearnedKernel
    norm_bound: float | None = None

    def __post_init__(self) -> None:
        if self._said("space") is None:
            raise InputError(
                "the kernel was learned from a history without named parameters; expected one "
                "that was read with names (History.from_csv, from_frame, ...)"
            )
        if self.norm_bound is None:
            raise InputError(
                "a learned kernel needs norm_bound, which says how large the kernels can be "
                f"that were not selected{_usual_norm(self.learned)}: "
                "Tuner(KernelSource(learned, norm_bound=...))"
            )

    @property
    def space(self) -> Space:
        space: Space = self._said("space")
        return space

    @property
    def output(self) -> str:
        report = self._said("report")
        return "y" if report is None else str(report.output)

    @property
    def minimize(self) -> bool:
        report = self._said("report")
        return report is not None and bool(report.minimize)

    def _said(self, name: str) -> Any:
        """What the history says; a scan of files has no names."""
        return getattr(self.learned.history, name, None)

    @cached_property
    def digest(self) -> str:
        learned = self.learned
        kernel = learned.confidence_kernel(self.norm_bound)
        return digest([kernel.to_json(), learned.noise_std, learned.delta, self.norm_bound])

    def optimizer(self, options: RunOptions) -> Optimizer:
        return GPUCB(
            ConfidenceSequence(self.learned, norm_bound=self.norm_bound, delta=options.delta),
            named_domain(self.space, options),
            rng=np.random.default_rng(options.seed),
            minimize=self.minimize,
        )


def _usual_norm(learned: LearnedKernel) -> str:
    if learned.problem.kernel_mode or not learned.active.size:
        return ""
    return f"; past tasks have {learned.typical_norm:.3g} (root mean square), twice that is usual"


def named_domain(space: Space, options: RunOptions) -> Domain:
    """Where a run searches: the candidates, or the space within its ranges."""
    rows = options.rows
    if rows is not None:
        X = space.encode(rows, extrapolate=options.extrapolate)
        return CandidateTable.of(rows, X, space)
    return SearchSpace(options.space or space, space, dict(options.fixed), options.extrapolate)


def as_source(learned: Source | Prior | LearnedKernel) -> Source:
    """The source that a prior or a learned kernel is."""
    if isinstance(learned, Source):
        return learned
    if isinstance(learned, Prior):
        return PriorSource(learned)
    if isinstance(learned, LearnedKernel):
        return KernelSource(learned)
    raise InputError(
        f"prior is a {type(learned).__name__}; expected a Prior, a learned kernel or a source: "
        "Prior.load(path) reads a prior that was saved, learn_prior(history) learns one, "
        "learn_kernel(history, base) learns a kernel"
    )
