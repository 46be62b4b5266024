"""The model of a kernel: a confidence sequence (Theorem 5.1), or a posterior with fixed nu."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log, sqrt
from typing import Any, ClassVar, Self

import numpy as np

from metakel._arrays import Array, is_number, positive
from metakel.confidence.fallback import Alarm, AlarmEvent
from metakel.confidence.observations import Batch, Observations, no_observations
from metakel.confidence.options import NormBound
from metakel.confidence.sequence import ConfidenceSequence
from metakel.confidence.set import ConfidenceSet, closed_form_set
from metakel.confidence.spectrum import Spectrum
from metakel.errors import InputError
from metakel.gp import Posterior, posterior
from metakel.kernels.sum import KernelSum, as_kernel
from metakel.optimize.model import Model, Score
from metakel.optimize.outcomes import Outcomes
from metakel.optimize.upper_bound import UpperBound
from metakel.search import Domain, Finite, InContext, StartPoints

# A number, or one for every step t = 1, 2, ... as the paper's nu_t.
Schedule = float | Callable[[int], float]


def checked_schedule(name: str, schedule: Schedule | None) -> Schedule | None:
    """A schedule, of which a number is checked at once and a function whenever it is called."""
    if schedule is None or callable(schedule):
        return schedule
    return at_step(name, schedule, 1)


def at_step(name: str, schedule: Schedule, t: int) -> float:
    """The value of a schedule at step ``t``, checked."""
    value: Any = schedule(t) if callable(schedule) else schedule
    if not (is_number(value) and 0 < value < inf):
        raise InputError(f"{name} is {value!r} at step {t}; expected a positive number")
    return float(value)


@dataclass(frozen=True, eq=False)
class FixedNu:
    """Posterior mean plus nu posterior standard deviations (Eqs. 3 and 11).

    Parameters
    ----------
    observations : Observations
        Whitened with their noise.
    t : int
        How many there are.
    nu, noise_var : Schedule
    noise_std : float
        The noise of an observation that has no other; ``noise_var`` is meant for it.
    """

    observations: Observations
    t: int
    nu: Schedule
    noise_var: Schedule
    noise_std: float

    def observe(self, batch: Batch) -> FixedNu:
        """With the observations of one more call."""
        observations = self.observations.append(batch)
        return replace(self, observations=observations, t=self.t + len(batch.y))

    @cached_property
    def current(self) -> ConfidenceSet:
        """The interval mean +- nu std, in the form of a confidence set."""
        noise_var = at_step("noise_var", self.noise_var, self.t + 1)
        return closed_form_set(
            self.observations.spectrum(),
            alpha=noise_var / self.noise_std**2,
            nu=at_step("nu", self.nu, self.t + 1),
        )

    def spectrum(self, pending: Array) -> Spectrum:
        """Observations, and points ``pending`` (q, d0) whose values are not known yet."""
        if not len(pending):
            return self.current.spectrum
        noise = np.full(len(pending), self.noise_std)
        return self.observations.append(Batch(pending, np.zeros(len(pending)), noise)).spectrum()


@dataclass(eq=False)
class _StartFeatures:
    """Features of the start points, computed once for each kernel.

    Where a climb follows, the start is only a first look, for which single precision is enough.
    """

    start: StartPoints
    kernel: KernelSum | None = None
    features: Array | None = None

    def at(self, kernel: KernelSum, Z: Array) -> Array | None:
        """(n, d) features for a first look at ``Z``; None where the kernel has none."""
        if not kernel.finite:
            return None
        climbs = self.start.neighbours is not None or self.start.U is not None
        if Z is self.start.X:
            if self.kernel is not kernel:
                found = kernel.features(Z)
                self.kernel, self.features = kernel, found.astype(np.float32) if climbs else found
            return self.features
        return kernel.features(Z).astype(np.float32) if climbs and kernel.smooth else None


class CertifiedModel(Model):
    """The objective lies in the space of a kernel; bounds from a `ConfidenceSequence`.

    Parameters
    ----------
    kernel : KernelSum
    sequence : ConfidenceSequence or None
        The bounds. None promises nothing.
    fixed : FixedNu or None
        What decides instead of the bounds.
    noise_std : float
        Noise of an observation that has no other.
    noise_var : Schedule or None
        The regulariser of Eq. 3 for `posterior`; noise_std^2 where None.
    """

    kind: ClassVar[str] = "certified"

    def __init__(
        self,
        kernel: KernelSum,
        sequence: ConfidenceSequence | None,
        fixed: FixedNu | None,
        *,
        noise_std: float,
        noise_var: Schedule | None = None,
    ) -> None:
        self.kernel, self.sequence, self.fixed = kernel, sequence, fixed
        self.noise_std, self.noise_var = noise_std, noise_var
        self._pending = np.zeros((0, 1))
        self._features: _StartFeatures | None = None

    @classmethod
    def make(
        cls,
        kernel: KernelSum,
        domain: Domain | None,
        *,
        noise_std: float,
        norm_bound: NormBound = None,
        nu: Schedule | None = None,
        noise_var: Schedule | None = None,
        **options: Any,
    ) -> CertifiedModel:
        """With the arguments of `GPUCB`; ``options`` are those of `ConfidenceSequence`."""
        kernel = as_kernel("kernel", kernel)
        noise_std = positive("noise_std", noise_std)
        nu, noise_var = checked_schedule("nu", nu), checked_schedule("noise_var", noise_var)
        sequence = fixed = None
        if nu is None or norm_bound is not None:
            points = domain.X if isinstance(domain, Finite) else None
            sequence = ConfidenceSequence(
                kernel, noise_std=noise_std, norm_bound=norm_bound, points=points, **options
            )
        if nu is not None:
            variance = noise_std**2 if noise_var is None else noise_var
            fixed = FixedNu(no_observations(kernel), 0, nu, variance, noise_std)
        return cls(kernel, sequence, fixed, noise_std=noise_std, noise_var=noise_var)

    @property
    def d0(self) -> int | None:
        """How many inputs a point has; None for any number."""
        return self.kernel.d0

    def prepare(self, start: StartPoints) -> Self:
        """Ready to be searched from these points; an error where the kernel does not fit them."""
        self.kernel.base.points(start.X)
        model = copy(self)
        model._features = _StartFeatures(start)
        return model

    def observe(self, X: Array, y: Array, noise_std: Array) -> Self:
        """After the observations of one call; all of them, or on an error none."""
        noise = np.where(np.isnan(noise_std), self.noise_std, noise_std)
        model = copy(self)
        model.raised = None
        if self.fixed is not None:
            model.fixed = self.fixed.observe(Batch(X, y, noise))
        if self.sequence is not None:
            model.sequence = copy(self.sequence)
            try:
                model.sequence.tell(X, y, noise)
            except Alarm as alarm:  # which is raised after the observations were taken in
                model.raised = alarm
        return model

    def with_fantasies(self, X: Array) -> Self:
        """With smaller widths around the points (q, d0), and the same means."""
        model = copy(self)
        model._pending = X
        return model

    # What it answers

    @property
    def certified(self) -> ConfidenceSequence:
        """The confidence sequence; an error where there is none."""
        if self.sequence is None:
            raise InputError(self.no_bounds)
        return self.sequence

    @property
    def no_bounds(self) -> str:
        """Why there are no confidence bounds; empty where there are."""
        if self.sequence is None:
            return "a fixed nu alone promises nothing; give a norm_bound for confidence"
        return ""

    @property
    def delta(self) -> float:
        """Probability with which the bounds may fail."""
        return 1.0 if self.sequence is None else self.sequence.delta

    @property
    def alarm(self) -> AlarmEvent | None:
        """The last time at which the data contradicted what was assumed."""
        return None if self.sequence is None else self.sequence.alarm

    @property
    def transfer_weight(self) -> float:
        """1 as long as the kernel that was given is believed, 0 after a fallback."""
        return float(self._deciding.kernel is self.kernel)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the mixture behind the radius, for the default method."""
        sequence = self.sequence
        if sequence is None or sequence.method != "dmm":
            return 0.0
        return log(1 / sequence.delta_deciding) - sequence.radius**2 / 2

    @property
    def scale(self) -> float:
        """The range of the upper bounds over the start points."""
        if self._features is None:
            return 1.0
        return float(np.ptp(self.upper_bound().values(self._features.start.X))) or 1.0

    @property
    def _deciding(self) -> ConfidenceSet:
        """The set that decides; where nothing fits any more, one that still explores.

        Nothing fits when the noise is larger than was said. The upper bounds are infinite then and
        of no use for a choice, so the posterior with the largest scale of the mixture stands in.
        """
        if self.fixed is not None:
            return self.fixed.current
        sequence = self.certified
        if sequence.hypothesis is not None:
            return sequence.current
        scale = sequence.largest_norm_scale
        spectrum = sequence.spectrum(np.zeros((0, 1)))
        nu = scale * sqrt(2 * log(1 / sequence.delta_deciding))
        return closed_form_set(spectrum, alpha=scale**-2.0, nu=nu)

    def _spectrum(self, deciding: ConfidenceSet) -> Spectrum:
        if not len(self._pending):
            return deciding.spectrum
        source = self.certified if self.fixed is None else self.fixed
        return source.spectrum(self._pending)

    def upper_bound(self) -> Score:
        """The upper bound, less wide around fantasies (Eq. 11); on a finite domain of all times."""
        deciding = self._deciding
        score = self._score(UpperBound(deciding, self._spectrum(deciding)))
        points = None if self.fixed is not None else self.certified.points
        if points is None:
            return score
        ceiling = self.certified.interval()[1]
        start = None if self._features is None else self._features.start.X

        def values(Z: Array) -> Array:
            if Z is not start:
                return score.values(Z)
            if not len(self._pending) and np.isfinite(ceiling).all():
                return ceiling  # nothing is pending, and the present set is one of all times
            return np.minimum(score.values(Z), ceiling)

        return Score(values)

    def _score(self, bound: UpperBound) -> Score:
        kernel = bound.set.kernel
        look = None if self._features is None else self._features.at

        def values(Z: Array) -> Array:
            return bound.upper(Z, None if look is None else look(kernel, Z))

        return Score(values, bound.upper_and_gradient if kernel.smooth else None)

    def bounds(self, Z: Array) -> tuple[Array, Array]:
        """(n,) lower and upper confidence bounds, for all points and times together."""
        return self.certified.interval(Z)

    def domain_bounds(self) -> tuple[Array, Array]:
        """(N,) bounds at the points of a finite domain, exact over all times."""
        return self.certified.interval()

    def predict(self, Z: Array) -> tuple[Array, Array]:
        """(n,) posterior means and standard deviations; fantasies shrink the latter."""
        deciding = self._deciding
        alpha = float(deciding.alphas[0])
        if self.fixed is None and self.certified.hypothesis is not None:
            mean = self.certified.mean(Z)
            alpha = self.certified.alpha
        else:
            mean = deciding.mean(Z, alpha)
        spectrum = self._spectrum(deciding)
        inside, outside = spectrum.project(Z)
        variance = spectrum.inverse(np.array([alpha]))[0] @ inside**2 + outside / max(alpha, 1e-300)
        return mean, np.sqrt(variance)

    def posterior(self, outcomes: Outcomes, *, sign: float = 1.0) -> Posterior:
        """GP(0, k) given the observations (Eq. 3), k being the kernel believed at present."""
        scale = 1.0
        if self.noise_var is not None:
            scale = at_step("noise_var", self.noise_var, outcomes.t + 1) / self.noise_std**2
        noise = np.where(np.isnan(outcomes.noise_std), self.noise_std, outcomes.noise_std)
        return posterior(
            self._deciding.kernel, outcomes.X, sign * outcomes.y, noise_var=scale * noise**2
        )

    def largest_upper(self, domain: Domain, start: StartPoints) -> float:
        """The largest upper bound in the domain: exact on a finite one, else by a search.

        Never below the upper bounds of the points that were observed. Between the points that a
        search has looked at, a kernel without derivatives can do anything that its norm allows.
        """
        if isinstance(domain, Finite):
            return float(self.domain_bounds()[1].max())
        current = self.certified.current
        if not current.kernel.smooth:
            return current.norm_bound * _largest_root(current.kernel)
        if not np.isfinite(current.norm_bound) and np.isinf(current.upper(start.X)).any():
            return inf
        score = self._score(UpperBound(current, current.spectrum))
        _, values = domain.maximisers(score.values, start, gradient=score.gradient)
        X = np.zeros((0, domain.d0)) if self.outcomes is None else self.outcomes.X
        if isinstance(domain, InContext) and len(X):
            X = X[domain.contains(X)]  # others were observed in another context
        seen = self._at_observed(X)[2] if len(X) else np.zeros(0)
        return float(max(values.max(), seen.max(initial=-inf)))

    def best(self, outcomes: Outcomes) -> tuple[int, float, float, float]:
        """The observed point with the largest lower bound; where all are infinite, mean."""
        mean, lower, upper = self._at_observed(outcomes.X)
        height = lower if np.isfinite(lower).any() else mean
        chosen = int(np.argmax(np.where(outcomes.counts, height, -inf)))
        low, high = float(lower[chosen]), float(upper[chosen])
        return chosen, min(max(float(mean[chosen]), low), high), low, high

    def certain(self, outcomes: Outcomes) -> tuple[int, float, float]:
        """The same point as `best`."""
        chosen, _, lower, upper = self.best(outcomes)
        return chosen, lower, upper

    def _at_observed(self, X: Array) -> tuple[Array, Array, Array]:
        if self.sequence is None:
            deciding = self._deciding
            mean = deciding.mean(X, float(deciding.alphas[0]))
            return mean, *deciding.interval(X, refine=False)
        mean = self.sequence.mean(X)
        points = self.sequence.points
        if points is None:
            return mean, *self.sequence.interval(X, refine=False)
        lower, upper = self.sequence.interval()
        rows = np.array([_row(points, x) for x in X], dtype=np.intp)
        return mean, lower[rows], upper[rows]

    def describe(self) -> str:
        """What is assumed of the objective at present."""
        if self.sequence is None or self.fixed is not None:
            return f"{len(self.kernel.active)} of {self.kernel.base.p} base kernels"
        believed = self.sequence.hypothesis
        return "nothing assumed (check noise_std)" if believed is None else str(believed)

    # How it is kept

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form of the model before any observation."""
        first = self if self._first is None else self._first
        sequence = first.sequence
        full = None if sequence is None else sequence.full
        nu = None if self.fixed is None else self.fixed.nu
        return {
            "kind": self.kind,
            "kernel": self.kernel.to_json(),
            "full": None if full is None else full.to_json(),
            "sequence": None if sequence is None else sequence.to_dict(),
            "noise_std": self.noise_std,
            "nu": _storable("nu", nu),
            "noise_var": _storable("noise_var", self.noise_var),
        }

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> CertifiedModel:
        """Inverse of `to_dict`; ``functions`` maps the names of the user's own kernels to them."""
        kernel = KernelSum.from_json(data["kernel"], functions)
        noise_std = positive("noise_std", data["noise_std"])
        nu = checked_schedule("nu", data["nu"])
        noise_var = checked_schedule("noise_var", data["noise_var"])
        sequence = fixed = None
        if data["sequence"] is not None:
            # The kernel itself stands for no second one.
            full = kernel if data["full"] is None else KernelSum.from_json(data["full"], functions)
            sequence = ConfidenceSequence.from_dict(data["sequence"], kernel, full)
        if nu is not None:
            variance = noise_std**2 if noise_var is None else noise_var
            fixed = FixedNu(no_observations(kernel), 0, nu, variance, noise_std)
        if sequence is None and fixed is None:
            raise InputError("stored model has neither a confidence sequence nor a nu")
        return cls(kernel, sequence, fixed, noise_std=noise_std, noise_var=noise_var)


def _storable(name: str, value: Any) -> Any:
    if callable(value):
        raise InputError(f"a {name} that is a function cannot be stored; store the record instead")
    return value


def _row(X: Array, x: Array) -> int:
    """Which of the points ``x`` is; both come from the same finite domain."""
    return int(np.argmin(np.abs(X - x).max(axis=1)))


def _largest_root(kernel: KernelSum) -> float:
    """Bound of sqrt(k(x, x)) over all x; inf where a base kernel does not say how large it gets."""
    active = kernel.active
    largest = float(kernel.eta[active] @ np.asarray(kernel.base.sup)[active])
    return sqrt(largest) if np.isfinite(largest) else inf
